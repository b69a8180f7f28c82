// What a person typed, as the request's fields; or which field is at fault and why. Pure.

const MOST_ID = 200;

export class FieldError extends Error {
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

export function readConversation(text) {
  const trimmed = text.trim();
  if (!trimmed) throw new FieldError("conversation", "Paste a conversation, or choose an example.");
  if (!/^[[{"]/.test(trimmed)) return trimmed;
  try {
    return JSON.parse(trimmed);
  } catch (error) {
    if (trimmed.startsWith("{")) throw new FieldError("conversation", `This begins like JSON and is not: ${error.message}.`);
    return trimmed; // a bracket or a quotation mark may begin a plain text
  }
}

export function readBehaviors(text) {
  const trimmed = text.trim();
  if (!trimmed) throw new FieldError("behaviors", "Type at least one behavior.");
  const listed = trimmed.startsWith("[") ? fromJson(trimmed) : null;
  const items = listed ?? trimmed.split("\n").map((line) => line.trim()).filter(Boolean);
  const seen = new Set();
  return items.map((item, index) => {
    const place = listed ? `Behavior ${index + 1}` : `Line ${index + 1}`;
    const behavior = typeof item === "string" ? { id: item.length <= MOST_ID ? item : place, definition: item } : item;
    if (typeof behavior?.definition !== "string" || typeof behavior?.id !== "string") throw new FieldError("behaviors", `${place}: an object with "id" and "definition" is needed.`);
    if (behavior.definition.trim().length < 3) throw new FieldError("behaviors", `${place}: at least 3 characters are needed.`);
    if (seen.has(behavior.id)) throw new FieldError("behaviors", `${place} is there twice.`);
    seen.add(behavior.id);
    return { id: behavior.id, definition: behavior.definition };
  });
}

function fromJson(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new FieldError("behaviors", `This begins like a JSON list and is not: ${error.message}.`);
  }
  if (!Array.isArray(value) || !value.length) throw new FieldError("behaviors", "A list of at least one behavior is needed.");
  return value;
}

// The field that an error of the gateway is about: `behaviors[3].definition` concerns the behaviors.
export function fieldOf(param, reason) {
  if (/^behaviors/.test(param ?? "")) return "behaviors";
  if (/^(span|input|output|messages)/.test(param ?? "")) return "conversation";
  return ["bad_span", "unknown_format"].includes(reason) ? "conversation" : null;
}

export function curl(url, body, withKey) {
  const quoted = JSON.stringify(body, null, 1).replaceAll("'", "'\\''");
  const key = withKey ? " \\\n  -H \"authorization: Bearer $MAINSPRING_KEY\"" : "";
  return `curl -s ${url} \\\n  -H 'content-type: application/json'${key} \\\n  -d '${quoted}'`;
}

// `server-timing` as a map of milliseconds.
export function timings(header) {
  const found = new Map();
  for (const part of (header ?? "").split(",")) {
    const [name, ...rest] = part.trim().split(";");
    const duration = rest.map((each) => each.trim()).find((each) => each.startsWith("dur="));
    if (name && duration) found.set(name, Number(duration.slice(4)));
  }
  return found;
}
