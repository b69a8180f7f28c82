// Passes as they were heard, placed on the page's own clock: the stream tells how long ago each ended.

const KEPT_MS = 65000;
const MOST = 4000;
const CLOSE = 0.15; // within so much of the prediction a pass counts as predicted

export class Passes {
  constructor() {
    this.list = [];
    this.known = new Set();
  }

  add(rows, now) {
    for (const row of rows) {
      const name = `${row.node} ${row.id} ${row.measured_ms}`;
      if (this.known.has(name)) continue;
      this.known.add(name);
      this.list.push({ ...row, name, end: now - row.ago_s * 1000 });
    }
    this.list.sort((one, other) => one.end - other.end);
    const first = this.list.findIndex((each) => each.end > now - KEPT_MS);
    const gone = Math.max(first < 0 ? this.list.length : first, this.list.length - MOST);
    for (const each of this.list.splice(0, gone)) this.known.delete(each.name);
  }

  of(node, most) {
    return this.list.filter((each) => each.node === node).slice(-most);
  }
}

export function verdict(pass) {
  const ratio = pass.measured_ms / Math.max(1e-9, pass.predicted_ms);
  return ratio > 1 + CLOSE ? "slow" : ratio < 1 - CLOSE ? "fast" : "true";
}
