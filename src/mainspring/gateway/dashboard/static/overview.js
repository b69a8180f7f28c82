// The first view: from a snapshot to everything in it. Nothing here asks; `main` hands in what the stream brings.

import { byId, h, keyed, mark, say } from "./dom.js";
import { bytes, number, percent, plural, split, time, whole } from "./format.js";
import { Throughput } from "./chart.js";
import { classList, modelList } from "./classes.js";
import { nodeList } from "./nodes.js";
import { Passes } from "./passes.js";
import { Timeline } from "./timeline.js";
import { written } from "./written.js";

const TABLE = 20;

export class Overview {
  constructor() {
    this.passes = new Passes();
    this.chart = new Throughput(byId("throughput"));
    this.timeline = new Timeline(byId("timeline"), this.passes);
    this.nodes = nodeList(byId("nodes"), byId("nodes-lead"), this.passes);
    this.classes = classList(byId("classes"));
    this.models = modelList(byId("models"));
    this.tiles = keyed(byId("tiles"), (each) => each.id, tile);
    this.written = written(tile);
    byId("passes").addEventListener("toggle", () => this.table(performance.now()));
  }

  history(points) {
    this.chart.past(points, performance.now());
  }

  show(snapshot) {
    const now = performance.now();
    this.passes.add(snapshot.passes, now);
    this.chart.add(snapshot.rates, now);
    this.timeline.setLanes(snapshot.nodes.map((each) => each.name));
    this.nodes(snapshot.nodes);
    this.classes(snapshot.classes);
    this.models(snapshot.models);
    this.tiles(facts(snapshot));
    this.written(snapshot);
    this.table(now);
    say(byId("overview-lead"), lead(snapshot));
  }

  table(now) {
    if (!byId("passes").open) return;
    const rows = this.passes.list.slice(-TABLE).reverse();
    byId("pass-rows").replaceChildren(...rows.map((each) => h("tr", {}, h("td", {}, each.node),
      ...[`${time(Math.max(0, now - each.end))} ago`, whole(each.parts), whole(each.tokens), time(each.predicted_ms),
        time(each.measured_ms), percent(each.measured_ms / each.predicted_ms - 1)].map((text) => h("td", { class: "num" }, text)))));
  }
}

function lead({ gateway, router }) {
  if (!router.version) return "The router has not been heard yet";
  return `Router ${router.version}, up ${time(router.up_s * 1000)} · ${plural(router.clients, "gateway")} · ${bytes(router.payload_bytes)} of tokens in hand · this gateway up ${time(gateway.uptime_s * 1000)}`;
}

function facts(snapshot) {
  const { rates, classes, nodes, prediction_error: error } = snapshot;
  const open = snapshot.router.counters.open ?? 0;
  const queued = Object.values(snapshot.queues).reduce((sum, each) => sum + each, 0);
  const usable = nodes.filter((each) => each.state === "ready" || each.state === "busy").length;
  const tight = classes.filter((each) => each.target_ms !== null && each.answered).sort((a, b) => a.target_ms - b.target_ms)[0];
  const [p99, unit] = tight ? split(tight.p99_ms) : ["–", ""];
  return [
    { id: "answered", name: "Answered", value: rates?.answered == null ? "–" : number(rates.answered), unit: "/s", aside: rates ? `${number(rates.tokens ?? 0)} tokens/s` : "" },
    { id: "open", name: "In flight", value: whole(open), unit: "", aside: `${whole(queued)} queued` },
    { id: "p99", name: tight ? `p99, ${tight.name}` : "p99", value: p99, unit, aside: tight ? `target ${time(tight.target_ms)}` : "nothing answered lately", tone: tight && tight.p99_ms > tight.target_ms ? "bad" : null },
    { id: "error", name: "Prediction error", ...points(error.median), aside: error.passes ? `p90 ${percent(error.p90)}, ${plural(error.passes, "pass", "passes")}` : "no passes lately" },
    { id: "nodes", name: "Nodes usable", value: whole(usable), unit: `of ${whole(nodes.length)}`, aside: states(nodes), tone: usable === 0 ? "bad" : usable < nodes.length ? "warn" : null },
  ];
}

function points(value) {
  const [figure, unit] = percent(value).split("\u202f");
  return { value: figure, unit: unit ?? "" };
}

function states(nodes) {
  const counts = new Map();
  for (const { state } of nodes) counts.set(state, (counts.get(state) ?? 0) + 1);
  return [...counts].map(([state, count]) => `${count} ${state}`).join(", ") || "none has joined";
}

function tile() {
  const term = h("dt");
  const figure = h("span");
  const unit = h("span", { class: "unit" });
  const aside = h("dd", { class: "aside" });
  const element = h("div", { class: "tile" }, term, h("dd", { class: "value" }, figure, unit), aside);
  return {
    element,
    update(each) {
      say(term, each.name);
      say(figure, each.value);
      say(unit, each.unit);
      say(aside, each.aside);
      mark(element, "data-tone", each.tone);
    },
  };
}
