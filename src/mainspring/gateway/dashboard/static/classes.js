// Classes against their targets, with refusals by reason; models with what waits for them.

import { h, keyed, mark, say, share } from "./dom.js";
import { plural, time, whole, words } from "./format.js";

export function classList(parent) {
  return keyed(parent, (each) => each.name, () => {
    const name = h("h3");
    const target = h("p");
    const counts = h("p", { class: "counts" });
    const rows = ["p50", "p99"].map(row);
    const chips = h("ul", { class: "chips", "aria-label": "Refused, by reason" });
    const chip = keyed(chips, ([code]) => code, () => {
      const element = h("li", { class: "chip", "data-tone": "warn" });
      return { element, update: ([code, count]) => say(element, `${words(code)} ${whole(count)}`) };
    });
    const element = h("li", {}, h("div", { class: "class-head" }, name, target, counts),
      h("dl", { class: "bullets" }, ...rows.flatMap((each) => each.elements)), chips);
    return {
      element,
      update(each) {
        say(name, each.name);
        say(target, each.target_ms === null ? "no target" : `target ${time(each.target_ms)}`);
        const late = each.late ? `, ${whole(each.late)} late` : "";
        say(counts, `${whole(each.answered)} answered${late}`);
        rows[0].update(each.p50_ms, each);
        rows[1].update(each.p99_ms, each);
        const refused = Object.entries(each.refused).sort((one, other) => other[1] - one[1]);
        chip(refused);
        chips.hidden = !refused.length;
      },
    };
  });
}

function row(label) {
  const fill = h("div", { class: "fill" });
  const meter = h("div", { class: "meter", "aria-hidden": "true" }, fill);
  const value = h("span", { class: "time" });
  return {
    elements: [h("dt", {}, label), h("dd", {}, meter, value)],
    update(ms, each) {
      const any = each.answered > 0;
      const over = each.target_ms !== null && ms > each.target_ms;
      say(value, any ? time(ms) : "–");
      share(fill, any ? (each.target_ms === null ? (ms ? ms / each.p99_ms : 0) : ms / each.target_ms) : 0);
      mark(meter, "data-tone", over ? "bad" : null);
    },
  };
}

export function modelList(parent) {
  return keyed(parent, (each) => each.key, () => {
    const name = h("h3");
    const key = h("code");
    const facts = h("p");
    const limits = h("p");
    return {
      element: h("li", {}, name, facts, limits, key),
      update(each) {
        say(name, each.aliases.length ? each.aliases.join(", ") : each.name);
        say(key, each.key.slice(0, 16));
        mark(key, "title", each.key);
        say(facts, `${whole(each.usable)} of ${plural(each.nodes, "node")} usable, ${whole(each.queued)} queued`);
        say(limits, `${each.numerics.join(", ")}${each.numerics.length ? " · " : ""}conversations to ${whole(each.view_tokens)} tokens`);
      },
    };
  });
}
