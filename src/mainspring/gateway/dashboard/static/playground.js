// The second view: a form, one request at a time, and what came of it.

import { askForKey, authorized } from "./access.js";
import { byId, h, mark, say } from "./dom.js";
import { plural } from "./format.js";
import { EXAMPLES } from "./examples.js";
import { FieldError, curl, fieldOf, readBehaviors, readConversation, timings } from "./reading.js";
import { showFailure, showScores, showTiming, showView } from "./results.js";

const MOST_BYTES = 20 << 20;
const PANELS = ["blank", "failure", "results", "timing", "rendered"];

export class Playground {
  constructor() {
    this.request = null;
    this.answer = null;
    this.known = "";
    this.keys = false;
    const form = byId("ask");
    form.noValidate = true;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.score();
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.score();
      }
    });
    if (/Mac|iP(hone|ad)/.test(navigator.platform)) say(byId("mod"), "⌘");
    byId("stop").addEventListener("click", () => this.request?.abort());
    byId("curl").addEventListener("click", (event) => this.copyCurl(event.currentTarget));
    byId("copy").addEventListener("click", (event) => copied(event.currentTarget, JSON.stringify(this.answer.results, null, 1)));
    byId("order").addEventListener("change", () => showScores(this.answer.results, this.answer.behaviors, byId("order").value));
    byId("behaviors").addEventListener("input", () => this.count());
    this.startFiles();
    EXAMPLES.forEach(({ name }, index) => byId("example").append(h("option", { value: index }, name)));
    byId("example").addEventListener("change", (event) => this.example(event.target.value));
    this.example("0");
  }

  example(index) {
    if (index === "") return;
    const { conversation, behaviors } = EXAMPLES[Number(index)];
    byId("conversation").value = typeof conversation === "string" ? conversation : JSON.stringify(conversation, null, 2);
    byId("behaviors").value = behaviors.join("\n");
    byId("example").value = "";
    this.fault(null);
    this.count();
  }

  startFiles() {
    const file = byId("file");
    byId("open").addEventListener("click", () => file.click());
    file.addEventListener("change", () => this.take(file.files[0]));
    const area = byId("conversation");
    area.addEventListener("dragover", (event) => event.preventDefault());
    area.addEventListener("drop", (event) => {
      const dropped = event.dataTransfer?.files?.[0];
      if (!dropped) return;
      event.preventDefault();
      this.take(dropped);
    });
  }

  async take(file) {
    byId("file").value = "";
    if (!file) return;
    if (file.size > MOST_BYTES) return this.fault(new FieldError("conversation", `${file.name} is larger than ${MOST_BYTES >> 20} MiB.`));
    byId("conversation").value = await file.text();
    this.fault(null);
  }

  // Models and classes as the fleet has them now; what was chosen stays chosen.
  know({ gateway, models, classes }) {
    this.keys = gateway.keys;
    const known = JSON.stringify([models.map((each) => each.name), classes.map((each) => each.name)]);
    if (known === this.known) return;
    this.known = known;
    options(byId("model"), models.map((each) => each.name), gateway.default_model);
    options(byId("slo"), classes.map((each) => each.name), gateway.default_class);
  }

  count() {
    const text = byId("behaviors").value.trim();
    let text_count = "";
    try {
      text_count = text ? plural(readBehaviors(text).length, "behavior") : "";
    } catch {
      // said when it is sent
    }
    say(byId("behavior-count"), text_count);
  }

  read() {
    const body = { span: readConversation(byId("conversation").value), behaviors: readBehaviors(byId("behaviors").value) };
    if (byId("cut").checked) body.on_overflow = "cut";
    return byId("model").value ? { model: byId("model").value, ...body } : body;
  }

  fault(error) {
    for (const field of ["conversation", "behaviors"]) {
      const mine = error?.field === field;
      mark(byId(field), "aria-invalid", mine ? "true" : null);
      byId(`${field}-error`).hidden = !mine;
      say(byId(`${field}-error`), mine ? error.message : "");
    }
    if (error) byId(error.field).focus();
  }

  async score() {
    if (this.request) return;
    let body;
    try {
      body = this.read();
    } catch (error) {
      if (!(error instanceof FieldError)) throw error;
      return this.fault(error);
    }
    this.fault(null);
    this.request = new AbortController();
    this.busy(true);
    const began = performance.now();
    try {
      const headers = { "content-type": "application/json", ...(byId("slo").value ? { "x-slo-class": byId("slo").value } : {}) };
      const response = await fetch("v1/scores", { method: "POST", headers: authorized(headers), body: JSON.stringify({ ...body, include_view: true }), signal: this.request.signal });
      const answer = await response.json().catch(() => null);
      const elapsed = performance.now() - began;
      if (response.ok && answer) this.show(answer, body.behaviors, response.headers, elapsed);
      else this.refused(response.status, answer, response.headers);
    } catch (error) {
      if (error.name !== "AbortError") this.refused(0, { detail: "The gateway can't be reached" }, null);
      else say(byId("announce"), "Stopped");
    } finally {
      this.request = null;
      this.busy(false);
    }
  }

  busy(is) {
    mark(byId("answer"), "aria-busy", is ? "true" : null);
    mark(byId("score"), "aria-disabled", is ? "true" : null); // `disabled` would take the focus away
    say(byId("score"), is ? "Scoring…" : "Score");
    if (!is && document.activeElement === byId("stop")) byId("score").focus();
    byId("stop").hidden = !is;
  }

  refused(status, body, headers) {
    this.only(["failure"]);
    showFailure(status, body, headers);
    if (status === 401) return askForKey();
    const field = fieldOf(body?.param ?? body?.error?.param, body?.reason ?? body?.error?.code);
    if (field) this.fault(new FieldError(field, body.detail ?? body.error.message));
  }

  show(answer, behaviors, headers, elapsed) {
    this.answer = { ...answer, behaviors };
    this.only(["results", "timing", "rendered"]);
    showScores(answer.results, behaviors, byId("order").value);
    say(byId("results-note"), `${plural(answer.results.length, "behavior")}, ${plural(answer.usage.input_tokens, "token")} · ${answer.model}`);
    showTiming(timings(headers.get("server-timing")), Number(headers.get("x-predicted-ms")), elapsed);
    showView(answer.view ?? [], answer.format, answer.notes ?? []);
    say(byId("announce"), `${plural(answer.results.length, "behavior")} scored`);
    if (matchMedia("(max-width: 960px)").matches) byId("answer").scrollIntoView({ block: "start" });
  }

  only(shown) {
    for (const panel of PANELS) byId(panel).hidden = !shown.includes(panel);
  }

  copyCurl(button) {
    try {
      copied(button, curl(new URL("v1/scores", document.baseURI).href, this.read(), this.keys));
    } catch (error) {
      if (!(error instanceof FieldError)) throw error;
      this.fault(error);
    }
  }
}

function options(select, names, preferred) {
  const chosen = select.value || preferred;
  select.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
  if (names.includes(chosen)) select.value = chosen;
}

async function copied(button, text) {
  const before = (button.dataset.label ??= button.textContent);
  let said = "Copied";
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    said = "The browser does not allow it"; // over plain HTTP from another machine there is no clipboard
  }
  say(button, said);
  say(byId("announce"), said);
  setTimeout(() => say(button, before), 1600);
}
