"use strict";
// What all pages use. Names are only ever set as text.
const part = (id) => document.getElementById(id);

function element(tag, text, parent) {
  const made = document.createElement(tag);
  made.textContent = text;
  parent.append(made);
  return made;
}

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let power = 0;
  while (power < 5 && Math.abs(count) >= 1024 ** power * (power ? 1023.95 : 1024)) power++;
  return (power ? (count / 1024 ** power).toFixed(1) : count) + " " + units[power];
}

// A squarified treemap: each row of boxes gets as near to squares as it can. Items have a size; the largest come first.
function squares(list, left, top, width, height, place) {
  let total = list.reduce((sum, item) => sum + item.size, 0), at = 0;
  while (at < list.length && width > 0 && height > 0 && total > 0) {
    const side = Math.min(width, height), scale = width * height / total;
    let row = 0, end = at, worst = Infinity;
    while (end < list.length) {
      const sum = row + list[end].size, thick = sum * scale / side;
      const least = list[end].size * scale / thick, most = list[at].size * scale / thick;
      const bad = Math.max(most / thick, thick / Math.max(least, 1e-9));
      if (bad > worst) break;
      worst = bad;
      row = sum;
      end++;
    }
    const thick = row * scale / side;
    let along = 0;
    for (; at < end; at++) {
      const long = list[at].size * scale / thick;
      if (width >= height) place(list[at], left, top + along, thick, long);
      else place(list[at], left + along, top, long, thick);
      along += long;
    }
    if (width >= height) { left += thick; width -= thick; } else { top += thick; height -= thick; }
    total -= row;
  }
}
