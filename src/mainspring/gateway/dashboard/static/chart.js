// Requests a second over the last three minutes: three lines told apart by color and by dash, a hair line that reads them.

import { h, s, mark, say } from "./dom.js";
import { figures, plural } from "./format.js";

const WINDOW_S = 180;
const MOST = 400;
const LINES = ["answered", "refused", "failed"];
const LEFT = 38;
const BOTTOM = 20;
const TOP = 8;

export class Throughput {
  constructor(parent) {
    this.parent = parent;
    this.points = [];
    this.svg = s("svg", { role: "img" });
    this.tip = h("div", { class: "tip", hidden: true });
    parent.append(this.svg, this.tip);
    this.said = 0;
    this.hover = null;
    parent.addEventListener("pointermove", (event) => this.point(event));
    parent.addEventListener("pointerleave", () => {
      this.hover = null;
      this.draw(performance.now());
    });
    new ResizeObserver(() => this.draw(performance.now())).observe(parent);
  }

  past(points, now) {
    this.points = points.map((each) => ({ ...each, at: now - each.ago_s * 1000 })).slice(-MOST);
    this.draw(now);
  }

  add(rates, now) {
    if (rates) this.points = [...this.points, { ...rates, at: now }].slice(-MOST);
    this.draw(now);
  }

  point(event) {
    this.hover = event.clientX - this.parent.getBoundingClientRect().left;
    this.draw(performance.now());
  }

  draw(now) {
    const width = this.parent.clientWidth;
    const height = this.parent.clientHeight;
    if (!width || !height) return;
    const seen = this.points.filter((each) => each.at >= now - WINDOW_S * 1000);
    const top = ceiling(Math.max(0.9, ...seen.flatMap((each) => LINES.map((line) => each[line] ?? 0))));
    const x = (at) => LEFT + (1 - (now - at) / (WINDOW_S * 1000)) * (width - LEFT);
    const y = (value) => TOP + (1 - value / top) * (height - TOP - BOTTOM);
    mark(this.svg, "viewBox", `0 0 ${width} ${height}`);
    const marks = [...grid(width, height, top, y), ...times(width, height)];
    for (const run of runs(seen, "answered")) {
      const path = line(run, "answered", x, y);
      marks.push(s("path", { class: "area", d: `${path}L${x(run.at(-1).at)} ${y(0)}L${x(run[0].at)} ${y(0)}Z` }));
    }
    for (const name of [...LINES].reverse()) {
      if (name !== "answered" && !seen.some((each) => each[name])) continue;
      for (const run of runs(seen, name)) marks.push(s("path", { class: `line ${name}`, d: line(run, name, x, y) }));
    }
    const near = this.hover === null ? null : nearest(seen, this.hover, x);
    if (near) marks.push(s("line", { class: "hair", x1: x(near.at), x2: x(near.at), y1: TOP, y2: height - BOTTOM }));
    this.svg.replaceChildren(...marks);
    this.tell(near, near ? x(near.at) : 0, width, now);
    this.describe(seen, now);
  }

  tell(near, at, width, now) {
    this.tip.hidden = !near;
    if (!near) return;
    const rates = LINES.map((name) => `${name} ${near[name] === null ? "–" : figures(near[name])}`).join(" · ");
    say(this.tip, `${Math.max(0, Math.round((now - near.at) / 1000))} s ago: ${rates} · open ${near.open}`);
    const size = this.tip.offsetWidth;
    this.tip.style.setProperty("left", `${Math.max(0, Math.min(width - size, at - size / 2))}px`);
    this.tip.style.setProperty("top", "0");
  }

  // The label of a picture is read when somebody comes to it: every ten seconds is often enough.
  describe(seen, now) {
    if (now - this.said < 10000 && this.said) return;
    this.said = now;
    const last = seen.at(-1);
    const peak = Math.max(0, ...seen.map((each) => each.answered ?? 0));
    const text = last
      ? `Now ${figures(last.answered ?? 0)} answered, ${figures(last.refused ?? 0)} refused, ${figures(last.failed ?? 0)} failed a second; at most ${figures(peak)} answered in ${plural(seen.length, "reading")}`
      : "No readings yet";
    mark(this.svg, "aria-label", text);
  }
}

export function ceiling(value) {
  const step = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((each) => each * step).find((each) => each >= value * 1.02) ?? 10 * step;
}

function grid(width, height, top, y) {
  return [0, 0.5, 1].flatMap((part) => [
    s("line", { class: "grid", x1: LEFT, x2: width, y1: y(top * part), y2: y(top * part) }),
    s("text", { class: "axis", x: LEFT - 8, y: y(top * part) + 4, "text-anchor": "end" }, figures(top * part)),
  ]);
}

function times(width, height) {
  const names = width < 480 ? [[180, "3 min"], [90, "90 s"]] : [[180, "3 min ago"], [120, "2 min"], [60, "1 min"]];
  return [...names, [0, "now"]].map(([ago, name]) => {
    const anchor = ago === 0 ? "end" : ago === WINDOW_S ? "start" : "middle";
    return s("text", { class: "axis", x: LEFT + (1 - ago / WINDOW_S) * (width - LEFT), y: height - 3, "text-anchor": anchor }, name);
  });
}

// Stretches without a hole: a rate that nobody measured is a gap, not a zero.
function runs(points, name) {
  const all = [];
  let run = [];
  let last = null;
  for (const point of points) {
    const whole = point[name] !== null && (last === null || point.at - last < 12000);
    if (!whole && run.length) {
      all.push(run);
      run = [];
    }
    if (point[name] !== null) run.push(point);
    last = point.at;
  }
  if (run.length) all.push(run);
  return all;
}

const line = (run, name, x, y) =>
  run.map((each, index) => `${index ? "L" : "M"}${x(each.at).toFixed(1)} ${y(each[name]).toFixed(1)}`).join("");

function nearest(points, at, x) {
  let best = null;
  for (const point of points) if (!best || Math.abs(x(point.at) - at) < Math.abs(x(best.at) - at)) best = point;
  return best;
}
