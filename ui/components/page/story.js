// The story of an agent turn as the page has it: a list of items that the server's operations splice. An item that did
// not change keeps its object, and so its place in the page.

import { markRaw, shallowReactive } from "vue";
import { dues } from "./asks.js";

const FIELDS = { run_id: null, round: 0, rounds: 0, seconds: null, attempt: 1, waits_for: null, progress: null, left_out: 0, resume_step: null };

export function newStory() {
  return shallowReactive({ ...FIELDS, items: [], left: null, since: performance.now() });
}

// The whole story anew (`view` null: none yet).
export function retold(story, view) {
  const { items = [], ...fields } = view ?? FIELDS;
  told(story, fields);
  story.items = kept(story.items, items);
}

// A `story` operation.
export function spliced(story, { set, from, remove, items }) {
  told(story, set);
  if (!remove && !items.length) return;
  const old = story.items.slice(from, from + remove);
  story.items = [...story.items.slice(0, from), ...kept(old, items), ...story.items.slice(from + remove)];
}

// A `thought` operation: the thought at `from` goes on.
export function grown(story, { from, text }) {
  const item = story.items[from];
  if (item?.t === "thought") story.items = story.items.with(from, markRaw({ ...item, text: item.text + text }));
}

// Asks that wait for a verdict, oldest first.
export function pending(story) {
  return story.items.filter((item) => item.t === "ask" && !item.verdict);
}

// Seconds of working time left at `now`: they stand still while a person is waited for.
export function left(story, now) {
  if (story.left === null) return null;
  return Math.max(0, story.waits_for === null ? story.left - (now - story.since) / 1000 : story.left);
}

function told(story, fields) {
  const now = performance.now();
  if ("seconds" in fields) Object.assign(story, { left: fields.seconds, since: now });
  else if ("waits_for" in fields) Object.assign(story, { left: left(story, now), since: now });
  Object.assign(story, fields);
}

// New items, each with the key of the old one that it replaces; of asks it is noted when they deny themselves.
function kept(old, items) {
  return items.map((item, at) => {
    if (item.left !== undefined) dues.set(item.ask, performance.now() + item.left * 1000);
    const name = item.t === "tool" ? item.call : item.ask ?? item.message;
    const same = old[at]?.t === item.t && old[at].run === item.run && old[at].round === item.round ? old[at] : null;
    const key = name === undefined ? same?.key ?? `${item.t} ${(counter += 1)}` : `${item.t} ${name}`;
    return markRaw({ ...item, key });
  });
}

let counter = 0;
