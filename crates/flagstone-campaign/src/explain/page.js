"use strict";
// Draws a story. All that is shown is in the element #story, as it was recorded.
const story = JSON.parse(document.getElementById("story").textContent);
const get = (id) => document.getElementById(id);
const make = (tag, name, text) => {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
};
const { planes, blocks_per_plane: perPlane, pages_per_block: perBlock } = story.shape;

// Positions of the bar: steps of both runs that belong together share one.
const lengths = new Map();
for (const pane of story.panes) {
  const own = new Map();
  for (const step of pane.steps) own.set(step.part, (own.get(step.part) || 0) + 1);
  for (const [part, n] of own) lengths.set(part, Math.max(n, lengths.get(part) || 0));
}
const positions = [];
for (const part of [...lengths.keys()].sort((a, b) => a - b))
  for (let i = 0; i < lengths.get(part); i++) positions.push([part, i]);
// The step of a run at each position: the last one that is not after it.
const stepAt = story.panes.map((pane) => {
  const found = [];
  let step = -1;
  const seen = new Map();
  const order = pane.steps.map((s) => {
    const i = seen.get(s.part) || 0;
    seen.set(s.part, i + 1);
    return [s.part, i];
  });
  for (const [part, i] of positions) {
    while (step + 1 < order.length) {
      const [p, j] = order[step + 1];
      if (p < part || (p === part && j <= i)) step++;
      else break;
    }
    found.push(Math.max(step, 0));
  }
  return found;
});

// Transactions of the story have colours, in the order in which they come.
const owners = [];
for (const pane of story.panes)
  for (const step of pane.steps)
    if (step.who && step.lane === "host" && !owners.includes(step.who)) owners.push(step.who);
const colour = (owner) => (owners.includes(owner) ? `var(--o${owners.indexOf(owner) % 8})` : null);

// States of blocks, as the device has them.
const blockWords = { meta: "roots, mapping pages, logs", open: "being written", zone: "set aside to be written next", full: "full",
  free: "free", waits: "full, waits for its summary", victim: "being collected", bad: "out of service", stuck: "kept, since a page cannot be read" };

let at = 0;
let chosen = 0;
let timer = null;
let allLinks = false;
const views = [];

// Flash, tables and counted steps of a run after so many steps.
function stateOf(pane, upTo) {
  const state = { pages: pane.start.slice(), tables: null, ruled: new Map(), fresh: new Set() };
  for (let i = 0; i <= upTo && i < pane.steps.length; i++) {
    const step = pane.steps[i];
    for (const change of step.changes || []) {
      if (change.pages) for (const [at, page] of Object.entries(change.pages)) state.pages[at] = page;
      if (change.erase !== undefined) state.pages.fill(null, change.erase * perBlock, (change.erase + 1) * perBlock);
      if (change.all) state.pages = change.all.slice();
      // What was programmed since the tables were shown is not dead.
      if (change.pages) for (const at of Object.keys(change.pages)) state.fresh.add(+at);
    }
    if (step.tables) state.tables = step.tables;
    if (step.lane === "power") {
      // What was in memory is gone.
      state.ruled.clear();
      state.tables = null;
      state.isOff = true;
    }
    if (step.tables) state.isOff = false;
    if (step.ruled) for (const page of step.pages || []) state.ruled.set(page, step.ruled[1]);
    if (step.tables) state.fresh = new Set();
  }
  return state;
}

function linksOf(state, page) {
  const found = [...(page.links || [])].filter((to) => state.pages[to]);
  if (page.next)
    state.pages.forEach((other, to) => {
      if (other && other.version && other.version[0] === page.next[0] && other.version[1] === page.next[1]) found.push(to);
    });
  return found;
}

function build(pane, index) {
  const root = make("section", "pane");
  const head = make("h2", "", pane.name === story.title ? "" : pane.name);
  const badge = make("span", "badge");
  head.append(badge);
  const now = make("div", "now");
  now.setAttribute("aria-live", "polite");
  const ending = make("div", "ending" + (pane.ending.good ? "" : " lost"));
  ending.append(make("p", "", pane.ending.text));
  if (pane.ending.why.length) {
    const list = make("ul");
    for (const why of pane.ending.why) list.append(make("li", "", why));
    ending.append(list);
  }
  if (pane.ending.pages.length) {
    const rows = pane.ending.pages.map(([page, right, found, good]) => [["page " + page, right, found], good ? "" : "wrong"]);
    ending.append(tableOf(["", "must be there", "is there"], rows));
  }
  const flash = make("div", "flash");
  const cells = [];
  const blocks = [];
  for (let plane = 0; plane < planes; plane++) {
    const row = make("div", "plane");
    row.append(make("span", "", "plane " + plane));
    const grid = make("div", "blocks");
    grid.style.maxWidth = perPlane * 4.4 + "rem";
    for (let b = plane * perPlane; b < (plane + 1) * perPlane; b++) {
      const block = make("div", "block");
      const label = make("span");
      block.append(label);
      blocks.push({ block, label });
      for (let p = 0; p < perBlock; p++) {
        const cell = make("button", "cell blank");
        const number = b * perBlock + p;
        cell.dataset.page = number;
        cell.tabIndex = -1;
        cell.addEventListener("click", () => {
          views[index].selected = number;
          show();
        });
        cells.push(cell);
        block.append(cell);
      }
      grid.append(block);
    }
    row.append(grid);
    flash.append(row);
  }
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("aria-hidden", "true");
  flash.append(svg);
  const legend = make("div", "legend");
  const side = make("div", "side");
  root.append(head, now, ending, flash, legend, side);
  return { root, badge, now, ending, cells, blocks, flash, svg, legend, side, selected: null };
}

