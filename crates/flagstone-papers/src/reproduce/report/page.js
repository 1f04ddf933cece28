// The filter: what is chosen is in the address (#paper=lighttx&verdict=differs), so that it can be passed on.
const form = document.getElementById("filter");
const rows = [...document.querySelectorAll("#all-claims tbody tr")];
function show() {
  const paper = form.paper.value, verdict = form.verdict.value;
  let shown = 0;
  for (const row of rows) {
    const fits = (!paper || row.dataset.paper === paper) && (!verdict || row.dataset.verdict === verdict);
    row.hidden = !fits;
    shown += fits;
  }
  document.getElementById("shown").textContent = shown + " of " + rows.length + " shown";
}
function read() {
  const asked = new URLSearchParams(location.hash.slice(1));
  if (asked.has("paper") || asked.has("verdict")) {
    form.paper.value = asked.get("paper") || "";
    form.verdict.value = asked.get("verdict") || "";
  }
  // A link to a claim shows its row.
  const claim = location.hash.startsWith("#c-") && document.getElementById(location.hash.slice(1));
  if (claim) form.reset();
  show();
  if (claim) claim.scrollIntoView();
}
form.addEventListener("change", () => {
  const asked = new URLSearchParams();
  for (const name of ["paper", "verdict"]) if (form[name].value) asked.set(name, form[name].value);
  history.replaceState(null, "", "#" + asked);
  show();
});
addEventListener("hashchange", read);
read();
