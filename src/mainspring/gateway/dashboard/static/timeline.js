// A lane a node, a bar a pass as it was measured, a line beneath as it was predicted. Scrolls smoothly where motion is
// welcome and somebody looks, else once a second.

import { byId, h, mark, say } from "./dom.js";
import { figures, time, whole, percent } from "./format.js";
import { verdict } from "./passes.js";

const LANE = 34;
const LANES = 16;
const WIDE_S = 30;
const NARROW_S = 12;
const FRAME_MS = 33;
const BEHIND_MS = 1500; // reports come once a second: the right edge is a little ago, so that bars do not pop up

export class Timeline {
  constructor(parent, passes) {
    this.parent = parent;
    this.passes = passes;
    this.lanes = [];
    this.canvas = h("canvas", { role: "img", "aria-label": "No passes yet" });
    this.scale = h("div", { class: "scale", "aria-hidden": "true" }, h("span"), h("span"));
    this.tip = h("div", { class: "tip", hidden: true });
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    this.last = 0;
    this.said = 0;
    this.pointer = null;
    this.canvas.addEventListener("pointermove", (event) => {
      this.pointer = [event.offsetX, event.offsetY];
      this.draw(performance.now());
    });
    this.canvas.addEventListener("pointerleave", () => {
      this.pointer = null;
      this.tip.hidden = true;
    });
    new ResizeObserver(() => this.draw(performance.now())).observe(parent);
    const frame = (now) => {
      if (now - this.last >= (this.calm.matches ? 1000 : FRAME_MS)) this.draw(now);
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  // `names` in the order of the nodes' cards.
  setLanes(names) {
    const shown = names.slice(0, LANES);
    const note = names.length > LANES ? `the first ${LANES} of ${whole(names.length)} nodes` : "";
    say(byId("timeline-note"), note);
    if (shown.join("\n") === this.lanes.join("\n") && this.parent.childElementCount) return;
    this.lanes = shown;
    if (!shown.length) {
      this.parent.replaceChildren(h("p", { class: "empty" }, "Passes show here once a node runs them."));
      return;
    }
    this.parent.style.setProperty("--rows", String(shown.length + 1));
    const labels = shown.map((name) => h("div", { class: "lane" }, h("span", { title: name }, name)));
    this.parent.replaceChildren(...labels, this.canvas, this.scale, this.tip);
    this.last = 0;
  }

  draw(now) {
    this.last = now;
    const width = this.canvas.clientWidth;
    if (!this.lanes.length || !width || document.hidden) return;
    const height = this.lanes.length * LANE;
    const ratio = devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    const window_ms = (width < 600 ? NARROW_S : WIDE_S) * 1000;
    const right = now - BEHIND_MS;
    const x = (at) => width * (1 - (right - at) / window_ms);
    const colors = this.colors();
    const pen = this.canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.fillStyle = colors.line;
    this.lanes.forEach((_, row) => pen.fillRect(0, row * LANE + LANE - 1, width, 1));
    for (let at = Math.ceil((right - window_ms) / 5000) * 5000; at < right; at += 5000) pen.fillRect(x(at), 0, 1, height);
    let under = null;
    for (const pass of this.passes.list) {
      const row = this.lanes.indexOf(pass.node);
      const from = x(pass.end - pass.measured_ms);
      const to = x(pass.end);
      if (row < 0 || to < 0 || from > width) continue;
      bar(pen, from, row * LANE + 7, Math.max(2, to - from), 14, colors[verdict(pass)]);
      pen.fillStyle = colors.ink;
      pen.fillRect(from, row * LANE + 23, Math.max(2, x(pass.end - pass.measured_ms + pass.predicted_ms) - from), 2);
      if (this.pointer && this.pointer[0] >= from - 2 && this.pointer[0] <= Math.max(to, from + 4) + 1 && Math.floor(this.pointer[1] / LANE) === row) under = pass;
    }
    this.label(window_ms, now);
    this.tell(under, width);
  }

  colors() {
    const style = getComputedStyle(this.parent);
    const of = (name) => resolved(style, name);
    return { true: of("--brass-fill"), slow: of("--bad-fill"), fast: of("--cool-fill"), ink: of("--ink-2"), line: of("--line") };
  }

  label(window_ms, now) {
    const [first, last] = this.scale.children;
    say(first, `${window_ms / 1000} s ago`);
    say(last, "now");
    if (this.said && now - this.said < 10000) return;
    this.said = now;
    const seen = this.passes.list.filter((each) => each.end > now - window_ms);
    const slow = seen.filter((each) => verdict(each) === "slow").length;
    mark(this.canvas, "aria-label", `${whole(seen.length)} passes on ${this.lanes.length} nodes in the last ${window_ms / 1000} seconds, ${whole(slow)} of them slower than predicted`);
  }

  tell(pass, width) {
    this.tip.hidden = !pass;
    if (!pass) return;
    const off = percent(pass.measured_ms / Math.max(1e-9, pass.predicted_ms) - 1);
    say(this.tip, `pass ${pass.id}: ${time(pass.measured_ms)}, predicted ${time(pass.predicted_ms)} (${off}) · ${figures(pass.parts)} parts, ${whole(pass.tokens)} tokens`);
    const size = this.tip.offsetWidth;
    const left = this.canvas.offsetLeft + Math.max(0, Math.min(width - size, this.pointer[0] - size / 2));
    const row = Math.floor(this.pointer[1] / LANE);
    this.tip.style.setProperty("left", `${left}px`);
    this.tip.style.setProperty("top", `${row > 0 ? row * LANE - 30 : LANE}px`);
  }
}

// A canvas knows no light-dark(): a color is resolved where an element uses it.
let probe = null;
const known = new Map();
function resolved(style, name) {
  const scheme = `${style.colorScheme} ${matchMedia("(prefers-color-scheme: dark)").matches} ${name}`;
  if (!known.has(scheme)) {
    if (!probe) document.body.append((probe = h("span", { class: "probe", hidden: true, "aria-hidden": "true" })));
    probe.style.setProperty("color", `var(${name})`);
    known.set(scheme, getComputedStyle(probe).color);
  }
  return known.get(scheme);
}

function bar(pen, x, y, width, height, color) {
  pen.fillStyle = color;
  pen.beginPath();
  pen.roundRect(x, y, width, height, Math.min(3, width / 2));
  pen.fill();
}
