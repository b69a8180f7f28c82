// Bars of three parts, where the time went, and the conversation as the model read it.

import { byId, h, say, share } from "./dom.js";
import { percent, time, words } from "./format.js";

const LABELS = [["present", "p_present"], ["absent", "p_absent"], ["unknown", "p_not_observable"]];
const NAMES = { present: "present", absent: "absent", unknown: "not observable" };
const FIRST_CHARS = 30000;
const ORDERS = {
  asked: null,
  present: (one, other) => other.p_present - one.p_present,
  unknown: (one, other) => other.p_not_observable - one.p_not_observable,
};

export function showScores(results, behaviors, order) {
  const definitions = new Map(behaviors.map((each) => [each.id, each.definition]));
  const sorted = ORDERS[order] ? [...results].sort(ORDERS[order]) : results;
  byId("scores").replaceChildren(...sorted.map((each) => row(each, definitions.get(each.id) ?? each.id)));
}

function row(result, definition) {
  const shares = LABELS.map(([name, field]) => [name, result[field]]);
  const [winner] = shares.reduce((best, each) => (each[1] > best[1] ? each : best));
  const parts = shares.map(([name, value]) => {
    const part = h("span", { class: `part-${name}` });
    share(part, value);
    return part;
  });
  const named = result.id !== definition;
  return h("li", {},
    h("div", { class: "score-head" }, h("h3", { title: definition }, definition), h("span", { class: "verdict", "data-is": winner }, NAMES[winner])),
    h("div", { class: "parts", "aria-hidden": "true" }, ...parts),
    h("p", { class: "odds" }, ...shares.map(([name, value]) => h("span", {}, h("b", {}, percent(value)), ` ${NAMES[name]}`)),
      named ? h("span", {}, h("code", {}, result.id)) : null));
}

const STAGES = [
  ["text", "reading and tokenising"], ["queue", "waiting in the router"], ["device", "on the node"], ["link", "between router and node"],
  ["wait", "waiting in the gateway"], ["rest", "browser and network"],
];

export function showTiming(timings, predicted, elapsed) {
  const of = (name) => timings.get(name) ?? 0;
  const inside = of("wait") + of("text") + of("fleet");
  const stages = {
    wait: of("wait"), text: of("text"), queue: of("queue"), device: of("device"),
    link: Math.max(0, of("fleet") - of("queue") - of("device")), rest: Math.max(0, elapsed - inside),
  };
  const total = Object.values(stages).reduce((sum, each) => sum + each, 0) || 1;
  byId("stages").replaceChildren(...STAGES.filter(([name]) => stages[name] > 0).map(([name]) => {
    const part = h("span", { class: `stage-${name}` });
    share(part, stages[name] / total);
    return part;
  }));
  byId("stage-list").replaceChildren(...STAGES.map(([name, label]) => h("div", {},
    h("dt", {}, h("span", { class: `key stage-${name}`, "aria-hidden": "true" }), label), h("dd", {}, time(stages[name])))));
  const promise = Number.isFinite(predicted) && predicted > 0 ? `, the router had predicted ${time(predicted)} of ${time(of("fleet"))}` : "";
  say(byId("timing-note"), `${time(elapsed)} in all${promise}`);
}

export function showView(pieces, format, notes) {
  say(byId("rendered-note"), format ? `read as ${words(format)}` : "");
  fill(pieces, FIRST_CHARS);
  const list = byId("notes");
  list.replaceChildren();
  if (!notes.length) return;
  list.append(h("h3", { class: "notes-title" }, "Not shown as it stood"), h("ul", { class: "notes" }, ...notes.map((note) =>
    h("li", {}, h("code", {}, note.where || "span"), ` ${words(note.kind)}: ${note.detail}`))));
}

function fill(pieces, most) {
  let room = most;
  const spans = [];
  for (const piece of pieces) {
    if (room <= 0) break;
    spans.push(h("span", { class: piece.kind }, piece.text.slice(0, room)));
    room -= piece.text.length;
  }
  byId("view").replaceChildren(...spans);
  if (room < 0 && most === FIRST_CHARS) {
    byId("view").append("\n", h("button", { class: "quiet", type: "button", onclick: () => fill(pieces, Infinity) }, "Show all of it"));
  }
}

export function showFailure(status, body, headers) {
  const inner = body?.error ?? {};
  const detail = typeof body?.detail === "string" ? body.detail : (inner.message ?? "The gateway gave no reason.");
  const reason = body?.reason ?? inner.code ?? "";
  const retry = Number(headers?.get("retry-after-ms"));
  const again = headers?.get("x-should-retry") === "false" ? "Trying again will not help." : retry > 0 ? `Try again in ${time(retry)}.` : "";
  const panel = byId("failure");
  panel.replaceChildren(
    h("h2", {}, status ? title(status) : "No answer"), h("p", {}, sentence(detail)), ...(again ? [h("p", {}, again)] : []),
    h("p", { class: "muted" }, [status ? `HTTP ${status}` : "", words(reason), headers?.get("x-request-id") ?? ""].filter(Boolean).join(" · ")));
  panel.hidden = false;
}

const title = (status) => ({ 401: "A key is needed", 403: "Not allowed with this key", 404: "Not known", 413: "Too large", 422: "This can't be scored", 429: "Too busy right now", 503: "Nobody can score right now", 504: "Too late" })[status]
  ?? (status < 500 ? "This can't be scored" : "Something went wrong");

const sentence = (text) => `${text[0]?.toUpperCase() ?? ""}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
