// Nodes are lists: parent, name, own bytes, retained bytes, objects, family, address, path.
const data = JSON.parse(part("data").textContent);
const nodes = data.nodes, PARENT = 0, NAME = 1, OWN = 2, RETAINED = 3, OBJECTS = 4, FAMILY = 5, ADDRESS = 6, PATH = 7;
const FAMILIES = ["orange", "blue", "green", "violet", "red"], LISTED = 300, HEAD = 16;
const LEGEND = ["objects", "arrays, hashes", "strings", "classes, code", "data of C, others"];
const below = nodes.map(() => []);
for (let at = 1; at < nodes.length; at++) below[nodes[at][PARENT]].push(at);
const state = { focus: 0, chosen: -1, hits: null };
const canvas = part("map"), pen = canvas.getContext("2d");
let boxes = [];

const commas = (number) => number.toLocaleString("en-US");
const share = (number) => data.bytes ? (number * 100 / data.bytes).toFixed(1) + "%" : "0%";
const nameOf = (node) => node ? data.texts[nodes[node][NAME]] : "all that roots hold";

// What a node retains: its larger children, its own bytes, and the rest.
function shares(node, area) {
  const retained = nodes[node][RETAINED], least = retained * 12 / Math.max(area, 1), list = [];
  let rest = retained - nodes[node][OWN];
  for (const child of below[node]) {
    if (nodes[child][RETAINED] < least || nodes[child][RETAINED] <= 0) break;
    list.push({ node: child, size: nodes[child][RETAINED] });
    rest -= nodes[child][RETAINED];
  }
  if (nodes[node][OWN] > least) list.push({ node: -1, size: nodes[node][OWN], name: "itself" });
  if (rest > least) list.push({ node: -1, size: rest, name: "smaller ones" });
  return list.sort((a, b) => b.size - a.size);
}

function layout(width, height) {
  boxes = [];
  const inside = (node, left, top, wide, high, depth) => {
    squares(shares(node, wide * high), left, top, wide, high, (item, x, y, w, h) => {
      boxes.push({ ...item, x, y, w, h, depth });
      if (item.node >= 0 && depth < 3 && w > 40 && h > HEAD + 14) {
        inside(item.node, x + 2, y + HEAD, w - 4, h - HEAD - 2, depth + 1);
      }
    });
  };
  inside(state.focus, 0, 0, width, height, 0);
}

function draw() {
  const width = canvas.clientWidth, height = canvas.clientHeight, scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  layout(width, height);
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue("--" + name).trim();
  const colours = FAMILIES.map(colour), rest = colour("rest"), ink = colour("ink"), line = colour("bg");
  const hit = colour("hit"), fg = colour("fg");
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  for (const box of boxes) {
    const own = box.node >= 0, matched = own && state.hits && state.hits.has(box.node);
    pen.fillStyle = matched ? hit : own ? colours[nodes[box.node][FAMILY]] : rest;
    pen.fillRect(box.x, box.y, box.w, box.h);
    pen.strokeStyle = line;
    pen.strokeRect(box.x + 0.5, box.y + 0.5, Math.max(box.w - 1, 0), Math.max(box.h - 1, 0));
    if (box.w > 36 && box.h > 12) {
      pen.save();
      pen.beginPath();
      pen.rect(box.x + 3, box.y, box.w - 6, box.h);
      pen.clip();
      pen.fillStyle = own ? ink : fg;
      const name = own ? nameOf(box.node) : box.name;
      pen.fillText(`${name.slice(0, 200)}  ${bytes(box.size)}`, box.x + 4, box.y + Math.min(box.h / 2, HEAD / 2 + 1));
      pen.restore();
    }
  }
  const chosen = boxes.find((box) => box.node >= 0 && box.node === state.chosen);
  if (chosen) {
    pen.strokeStyle = fg;
    pen.lineWidth = 2;
    pen.strokeRect(chosen.x + 1, chosen.y + 1, Math.max(chosen.w - 2, 0), Math.max(chosen.h - 2, 0));
    pen.lineWidth = 1;
  }
}

function described(node) {
  const [, , own, retained, objects, , address, path] = nodes[node];
  if (!node) return `all that roots hold\n${bytes(retained)} in ${commas(objects)} objects`;
  return `${nameOf(node)} at ${address}\nretains ${bytes(retained)}, ${share(retained)} of the heap, in ` +
    `${commas(objects)} objects; ${bytes(own)} of its own` + (path >= 0 ? `\nheld by ${data.texts[path]}` : "");
}

function row(body, cells, name, act) {
  const line = element("tr", "", body);
  for (const cell of cells) element("td", cell, line);
  const cell = element("td", "", line);
  if (!act) { cell.textContent = name; return; }
  element("button", name, cell).addEventListener("click", act);
}