function tableOf(columns, rows) {
  const wide = make("div", "wide");
  const table = make("table");
  const head = make("tr");
  for (const column of columns) head.append(make("th", "", column));
  table.append(make("thead"), make("tbody"));
  table.tHead.append(head);
  for (const [cells, name] of rows) {
    const row = make("tr", name);
    for (const cell of cells) row.append(typeof cell === "string" ? make("td", "", cell) : cell);
    table.tBodies[0].append(row);
  }
  wide.append(table);
  return wide;
}

function box(title, content) {
  const element = make("div", "box");
  element.append(make("h3", "", title), content);
  return element;
}

function where(page) {
  return `p${page} (block ${Math.floor(page / perBlock)}, page ${page % perBlock})`;
}

function inspector(state, page) {
  const it = state.pages[page];
  if (!it) return box(where(page), make("p", "none", "blank"));
  const rows = it.spare.map(([name, value]) => {
    const meaning = make("td");
    meaning.append(make("small", "", story.meanings[name] || ""));
    return [[name, value, meaning], ""];
  });
  const content = make("div");
  content.append(rows.length ? tableOf(["field", "says", ""], rows) : make("p", "none", "It cannot be read."));
  if (it.data && it.data.length) {
    const list = make("ul");
    for (const line of it.data) list.append(make("li", "none", line));
    content.append(make("p", "none", "its data:"), list);
  }
  return box("spare area of " + where(page) + (it.owner ? ", written by " + it.owner : ""), content);
}

function lane(step) {
  if (step.lane.plane !== undefined) return "plane " + step.lane.plane;
  return { host: "client", wait: "device", power: "power", restart: "restart" }[step.lane] || "";
}

function drawLinks(view, state, from) {
  const { svg, cells, flash } = view;
  svg.textContent = "";
  const frame = flash.getBoundingClientRect();
  if (!frame.width) return;
  const id = "arrow" + views.indexOf(view);
  const space = "http://www.w3.org/2000/svg";
  const defs = document.createElementNS(space, "defs");
  defs.innerHTML = `<marker id="${id}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto"><path d="M0 0L8 4L0 8z"/></marker>`;
  svg.append(defs);
  const centre = (page) => {
    const box = cells[page].getBoundingClientRect();
    return [box.left + box.width / 2 - frame.left, box.top + box.height / 2 - frame.top];
  };
  for (const page of from) {
    if (!state.pages[page]) continue;
    for (const to of linksOf(state, state.pages[page])) {
      const [x, y] = centre(page);
      const [u, v] = centre(to);
      const path = document.createElementNS(space, "path");
      const bend = Math.min(30, 8 + Math.hypot(u - x, v - y) / 5);
      const loop = page === to ? `C${x + 24} ${y - 22} ${x + 24} ${y + 22} ${x + 4} ${y + 4}` : `Q${(x + u) / 2} ${(y + v) / 2 - bend} ${u} ${v}`;
      path.setAttribute("d", `M${x} ${y}${loop}`);
      path.setAttribute("marker-end", `url(#${id})`);
      svg.append(path);
    }
  }
}

