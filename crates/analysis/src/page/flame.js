// What is seen: drawing, mouse and keys.
const graph = new Graph(JSON.parse(part("data").textContent));
const canvas = part("graph"), pen = canvas.getContext("2d");
const ROW = 20, TABLE = 30, FAMILIES = ["orange", "blue", "green", "violet"];
const state = { view: "live", source: graph.data.objects ? "both" : "malloc", focus: 0, chosen: 0, hits: null };
let boxes = [];

function nameOf(node) { return node ? graph.names[graph.frame[node]] : "all"; }

function described(node) {
  const whole = node ? graph.whole[graph.frame[node]] : "all stacks";
  const short = whole.length > 400 ? "…" + whole.slice(-400) : whole;
  const own = graph.self[node] ? `, ${graph.bytes(graph.self[node], null, Graph.exact)} of it here` : "";
  return `${short}\n${graph.bytes(graph.total[node], graph.spread[node], Graph.exact)}, ` +
    `${graph.share(graph.total[node])}${own}`;
}

// Frames in reach of the eye: children that are narrower than a pixel share one box.
function layout(width) {
  boxes = [];
  const left = [[state.focus, 0, width, 0]];
  while (left.length) {
    const [node, from, wide, depth] = left.pop();
    boxes.push({ node, from, wide, depth });
    const bytes = graph.total[node];
    if (bytes <= 0) continue;
    let at = from, rest = 0;
    for (const child of graph.below(node)) {
      const share = wide * graph.total[child] / bytes;
      if (share < 1) { rest += share; continue; }
      left.push([child, at, share, depth + 1]);
      at += share;
    }
    if (rest >= 1) boxes.push({ node: -1, from: at, wide: rest, depth: depth + 1 });
  }
}

function draw() {
  const width = canvas.clientWidth, scale = window.devicePixelRatio || 1;
  layout(width);
  const height = ROW * (1 + boxes.reduce((most, box) => Math.max(most, box.depth), 0));
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.height = height + "px";
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue("--" + name).trim();
  const colours = FAMILIES.map(colour), rest = colour("rest"), hit = colour("hit"), ink = colour("ink"), fg = colour("fg");
  for (const { node, from, wide, depth } of boxes) {
    const frame = node > 0 ? graph.frame[node] : -1, top = depth * ROW;
    const matched = state.hits && frame >= 0 && state.hits.has(frame);
    pen.globalAlpha = state.hits && !matched ? 0.45 : 1;
    pen.fillStyle = matched ? hit : frame < 0 ? rest : colours[graph.data.paths[graph.data.frames[frame][0]][2]];
    pen.fillRect(from, top, Math.max(wide - 0.6, 0.4), ROW - 1);
    pen.globalAlpha = 1;
    if (wide > 34 && node >= 0) {
      pen.fillStyle = matched ? "#fff" : frame < 0 ? fg : ink;
      pen.fillText(fitted(nameOf(node), wide - 8), from + 4, top + ROW / 2);
    }
    if (node === state.chosen) {
      pen.strokeStyle = fg;
      pen.lineWidth = 2;
      pen.strokeRect(from + 1, top + 1, Math.max(wide - 3, 1), ROW - 3);
    }
  }
}

// The end of a path says more than its beginning.
function fitted(text, width) {
  let room = Math.floor(width / 6.4);
  if (text.length <= room * 0.7) return text;
  if (pen.measureText(text.slice(-400)).width <= width && text.length <= 400) return text;
  while (room > 1 && pen.measureText("…" + text.slice(-room)).width > width) room--;
  return "…" + text.slice(-room);
}

function sentence() {
  const what = { live: "live", allocated: "allocated", growth: "grown" }[state.view];
  const where = { malloc: "", objects: " in objects' slots", both: ", malloc and objects" }[state.source];
  const main = graph.main();
  if (!graph.total[0]) return `Nothing ${what}${where}.`;
  const through = graph.end[main] > main + 1 ? "through" : "at";
  return `${graph.bytes(graph.total[0], graph.spread[0])} ${what}${where}; ` +
    `${Math.round(100 * graph.total[main] / graph.total[0])}% ${through} ${graph.places[graph.frame[main]].slice(-200)}`;
}

function notes() {
  part("notes").replaceChildren();
  if (graph.shrunk) {
    element("li", `${graph.shrunk} ${graph.shrunk === 1 ? "stack" : "stacks"} shrank by ` +
      `${graph.bytes(graph.shrank)}, which is not drawn; net ${graph.bytes(graph.net)}.`, part("notes"));
  }
  for (const note of graph.data.notes) element("li", note, part("notes"));
}

