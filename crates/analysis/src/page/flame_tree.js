// The tree of stacks and its figures, without anything that is seen.
class Graph {
  constructor(data) {
    this.data = data;
    const size = data.depth.length + 1;
    this.size = size;
    // Node 0 is the root of all; node n + 1 is the n-th of the data.
    this.parent = new Int32Array(size).fill(-1);
    this.frame = new Int32Array(size).fill(-1);
    this.end = new Int32Array(size).fill(size);
    const open = [0];
    for (let n = 1; n < size; n++) {
      const depth = data.depth[n - 1];
      while (open.length > depth + 1) this.end[open.pop()] = n;
      this.parent[n] = open[depth];
      this.frame[n] = data.frame[n - 1];
      open.push(n);
    }
    this.sorted = new Map();
    this.names = data.frames.map(([path, line, label]) => {
      const name = data.paths[path][1] + (line ? ":" + line : "");
      return label ? `${label} (${name})` : name;
    });
    this.places = data.frames.map(([path, line]) => data.paths[path][1] + (line ? ":" + line : ""));
    this.whole = data.frames.map(([path, line, label]) =>
      (label ? label + " " : "") + data.paths[path][0] + (line ? ":" + line : ""));
    this.searched = this.whole.map((text, i) => (text + "\n" + this.names[i]).toLowerCase());
  }

  // Sums of one view ("live", "allocated", "growth") of one source ("malloc", "objects", "both"). Only what is more
  // than nothing is drawn; `shrank` has the rest.
  show(view, source) {
    const column = { live: 0, allocated: 1, growth: 2 }[view];
    const columns = { malloc: [column], objects: [column + 3], both: [column, column + 3] }[source];
    const self = this.self = new Float64Array(this.size);
    const total = this.total = new Float64Array(this.size);
    const spread = this.spread = new Float64Array(this.size);
    const guesses = columns.filter((each) => each < 3 ? this.data.estimated : this.data.sampled);
    const variances = this.data.variances ? guesses.map((each) => this.data.variances[each]) : [];
    this.guessed = guesses.length > 0;
    this.net = this.shrank = this.shrunk = 0;
    this.sorted.clear();
    let node = 1;
    this.data.at.forEach((step, row) => {
      node += step;
      let bytes = 0;
      for (const each of columns) bytes += this.data.figures[each][row];
      this.net += bytes;
      if (bytes < 0) { this.shrank -= bytes; this.shrunk++; return; }
      self[node] += bytes;
      total[node] += bytes;
      for (const each of variances) spread[node] += each[row];
    });
    for (let n = this.size - 1; n > 0; n--) {
      total[this.parent[n]] += total[n];
      spread[this.parent[n]] += spread[n];
    }
  }

  // Children that have bytes, heaviest first.
  below(node) {
    let found = this.sorted.get(node);
    if (found) return found;
    found = [];
    for (let n = node + 1; n < this.end[node]; n = this.end[n]) if (this.total[n] > 0) found.push(n);
    found.sort((a, b) => this.total[b] - this.total[a] || a - b);
    this.sorted.set(node, found);
    return found;
  }

  above(node) {
    const found = [];
    for (let n = node; n > 0; n = this.parent[n]) found.unshift(n);
    return found;
  }

  // The deepest frame that still has half of the bytes; else the heaviest.
  main() {
    let node = 0, next = this.below(0)[0];
    while (next && (node === 0 || this.total[next] * 2 >= this.total[0])) {
      node = next;
      if (this.total[node] * 2 < this.total[0]) break;
      next = this.below(node)[0];
    }
    return node;
  }

  // Bytes of each line: at it, and through it. A line that is in a stack twice counts once.
  lines(focus) {
    const at = new Map(), through = new Map(), path = [], open = new Map();
    for (let n = focus; n < this.end[focus]; n++) {
      while (path.length && this.end[path[path.length - 1]] <= n) {
        const frame = this.frame[path.pop()];
        open.set(frame, open.get(frame) - 1);
      }
      const frame = this.frame[n];
      if (frame < 0) continue;
      if (this.self[n]) at.set(frame, (at.get(frame) || 0) + this.self[n]);
      if (!open.get(frame)) through.set(frame, (through.get(frame) || 0) + this.total[n]);
      open.set(frame, (open.get(frame) || 0) + 1);
      path.push(n);
    }
    return [...through].filter(([, bytes]) => bytes > 0)
      .map(([frame, bytes]) => ({ frame, at: at.get(frame) || 0, through: bytes }))
      .sort((a, b) => b.at - a.at || b.through - a.through || a.frame - b.frame);
  }

  // Frames whose text has all of what is searched, and the bytes through any of them.
  matches(text) {
    const wanted = text.toLowerCase(), frames = new Set();
    this.searched.forEach((name, frame) => { if (name.includes(wanted)) frames.add(frame); });
    return { frames, ...this.through(frames) };
  }

  through(frames) {
    let bytes = 0, spread = 0;
    for (let n = 1; n < this.size;) {
      if (!frames.has(this.frame[n])) { n++; continue; }
      bytes += this.total[n];
      spread += this.spread[n];
      n = this.end[n];
    }
    return { bytes, spread };
  }

  share(bytes) {
    return this.total[0] > 0 ? (100 * bytes / this.total[0]).toFixed(1) + "%" : "-";
  }

  // With its standard error, as if one more block had been sampled than was.
  bytes(count, spread = null, form = bytes) {
    if (!this.guessed) return form(count);
    if (spread === null) return "~" + form(count);
    return `~${form(count)} ±${form(Math.ceil(Math.sqrt(spread + this.data.per_sample ** 2)))}`;
  }

  static exact(count) {
    return `${String(count).replace(/\B(?=(\d{3})+$)/g, ",")} B`;
  }
}