function showPane(pane, view, index) {
  const upTo = stepAt[index][at];
  const step = pane.steps[upTo];
  const state = stateOf(pane, upTo);
  const isEnd = at === positions.length - 1;
  const { now } = view;
  now.className = "now " + (typeof step.lane === "string" ? step.lane : "plane");
  now.textContent = "";
  const time = step.at === null ? "" : ` · ${step.at.toLocaleString("en")} µs`;
  now.append(make("p", "lane", lane(step) + time), make("p", "", step.text));
  if (step.more && step.more.length) {
    const list = make("ul");
    for (const line of step.more) list.append(make("li", "", line));
    now.append(list);
  }
  view.ending.hidden = !isEnd;
  view.badge.textContent = isEnd ? (pane.ending.good ? "holds" : "loses data") : "";
  view.badge.className = "badge " + (pane.ending.good ? "good" : "bad");

  const tables = state.tables;
  const live = new Set(tables ? tables.live : []);
  const on = new Set(step.pages || []);
  if (view.lastStep !== upTo) {
    view.lastStep = upTo;
    if (step.pages && step.pages.length && (step.changes || step.ruled)) view.selected = step.pages[0];
  }
  view.cells.forEach((cell, page) => {
    const it = state.pages[page];
    let name = "cell";
    let text = "";
    cell.style.background = "";
    if (!it) name += " blank";
    else {
      const isVersion = it.kind === "data" || it.kind === "trim";
      name += " " + (isVersion || it.kind === "torn" ? it.kind : "meta");
      const own = colour(it.owner);
      // Texts and tables name transactions from before the example as well.
      text = it.label + (it.owner ? "·" + it.owner : "");
      // In front, since a narrow cell has no room for the end.
      if (it.flag) text = (it.flag === "TRUE" ? "✓" : it.flag === "FALSE" ? "✗" : "?") + text;
      if (own) {
        name += " own";
        cell.style.background = own;
      }
      if (isVersion && tables && !live.has(page) && !state.fresh.has(page)) name += " dead";
    }
    if (state.ruled.has(page) && it && colour(it.owner)) name += state.ruled.get(page) ? " counts" : " not";
    if (on.has(page)) name += step.changes || step.ruled ? " on" : " seen";
    else if (view.selected === page) name += " seen";
    cell.className = name;
    // A name that is cut off would be that of another transaction.
    cell.style.fontSize = text.length > 5 ? `calc(.62rem * 5.5 / ${text.length})` : "";
    cell.textContent = text;
    cell.title = where(page) + (it ? `: ${it.kind} ${it.label}${it.owner ? " of " + it.owner : ""}` : ": blank");
    cell.setAttribute("aria-label", cell.title);
  });
  view.blocks.forEach(({ block, label }, b) => {
    const word = tables ? tables.blocks[b] : "";
    const erased = (step.changes || []).some((change) => change.erase === b) ? " victim" : "";
    block.className = "block " + word + erased;
    label.textContent = b;
    block.title = `block ${b}: ${blockWords[word] || word}`;
  });
  view.legend.textContent = "";
  const there = new Set(state.pages.filter(Boolean).map((page) => page.owner));
  for (const owner of owners.filter((owner) => there.has(owner))) {
    const entry = make("span", "", owner);
    const sample = make("i");
    sample.style.background = colour(owner);
    entry.prepend(sample);
    view.legend.append(entry);
  }
  if (state.pages.some((page) => page && page.owner && !owners.includes(page.owner))) {
    const entry = make("span", "", "others");
    const sample = make("i");
    sample.style.background = "var(--old)";
    entry.prepend(sample);
    view.legend.append(entry);
  }
  const states = new Set(tables ? tables.blocks : []);
  for (const word of ["meta", "open", "zone", "waits"].filter((word) => states.has(word))) {
    const entry = make("span", "", blockWords[word]);
    entry.prepend(make("i", "block " + word));
    view.legend.append(entry);
  }
  view.side.textContent = "";
  if (view.selected !== null) view.side.append(inspector(state, view.selected));
  if (tables) {
    if (tables.mapping.length) {
      const rows = tables.mapping.map(([lpn, to]) => {
        const it = state.pages[to];
        return [["page " + lpn, "p" + to, (it && it.owner) || ""], on.has(to) ? "on" : ""];
      });
      view.side.append(box("mapping table", tableOf(["logical", "physical", "written by"], rows)));
    }
    for (const table of tables.own) {
      const content = table.rows.length ? tableOf(table.columns, table.rows.map((row) => [row, ""])) : make("p", "none", "empty");
      view.side.append(box(table.name, content));
    }
  }
  if (state.isOff) view.side.append(box("tables in memory", make("p", "none", "Gone with the power. The restart builds them from the flash.")));
  const pages = allLinks ? [...state.pages.keys()].filter((page) => state.pages[page] && colour(state.pages[page].owner)) : [];
  if (view.selected !== null) pages.push(view.selected);
  view.draw = () => drawLinks(view, state, new Set(pages));
  view.draw();
  return step;
}

