// Server-sent events over fetch, since EventSource sends no key. Comes back by itself, slower each time, 15 s at most.

import { authorized } from "./access.js";

const FIRST_MS = 500;
const LONGEST_MS = 15000;
const SILENT_MS = 8000;
const MOST_CHARS = 8 << 20;

// `on` has: event(name, data), state(name, {status, seconds}).
export class Stream {
  constructor(url, on) {
    this.url = url;
    this.on = on;
    this.wait = FIRST_MS;
    this.timer = 0;
    this.controller = null;
  }

  start() {
    clearTimeout(this.timer);
    this.controller?.abort();
    this.controller = new AbortController();
    this.run(this.controller);
  }

  async run(controller) {
    let status = 0;
    try {
      const response = await fetch(this.url, {
        headers: authorized({ accept: "text/event-stream" }), signal: controller.signal, cache: "no-store",
      });
      status = response.status;
      if (response.ok) await this.read(response.body, controller);
    } catch {
      // a cut connection: what follows is the same as for an end
    }
    if (this.controller !== controller) return;
    controller.abort();
    const delay = this.wait * (0.5 + Math.random() / 2);
    this.wait = Math.min(LONGEST_MS, this.wait * 2);
    this.on.state("lost", { status, seconds: delay / 1000 });
    this.timer = setTimeout(() => this.start(), delay);
  }

  async read(body, controller) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let silence = 0;
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => controller.abort(), SILENT_MS);
    };
    try {
      for (heard(); ; heard()) {
        const { value, done } = await reader.read();
        if (done) return;
        rest += value;
        const blocks = rest.split("\n\n");
        rest = blocks.pop();
        if (rest.length > MOST_CHARS) return;
        for (const block of blocks) this.take(block);
      }
    } finally {
      clearTimeout(silence);
    }
  }

  take(block) {
    let name = "message";
    const data = [];
    for (const line of block.split("\n")) {
      if (line.startsWith("event:")) name = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
    }
    if (!data.length) return;
    this.wait = FIRST_MS;
    this.on.event(name, JSON.parse(data.join("\n")));
  }
}
