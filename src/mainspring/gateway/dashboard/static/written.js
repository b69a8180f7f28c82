// Generation: streams, how fast they are written, and what drafting brings. Hidden where no node has slots.

import { byId, h, keyed, say, share } from "./dom.js";
import { figures, number, percent, plural, split, time, whole } from "./format.js";

const LONGEST = 16;

export function written(tile) {
  const list = byId("written");
  const tiles = keyed(list, (each) => each.id, tile);
  const rounds = keyed(byId("rounds"), (each) => each.tokens, bar);
  return ({ written: facts, classes }) => {
    list.hidden = !facts;
    byId("rounds-panel").hidden = !facts?.rounds;
    if (!facts) return;
    tiles(tilesOf(facts, classes));
    rounds(bars(facts.histogram));
  };
}

function tilesOf(facts, classes) {
  const told = classes.filter((each) => each.streams > 0);
  const tight = told.sort((a, b) => (a.target_ms ?? Infinity) - (b.target_ms ?? Infinity))[0];
  const [first, unit] = tight ? split(tight.first_p50_ms) : ["–", ""];
  const gap = tight ? `${time(tight.gap_p50_ms)} a token` : `${number(facts.tokens)} in all`;
  const length = facts.acceptance_length;
  return [
    { id: "streams", name: "Streams", value: whole(facts.streams), unit: `of ${whole(facts.slots)}`, aside: facts.failed ? `${whole(facts.failed)} failed` : "none failed", tone: facts.failed ? "warn" : null },
    { id: "speed", name: "Written", value: number(facts.tokens_s), unit: "tokens/s", aside: gap, tone: tight?.gap_target_ms && tight.gap_p50_ms > tight.gap_target_ms ? "bad" : null },
    { id: "first", name: tight ? `First token, ${tight.name}` : "First token", value: first, unit, aside: tight ? `p99 ${time(tight.first_p99_ms)}` : "no stream ended lately" },
    { id: "length", name: "Tokens a round", value: length === null ? "–" : figures(length), unit: "", aside: facts.accepted_share === null ? "nothing drafted" : `${percent(facts.accepted_share)} of drafts accepted` },
    { id: "cached", name: "Prompts cached", ...points(facts.cached_share), aside: plural(facts.rounds, "round") },
  ];
}

function points(value) {
  const [figure, unit] = percent(value).split("\u202f");
  return { value: figure, unit: unit ?? "" };
}

function bars(histogram) {
  const total = histogram.reduce((sum, each) => sum + each, 0);
  const most = Math.max(...histogram, 1);
  const shown = histogram.slice(0, LONGEST);
  if (histogram.length > LONGEST) shown[LONGEST - 1] += histogram.slice(LONGEST).reduce((sum, each) => sum + each, 0);
  return shown.map((count, index) => ({
    tokens: index + 1, more: index + 1 === LONGEST && histogram.length > LONGEST, count, share: total ? count / total : 0, width: count / most,
  }));
}

function bar() {
  const fill = h("div", { class: "fill" });
  const term = h("dt");
  const value = h("span", { class: "time" });
  const element = h("div", { class: "round" }, term, h("dd", {}, h("div", { class: "meter", "aria-hidden": "true" }, fill), value));
  return {
    element,
    update(each) {
      say(term, `${each.tokens}${each.more ? " or more" : ""}`);
      share(fill, each.width);
      say(value, percent(each.share));
    },
  };
}