function table() {
  const body = part("lines"), lines = graph.lines(state.focus);
  body.replaceChildren();
  for (const { frame, at, through } of lines.slice(0, TABLE)) {
    const row = element("tr", "", body);
    for (const text of [graph.bytes(at), graph.share(at), graph.bytes(through)]) element("td", text, row);
    const button = element("button", graph.names[frame].slice(-300), element("td", "", row));
    button.type = "button";
    button.addEventListener("click", () => found(new Set([frame])));
  }
  part("heading").textContent = lines.length > TABLE ? `Heaviest ${TABLE} of ${lines.length} lines` : "Heaviest lines";
}

function crumbs() {
  part("crumbs").replaceChildren();
  for (const node of state.focus ? [0, ...graph.above(state.focus)] : []) {
    const button = element("button", nameOf(node).slice(-120), element("li", "", part("crumbs")));
    button.type = "button";
    button.addEventListener("click", () => zoom(node));
  }
}

function choose(node) {
  state.chosen = node;
  part("details").textContent = described(node);
  draw();
}

function zoom(node) {
  state.focus = node;
  crumbs();
  table();
  choose(node);
}

function found(frames) {
  state.hits = frames;
  draw();
  if (!frames) return choose(state.chosen);
  const { bytes, spread } = graph.through(frames);
  part("details").textContent = `${frames.size} ${frames.size === 1 ? "frame" : "frames"} found: ` +
    `${graph.bytes(bytes, spread)}, ${graph.share(bytes)} through them`;
}

function search(text) { found(text ? graph.matches(text).frames : null); }

function show() {
  graph.show(state.view, state.source);
  if (!graph.total[state.focus]) state.focus = 0;
  part("sentence").textContent = sentence();
  notes();
  zoom(state.focus);
  if (state.hits) found(state.hits);
}

function reset() {
  part("search").value = "";
  state.hits = null;
  zoom(0);
}

function boxAt(event) {
  const area = canvas.getBoundingClientRect();
  const x = event.clientX - area.left, depth = Math.floor((event.clientY - area.top) / ROW);
  return boxes.find((box) => box.depth === depth && x >= box.from && x < box.from + box.wide);
}

function beside(step) {
  if (state.chosen === state.focus) return;
  const row = graph.below(graph.parent[state.chosen]);
  const next = row[row.indexOf(state.chosen) + step];
  if (next) choose(next);
}

const KEYS = {
  ArrowLeft: () => beside(-1),
  ArrowRight: () => beside(1),
  ArrowDown: () => { const next = graph.below(state.chosen)[0]; if (next) choose(next); },
  ArrowUp: () => {
    if (state.chosen !== state.focus) choose(graph.parent[state.chosen]);
    else if (state.focus) zoom(graph.parent[state.focus]);
  },
  Enter: () => zoom(state.chosen),
  Escape: reset,
  "/": () => part("search").focus(),
  "?": () => part("keys").showModal(),
};

document.addEventListener("keydown", (event) => {
  if (part("keys").open || event.ctrlKey || event.metaKey || event.altKey) return;
  const tag = event.target.tagName;
  if (event.key === "Escape" && tag === "INPUT") event.target.blur();
  else if (tag === "INPUT" || (tag === "BUTTON" && event.key === "Enter")) return;
  if (!Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key]();
});
canvas.addEventListener("click", (event) => { const box = boxAt(event); if (box && box.node >= 0) zoom(box.node); });
canvas.addEventListener("mousemove", (event) => {
  const box = boxAt(event), tip = part("tip");
  tip.hidden = !box;
  if (!box) return;
  tip.textContent = box.node < 0 ? "frames too narrow to draw; zoom in on their caller" : described(box.node);
  const x = Math.max(0, Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 4));
  const y = Math.max(0, Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 4));
  tip.style.transform = `translate(${x}px, ${y}px)`;
});
canvas.addEventListener("mouseleave", () => { part("tip").hidden = true; });
part("search").addEventListener("input", (event) => search(event.target.value.trim()));
part("reset").addEventListener("click", reset);
part("help").addEventListener("click", KEYS["?"]);
for (const input of document.querySelectorAll("input[type=radio]")) {
  input.disabled = input.name === "source" && input.value !== "malloc" && !graph.data.objects;
  if (input.disabled) input.parentElement.title = "objects were not tracked";
  input.checked = state[input.name] === input.value;
  input.addEventListener("change", () => { state[input.name] = input.value; show(); });
}
window.addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
show();
// For tests, and for whoever measures the page.
window.memintro = { graph, state, boxes: () => boxes, drawn: performance.now() };
