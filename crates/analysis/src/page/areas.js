// A treemap of named rows: [name, bytes] of each, with a colour for each place in the list.
const SVG = "http://www.w3.org/2000/svg", COLOURS = ["orange", "blue", "green", "violet", "red"];
const map = part("areas"), WIDTH = 1000, HEIGHT = 420;

function shape(tag, attributes, parent) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  parent.append(made);
  return made;
}

const rows = JSON.parse(part("data").textContent).rows
  .map(([name, size], at) => ({ size, text: `${name} ${bytes(size)}`, colour: COLOURS[at % COLOURS.length] }))
  .filter((row) => row.size > 0).sort((one, other) => other.size - one.size);
squares(rows, 0, 0, WIDTH, HEIGHT, ({ text, colour }, x, y, width, height) => {
  const box = shape("rect", { x, y, width, height, class: colour }, map);
  shape("title", {}, box).textContent = text;
  if (width > text.length * 8 && height > 18) shape("text", { x: x + 6, y: y + 16 }, map).textContent = text;
});
