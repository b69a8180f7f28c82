// Starts the page: views by address, colors, the stream, and what is said about the link.

import { askForKey, onKey, startAccess } from "./access.js";
import { byId, mark, say } from "./dom.js";
import { plural, time } from "./format.js";
import { Overview } from "./overview.js";
import { Playground } from "./playground.js";
import { Stream } from "./stream.js";

const VIEWS = { overview: "Mainspring", playground: "Playground · Mainspring" };
const THEMES = ["system", "light", "dark"];

function showView(focus) {
  const name = location.hash.slice(1) in VIEWS ? location.hash.slice(1) : "overview";
  for (const view of Object.keys(VIEWS)) {
    byId(`view-${view}`).hidden = view !== name;
    mark(document.querySelector(`.tabs a[data-view="${view}"]`), "aria-current", view === name ? "page" : null);
  }
  document.title = VIEWS[name];
  scrollTo(0, 0);
  if (focus) byId("content").focus({ preventScroll: true });
}

function startTheme() {
  let theme = "system";
  try {
    theme = localStorage.getItem("mainspring-theme") ?? "system";
  } catch {
    // storage is off: the system's colors each time
  }
  const use = (name) => {
    theme = THEMES.includes(name) ? name : "system";
    mark(document.documentElement, "data-theme", theme === "system" ? null : theme);
    say(byId("theme-text"), theme === "system" ? "Colors: as the system" : `Colors: ${theme}`);
    mark(byId("theme-button"), "title", byId("theme-text").textContent);
  };
  use(theme);
  byId("theme-button").addEventListener("click", () => {
    use(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]);
    try {
      localStorage.setItem("mainspring-theme", theme);
    } catch {
      // as above
    }
  });
}

// The pill changes with the state, the announcement only where the state changed: once a second would be noise.
let said = "";
function link(tone, text, banner = "", bannerTone = "warn", more = "") {
  mark(byId("link"), "data-tone", tone);
  say(byId("link-text"), text);
  say(byId("link-more"), more);
  byId("banner").hidden = !banner;
  say(byId("banner"), banner);
  mark(byId("banner"), "data-tone", bannerTone);
  if (said !== text + more) say(byId("announce"), `Fleet: ${text}${more}`);
  said = text + more;
}

function linkOf({ gateway, router, nodes }) {
  const usable = nodes.filter((each) => each.state === "ready" || each.state === "busy").length;
  if (gateway.draining) return link("warn", "Draining", "This gateway is shutting down: what is open is being finished, nothing new is taken.");
  if (!router.reachable) {
    const since = router.version ? `for ${time(router.age_s * 1000)}` : "yet";
    return link("bad", "No router", `The router has not been heard ${since}. Requests are refused until it is back.`, "bad");
  }
  if (router.draining) return link("warn", "Router draining", "The router is shutting down: it finishes what is open and takes nothing new.");
  if (!nodes.length) return link("warn", "No nodes", "No node has joined: nothing can be scored.");
  if (!usable) return link("bad", "No usable node", "No node can take work right now.", "bad");
  return link("good", "Live", "", "warn", `, ${plural(usable, "node")}`);
}

function lost({ status, seconds }) {
  document.body.classList.add("stale");
  if (status === 401 || status === 403) {
    link("warn", "Key needed", "This gateway asks for an API key before it shows anything.");
    return askForKey();
  }
  const why = status === 503 || status === 429 ? "The gateway has too many watchers" : "The connection to the gateway is lost";
  link("bad", "Not connected", `${why}; the next try is in ${Math.max(1, Math.round(seconds))} s. What is shown is the last that was heard.`, "bad");
}

function start() {
  startTheme();
  startAccess();
  const overview = new Overview();
  const playground = new Playground();
  addEventListener("hashchange", () => showView(true));
  showView(false);
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address says which view is shown
    byId("content").focus();
  });
  const stream = new Stream("status/events", {
    event(name, data) {
      if (name === "history") overview.history(data);
      if (name === "closing") link("warn", "Closing", "This gateway has shut down.");
      if (name !== "snapshot") return;
      document.body.classList.remove("stale");
      overview.show(data);
      playground.know(data);
      linkOf(data);
      byId("foot").hidden = data.gateway.keys; // a link carries no key
    },
    state: (_name, facts) => lost(facts),
  });
  onKey(() => stream.start());
  stream.start();
}

start();
