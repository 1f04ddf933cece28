// Runs beside a page in a browser without a window, works its controls, and says what is wrong. See
// scripts/pages. The page is in the frame #page; what it complained of is in its `complaints`.
"use strict";
const frame = document.getElementById("page");
const wrong = [];
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

function expect(holds, what) {
  if (!holds && !wrong.includes(what)) wrong.push(what);
}

async function check() {
  const view = frame.contentWindow;
  const page = view.document;
  const fits = (when) => {
    const root = page.documentElement;
    expect(root.scrollWidth <= root.clientWidth, `it is ${root.scrollWidth} wide, of ${root.clientWidth}, ${when}`);
  };
  await sleep(50);
  expect(page.body.textContent.trim().length > 100, "it shows nothing");
  fits("at first");
  if (page.getElementById("scrub")) await story(view, page, fits);
  else if (page.getElementById("filter")) report(view, page, fits);
  else if (page.body.className === "comparison") comparison(page);
  else expect(false, "it is no story, no report and no comparison");
  for (const details of page.querySelectorAll("details")) details.open = true;
  fits("with all parts open");
  for (const control of page.querySelectorAll("button, input, select"))
    expect(control.textContent.trim() || control.getAttribute("aria-label") || control.closest("label") ||
      control.title, "a control has no name");
  for (const complaint of view.complaints) expect(false, complaint);
  const fetched = view.performance.getEntriesByType("resource").map((entry) => entry.name);
  expect(fetched.length === 0, "it fetches " + fetched.join(", "));
}

// A comparison has figures in a table, and bars, lines or a map of winners.
function comparison(page) {
  const rows = page.querySelectorAll("tbody tr");
  expect(rows.length > 1, "there are no rows to compare");
  for (const row of rows)
    expect(row.children.length === page.querySelector("thead tr").children.length || row.closest("details"),
      "a row has more cells than headings, or fewer");
  expect(page.querySelector("svg path, svg polyline, svg line, .map .win, .map .tie, .bar"), "nothing is drawn");
}

async function story(view, page, fits) {
  const get = (id) => page.getElementById(id);
  const step = () => Number(/step (\d+)/.exec(get("count").textContent)[1]);
  const steps = Number(/of (\d+)/.exec(get("count").textContent)[1]);
  const press = (key) => page.body.dispatchEvent(new view.KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  const at = (wanted, how) => expect(step() === wanted, `${how} leads to step ${step()}, not ${wanted}`);
  expect(steps > 10, "it has few steps");
  get("first").click(); at(1, "the first button");
  get("next").click(); at(2, "the next button");
  get("back").click(); at(1, "the back button");
  get("last").click(); at(steps, "the last button");
  press("Home"); at(1, "Home");
  press("ArrowRight"); press("ArrowRight"); at(3, "the right arrow");
  press("ArrowLeft"); at(2, "the left arrow");
  press("End"); at(steps, "End");
  expect([...page.querySelectorAll(".ending")].some((ending) => ending.offsetHeight > 0), "the end says nothing");
  const scrub = get("scrub");
  scrub.value = 4;
  scrub.dispatchEvent(new view.Event("input", { bubbles: true }));
  at(5, "the slider");
  for (const button of get("parts").querySelectorAll("button:not(#links)")) {
    press("Home");
    button.click();
    expect(step() > 1, `"${button.textContent}" leads nowhere`);
  }
  press("Home");
  press(" ");
  await sleep(2500);
  const played = step();
  expect(played > 1, "playing does nothing");
  get("play").click();
  await sleep(2500);
  expect(step() === played, "a pause is none");
  // Every step draws, and fits.
  press("Home");
  for (let i = 1; i < steps; i++) {
    press("ArrowRight");
    fits("at step " + (i + 1));
    expect([...page.querySelectorAll(".now")].every((now) => now.textContent.trim()), `step ${i + 1} says nothing`);
  }
  at(steps, "stepping through");
  // A restart can find nothing, and so can the first cut: the first step that shows a page will do.
  const first = () => [...page.querySelectorAll(".cell.data")].find((cell) => cell.offsetWidth > 0);
  press("Home");
  for (let i = 1; i < steps && !first(); i++) press("ArrowRight");
  const cell = first();
  expect(cell, "no page of the flash is shown");
  if (cell) {
    cell.click();
    const box = [...page.querySelectorAll(".box h3")].find((title) => title.textContent.startsWith("spare area of p" + cell.dataset.page + " "));
    expect(box, "a click on a page does not show its spare area");
  }
  const tabs = [...get("tabs").children];
  const shown = () => [...page.querySelectorAll(".pane")].map((pane) => pane.offsetHeight > 0);
  press("2");
  if (tabs.length > 1) {
    expect(tabs[1].getAttribute("aria-pressed") === "true", "the key 2 does not choose the second run");
    expect(shown()[1], "the second run is not shown");
    fits("with the second run");
    tabs[0].click();
    expect(shown()[0], "the first run is not shown");
  }
  const links = get("links");
  if (links) {
    press("l");
    expect(links.getAttribute("aria-pressed") === "true", "L does not show all links");
  }
  const items = get("list").querySelectorAll("li");
  items[1].click();
  expect(step() > 1 && step() < steps, "the list of steps leads nowhere");
}

function report(view, page, fits) {
  const form = page.getElementById("filter");
  const rows = [...page.querySelectorAll("#all-claims tbody tr")];
  const shown = () => rows.filter((row) => row.offsetHeight > 0).length;
  expect(shown() === rows.length && rows.length > 0, "not all claims are shown at first");
  for (const select of form.querySelectorAll("select")) {
    const option = [...select.options].find((option) => option.value === "" ? false : true);
    if (!option) continue;
    select.value = option.value || option.textContent;
    form.dispatchEvent(new view.Event("change", { bubbles: true }));
    expect(page.getElementById("shown").textContent.startsWith(shown() + " of"), "the filter counts wrong");
    fits("filtered");
    select.value = "";
    form.dispatchEvent(new view.Event("change", { bubbles: true }));
  }
  expect(shown() === rows.length, "the filter does not let go");
  expect(page.querySelector("svg"), "there is no picture");
  const first = page.querySelector("svg");
  expect(first && first.getBoundingClientRect().top < 900, "no picture is within the first screen");
  const chart = page.querySelector("section figure svg");
  if (chart && view.innerWidth > 1000)
    expect(chart.getBoundingClientRect().top + view.scrollY < 900, "no chart is within the first screen");
}

frame.addEventListener("load", () => {
  check()
    .catch((error) => wrong.push("the check stops: " + error))
    .then(() => {
      document.body.textContent = wrong.length ? "WRONG: " + wrong.join("; ") : "ALL IS WELL";
    });
});
