// A JSON value as a tree that folds: each level is made when it is opened, a hundred entries at a time.

const STEP = 100;
const TEXT = 500; // characters of one string

export function tree(value) {
  const root = document.createElement("div");
  root.className = "out-json";
  root.append(node(null, value, true));
  return root;
}

function node(key, value, open) {
  const list = Array.isArray(value);
  if (value === null || typeof value !== "object" || Object.keys(value).length === 0) return leaf(key, value);
  const entries = list ? value.length : Object.keys(value).length;
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  name(summary, key);
  const brackets = list ? "[ ]" : "{ }";
  summary.append(part("out-json-count", `${brackets} ${entries.toLocaleString("en-US")} ${entries === 1 ? "entry" : "entries"}`));
  details.append(summary);
  let made = false;
  const fill = () => {
    if (made || !details.open) return;
    made = true;
    const inner = document.createElement("div");
    inner.className = "out-json-inner";
    details.append(inner);
    more(inner, value, list ? null : Object.keys(value), 0, entries);
  };
  details.addEventListener("toggle", fill);
  details.open = open;
  fill();
  return details;
}

function more(inner, value, keys, from, entries) {
  const upto = Math.min(entries, from + STEP);
  for (let at = from; at < upto; at += 1) inner.append(node(keys ? keys[at] : at, value[keys ? keys[at] : at], false));
  if (upto === entries) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "ghost";
  button.textContent = `${(entries - upto).toLocaleString("en-US")} more`;
  button.addEventListener("click", () => {
    button.remove();
    more(inner, value, keys, upto, entries);
  });
  inner.append(button);
}

function leaf(key, value) {
  const line = document.createElement("div");
  name(line, key);
  const kind = value === null ? "null" : Array.isArray(value) ? "empty" : typeof value === "object" ? "empty" : typeof value;
  let text = JSON.stringify(value);
  if (text.length > TEXT) text = `${text.slice(0, TEXT)}… (${text.length.toLocaleString("en-US")} characters)`;
  line.append(part(`out-json-${kind}`, text));
  return line;
}

function name(line, key) {
  if (key === null) return;
  line.append(part("out-json-key", String(key)), ": ");
}

function part(kind, text) {
  const span = document.createElement("span");
  span.className = kind;
  span.textContent = text;
  return span;
}