function lists() {
  const listed = state.hits ? [...state.hits].sort((a, b) => nodes[b][RETAINED] - nodes[a][RETAINED]) : below[state.focus];
  part("heading").textContent = state.hits
    ? `${commas(listed.length)} of the ${commas(nodes.length - 1)} objects on this page fit`
    : `What ${nameOf(state.focus)} retains`;
  const body = part("inside");
  body.replaceChildren();
  for (const node of listed.slice(0, LISTED)) {
    const [, , own, retained, objects, , address, path] = nodes[node];
    const way = state.hits && path >= 0 ? ` ← ${data.texts[path]}` : "";
    row(body, [bytes(retained), share(retained), bytes(own), commas(objects)],
      `${nameOf(node)} ${address}${way}`.slice(0, 2000), () => focus(node));
  }
  const shown = listed.slice(0, LISTED).reduce((sum, node) => sum + nodes[node][RETAINED], 0);
  const rest = nodes[state.focus][RETAINED] - nodes[state.focus][OWN] - shown;
  if (!state.hits && rest > 0) row(body, [bytes(rest), share(rest), "", ""], "smaller ones, which are not on this page or in this list");
  const crumbs = part("crumbs"), way = [];
  for (let node = state.focus; ; node = nodes[node][PARENT]) { way.unshift(node); if (!node) break; }
  crumbs.replaceChildren();
  const some = way.length > 40 ? [...way.slice(0, 10), -1, ...way.slice(-29)] : way;
  for (const node of some) {
    const item = element("li", node < 0 ? "…" : "", crumbs);
    if (node >= 0) element("button", nameOf(node).slice(0, 200), item).addEventListener("click", () => focus(node));
  }
}

function classes() {
  const body = part("classes"), wanted = part("search").value.toLowerCase();
  body.replaceChildren();
  for (const [name, objects, own, retained] of data.classes.filter(([name]) => name.toLowerCase().includes(wanted)).slice(0, LISTED)) {
    row(body, [bytes(retained), share(retained), bytes(own), commas(objects)], name, () => {
      part("search").value = name;
      search();
    });
  }
}

function choose(node) {
  state.chosen = node;
  part("details").textContent = described(node >= 0 ? node : state.focus);
  draw();
}

function focus(node) {
  state.focus = node;
  state.chosen = -1;
  part("details").textContent = described(node);
  draw();
  lists();
}

function search() {
  const wanted = part("search").value.toLowerCase();
  state.hits = null;
  if (wanted) {
    const fits = data.texts.map((text) => text.toLowerCase().includes(wanted));
    state.hits = new Set();
    for (let node = 1; node < nodes.length; node++) {
      const [, name, , , , , address, path] = nodes[node];
      if (fits[name] || (path >= 0 && fits[path]) || address === wanted) state.hits.add(node);
    }
  }
  draw();
  lists();
  classes();
}

function reset() {
  part("search").value = "";
  state.focus = 0;
  search();
  choose(-1);
}

// The innermost box there.
function at(event) {
  const frame = canvas.getBoundingClientRect(), x = event.clientX - frame.left, y = event.clientY - frame.top;
  const found = boxes.filter((box) => x >= box.x && x < box.x + box.w && y >= box.y && y < box.y + box.h);
  return found.filter((box) => box.node >= 0).pop();
}

canvas.addEventListener("mousemove", (event) => {
  const box = at(event);
  if (box && box.node !== state.chosen) choose(box.node);
});
canvas.addEventListener("click", (event) => {
  const box = at(event);
  if (box) focus(box.node);
});
part("search").addEventListener("input", search);
part("reset").addEventListener("click", reset);
part("help").addEventListener("click", () => part("keys").showModal());
window.addEventListener("resize", draw);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
window.addEventListener("keydown", (event) => {
  if (part("keys").open || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") { reset(); canvas.focus(); return; }
  if (event.target === part("search")) return;
  if (event.key === "/") { event.preventDefault(); part("search").focus(); return; }
  if (event.key === "?") { part("keys").showModal(); return; }
  if (event.target !== canvas) return;
  const beside = boxes.filter((box) => box.depth === 0 && box.node >= 0).map((box) => box.node);
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (step && beside.length) {
    const here = beside.indexOf(state.chosen);
    choose(beside[here < 0 ? 0 : (here + step + beside.length) % beside.length]);
  } else if ((event.key === "Enter" || event.key === "ArrowDown") && state.chosen > 0) focus(state.chosen);
  else if (event.key === "ArrowUp") focus(nodes[state.focus][PARENT]);
  else return;
  event.preventDefault();
});

part("sentence").textContent = data.sentence;
for (const note of data.notes) element("li", note, part("notes"));
FAMILIES.forEach((family, index) => { element("span", LEGEND[index], part("legend")).className = family; });
reset();
window.memintro = { state, nodes, data, nameOf, boxes: () => boxes };
