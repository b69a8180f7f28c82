// A card a node: what it is, how busy, what it costs, and whether it keeps to what was predicted of it.

import { h, s, keyed, mark, say, share } from "./dom.js";
import { figures, percent, time, whole, words } from "./format.js";
import { verdict } from "./passes.js";

const TONES = { ready: "good", busy: "busy", starting: "idle", draining: "warn", late: "warn", failing: "bad", gone: "bad" };
const NARROW = 138;
const SIDE_Y = 118;
const EDGE = 10;
const DOTS = 60;
const SHOWN = 96;

export function nodeList(parent, lead, passes) {
  const update = keyed(parent, (node) => node.name, () => card(passes));
  return (nodes, models) => {
    const usable = nodes.filter((each) => each.state === "ready" || each.state === "busy").length;
    const more = nodes.length > SHOWN ? `, the first ${SHOWN} shown` : "";
    say(lead, nodes.length ? `${whole(usable)} of ${whole(nodes.length)} usable${more}` : "");
    update(nodes.slice(0, SHOWN));
    const empty = parent.querySelector(".none");
    if (nodes.length) empty?.remove();
    else if (!empty) parent.append(none());
    return models;
  };
}

function none() {
  return h("li", { class: "node none" }, h("p", { class: "empty" }, "No node has joined yet. On any machine of yours: ", h("br"),
    h("code", {}, "mainspring node --join ROUTER:PORT --tls FOLDER --model MODEL")));
}

function card(passes) {
  const parts = {
    name: h("h3"), state: h("span"), device: h("p", { class: "device" }), note: h("p", { class: "note", hidden: true }),
    fill: h("div", { class: "fill" }), busy: h("span"), cost: h("p", { class: "cost" }),
    caption: h("figcaption"), plot: s("svg", { role: "img", "aria-label": "No passes yet" }),
  };
  const pill = h("span", { class: "pill" }, h("span", { class: "dot", "aria-hidden": "true" }), parts.state);
  const facts = h("dl", { class: "facts" });
  const fact = facts_of(facts, ["In hand", "Kept views", "Passes", "Failed", "Last work", "Link", "Streams", "A round"]);
  const element = h("li", { class: "node" },
    h("div", { class: "node-head" }, parts.name, pill), parts.device, parts.note,
    h("div", { class: "load" }, h("div", { class: "track", "aria-hidden": "true" }, parts.fill), parts.busy),
    h("div", { class: "node-body" }, facts, h("figure", { class: "scatter" }, parts.plot, parts.caption)), parts.cost);
  return {
    element,
    update(node) {
      say(parts.name, node.name);
      say(parts.state, words(node.state) + (node.provisional ? ", measuring" : ""));
      mark(pill, "data-tone", TONES[node.state] ?? "idle");
      const device = [node.model, node.numerics, node.device].filter(Boolean).join(" · ");
      say(parts.device, device);
      mark(parts.device, "title", device);
      say(parts.note, node.note);
      parts.note.hidden = !node.note;
      share(parts.fill, node.busy_share);
      say(parts.busy, `${percent(node.busy_share)} busy`);
      fact("In hand", whole(node.held));
      fact("Streams", node.slots ? `${node.slots_used} of ${node.slots}` : "–");
      fact("A round", node.acceptance_length ? `${figures(node.acceptance_length)} tokens` : "–");
      fact("Kept views", whole(node.keys));
      fact("Passes", whole(node.passes));
      fact("Failed", whole(node.failures), node.failures ? "bad" : null);
      fact("Last work", ago(node.idle_s));
      fact("Link", `${node.transport.toUpperCase()} ${time(node.round_trip_ms)}`);
      parts.cost.replaceChildren(...cost(node.cost));
      plot(parts, passes.of(node.name, DOTS), node);
    },
  };
}

const ago = (seconds) => (seconds < 1.5 ? "now" : `${time(Math.round(seconds) * 1000)} ago`);

function facts_of(list, names) {
  const values = new Map(names.map((name) => [name, h("dd")]));
  for (const [name, value] of values) list.append(h("div", {}, h("dt", {}, name), value));
  return (name, text, tone) => {
    say(values.get(name), text);
    mark(values.get(name), "data-tone", tone);
  };
}

function cost(model) {
  const terms = [
    [time(model.fixed_ms), "a pass"], [time(model.view_token_us / 1e3), "a view token"],
    [time(model.row_us / 1e3), "a question token"],
  ];
  if (model.pair_ns > 0) terms.push([`${figures(model.pair_ns)}\u202fns`, "an attention pair"]);
  return terms.flatMap(([value, per], index) => [index ? " + " : "", h("b", {}, value), ` ${per}`]);
}

// Predicted across, measured up, both logarithmic; on the dashed line the two agree, in the band to 15 %.
function plot(parts, list, node) {
  const times = list.flatMap((each) => [each.predicted_ms, each.measured_ms]).filter((each) => each > 0);
  const error = node.predicted_error;
  say(parts.caption, list.length ? `predicted → measured, typically ${percent(error)} off` : "predicted → measured");
  mark(parts.plot, "aria-label", list.length
    ? `Predicted against measured time of the last ${whole(list.length)} passes; typical error ${percent(error)}`
    : "No passes in the last minute");
  const width = parts.plot.clientWidth || NARROW;
  const drawn = `${list.at(-1)?.name} ${list.length} ${width}`;
  if (parts.drawn === drawn) return;
  parts.drawn = drawn;
  mark(parts.plot, "viewBox", `0 0 ${width} ${SIDE_Y}`);
  if (!times.length) {
    parts.plot.replaceChildren(s("text", { x: width / 2, y: SIDE_Y / 2 + 4, "text-anchor": "middle" }, "no passes lately"));
    return;
  }
  const low = Math.log(Math.min(...times) / 1.35);
  const high = Math.log(Math.max(...times) * 1.35);
  const x = (ms) => EDGE + ((Math.log(ms) - low) / (high - low)) * (width - 2 * EDGE);
  const y = (ms) => SIDE_Y - EDGE - ((Math.log(ms) - low) / (high - low)) * (SIDE_Y - 2 * EDGE);
  const [a, b] = [Math.exp(low), Math.exp(high)];
  const band = [[a, a * 1.15], [b, b * 1.15], [b, b / 1.15], [a, a / 1.15]].map(([u, v]) => `${x(u)},${y(v)}`).join(" ");
  parts.plot.replaceChildren(
    s("polygon", { class: "band", points: band }),
    s("line", { class: "same", x1: x(a), y1: y(a), x2: x(b), y2: y(b) }),
    ...list.filter((each) => each.predicted_ms > 0 && each.measured_ms > 0).map((each) =>
      s("circle", { class: verdict(each), cx: x(each.predicted_ms).toFixed(1), cy: y(each.measured_ms).toFixed(1), r: 2.6 })),
    s("text", { x: width - 6, y: SIDE_Y - 5, "text-anchor": "end" }, time(Math.max(...times))),
  );
}
