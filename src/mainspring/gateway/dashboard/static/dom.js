// Elements without HTML strings, and lists that keep their elements: focus, selection and a reader's place survive updates.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function s(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Only what differs is written: unchanged text is no news to a screen reader and no work for the layout.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function mark(element, name, value) {
  if (value === null || value === undefined) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

export function share(element, value) {
  element.style.setProperty("--share", String(Math.min(1, Math.max(0, value))));
}

// `make(item)` returns {element, update(item)}; elements stay with their keys and move only where the order changed.
export function keyed(parent, key, make) {
  const kept = new Map();
  return (items) => {
    const seen = new Set();
    let before = parent.firstElementChild;
    for (const item of items) {
      const name = key(item);
      if (seen.has(name)) continue;
      seen.add(name);
      let row = kept.get(name);
      if (!row) kept.set(name, (row = make(item)));
      row.update(item);
      if (row.element === before) before = before.nextElementSibling;
      else parent.insertBefore(row.element, before);
    }
    for (const [name, row] of kept) {
      if (seen.has(name)) continue;
      row.element.remove();
      kept.delete(name);
    }
  };
}
