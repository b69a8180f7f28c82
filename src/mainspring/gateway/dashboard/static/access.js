// The API key, where the gateway wants one: this tab's alone, sent to this gateway alone.

import { byId, mark } from "./dom.js";

const NAME = "mainspring-key";
const waiting = [];
let key = stored();

function stored() {
  try {
    return sessionStorage.getItem(NAME) ?? "";
  } catch {
    return ""; // storage is off: the key lives as long as the page
  }
}

export function authorized(headers = {}) {
  return key ? { ...headers, authorization: `Bearer ${key}` } : headers;
}

export function onKey(callback) {
  waiting.push(callback);
}

export function askForKey() {
  const dialog = byId("key-dialog");
  if (!dialog.open) {
    byId("key").value = key;
    dialog.showModal();
  }
}

function use(value) {
  key = value;
  try {
    if (value) sessionStorage.setItem(NAME, value);
    else sessionStorage.removeItem(NAME);
  } catch {
    // as above
  }
  mark(byId("key-button"), "data-on", Boolean(value));
  for (const callback of waiting) callback();
}

export function startAccess() {
  const dialog = byId("key-dialog");
  mark(byId("key-button"), "data-on", Boolean(key));
  byId("key-button").addEventListener("click", askForKey);
  byId("key-cancel").addEventListener("click", () => dialog.close("cancel"));
  byId("key-form").addEventListener("submit", (event) => {
    const value = event.submitter?.value === "forget" ? "" : byId("key").value.trim();
    use(value);
    byId("key").value = "";
  });
}