function show() {
  get("scrub").value = at;
  get("count").textContent = `step ${at + 1} of ${positions.length}`;
  get("first").disabled = get("back").disabled = at === 0;
  get("last").disabled = get("next").disabled = at === positions.length - 1;
  const rows = new Set();
  story.panes.forEach((pane, index) => {
    const step = showPane(pane, views[index], index);
    if (step.ruled) rows.add(step.ruled[0]);
  });
  for (const row of get("recovery").querySelectorAll("tbody tr")) row.className = rows.has(row.dataset.row) ? "on" : "";
  const items = get("list").querySelectorAll("li");
  items.forEach((item, i) => item.classList.toggle("on", i === stepAt[chosen][at]));
  history.replaceState(null, "", "#step=" + (at + 1));
}

function go(to) {
  at = Math.max(0, Math.min(positions.length - 1, to));
  show();
}

function pause() {
  clearInterval(timer);
  timer = null;
  get("play").textContent = "▶ play";
  get("play").setAttribute("aria-label", "play");
}

function play() {
  if (timer) return pause();
  if (at === positions.length - 1) go(0);
  get("play").textContent = "❚❚ pause";
  get("play").setAttribute("aria-label", "pause");
  timer = setInterval(() => {
    if (at >= positions.length - 1) return pause();
    go(at + 1);
  }, 900);
}

function choose(index) {
  if (index >= story.panes.length) return;
  chosen = index;
  views.forEach((view, i) => view.root.classList.toggle("chosen", i === index));
  [...get("tabs").children].forEach((tab, i) => tab.setAttribute("aria-pressed", i === index));
  const list = get("list").querySelector("ol");
  list.textContent = "";
  story.panes[index].steps.forEach((step, i) => {
    const item = make("li", "", step.text);
    item.addEventListener("click", () => go(stepAt[index].indexOf(i)));
    list.append(item);
  });
  show();
}

story.panes.forEach((pane, index) => {
  views.push(build(pane, index));
  get("panes").append(views[index].root);
  const tab = make("button", "", pane.name);
  tab.addEventListener("click", () => choose(index));
  get("tabs").append(tab);
});
get("panes").style.setProperty("--panes", story.panes.length);
get("panes").classList.toggle("two", story.panes.length > 1);
get("tabs").hidden = story.panes.length < 2;
for (const { code, facts, verdict } of story.recovery) {
  const row = make("tr");
  row.dataset.row = code;
  for (const text of [code, facts, verdict]) row.append(make("td", "", text));
  get("recovery").querySelector("tbody").append(row);
}
get("recovery").hidden = !story.recovery.length;
// Where the power fails, and where the restart decides.
const landmarks = [["the power fails", (step) => step.lane === "power" && step.text.startsWith("The power fails")],
  ["the restart decides", (step) => step.lane === "restart"]];
for (const [name, is] of landmarks) {
  const index = story.panes[0].steps.findLastIndex ? story.panes[0].steps.findIndex(is) : -1;
  if (index < 0) continue;
  const button = make("button", "", name);
  button.addEventListener("click", () => go(stepAt[0].indexOf(index)));
  get("parts").append(button);
}
if (story.panes.some((pane) => pane.steps.some((step) => (step.changes || []).some((change) =>
    Object.values(change.pages || {}).some((page) => page.next || (page.links || []).length))))) {
  const button = make("button", "", "all links");
  button.id = "links";
  button.setAttribute("aria-pressed", "false");
  button.addEventListener("click", () => {
    allLinks = !allLinks;
    button.setAttribute("aria-pressed", allLinks);
    show();
  });
  get("parts").append(button);
}
const scrub = get("scrub");
scrub.max = positions.length - 1;
scrub.addEventListener("input", () => { pause(); go(+scrub.value); });
get("first").addEventListener("click", () => { pause(); go(0); });
get("back").addEventListener("click", () => { pause(); go(at - 1); });
get("next").addEventListener("click", () => { pause(); go(at + 1); });
get("last").addEventListener("click", () => { pause(); go(positions.length - 1); });
get("play").addEventListener("click", play);
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const keys = {
    ArrowLeft: () => { pause(); go(at - 1); },
    ArrowRight: () => { pause(); go(at + 1); },
    Home: () => { pause(); go(0); },
    End: () => { pause(); go(positions.length - 1); },
    " ": play,
    1: () => choose(0),
    2: () => choose(1),
    l: () => get("links") && get("links").click(),
  };
  const act = keys[event.key];
  // A button takes the space bar itself, and a summary as well.
  if (!act || (event.key === " " && event.target.closest("button, summary"))) return;
  event.preventDefault();
  act();
});
addEventListener("resize", () => views.forEach((view) => view.draw && view.draw()));
function fromAddress() {
  const asked = /^#step=(\d+)$/.exec(location.hash);
  if (asked) at = Math.max(0, Math.min(positions.length - 1, asked[1] - 1));
}
addEventListener("hashchange", () => { fromAddress(); show(); });
fromAddress();
choose(0);
