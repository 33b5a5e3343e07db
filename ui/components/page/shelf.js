// What of the list of notebooks is shown, in which order: plain functions, so that thousands of rows stay quick.

export const SORTS = { changed: "Last changed", title: "Title", state: "State" };
const RANK = { waiting: 0, running: 1, queued: 2, error: 3, idle: 4 };
const words = new Intl.Collator([], { numeric: true, sensitivity: "base" });

export function named(row) {
  return row.title.trim() || "Untitled notebook";
}

function plain(text) {
  return text.normalize("NFKD").replace(/\p{M}/gu, "").toLocaleLowerCase();
}

// Rows whose title has every word of `search`, whatever case and accents.
export function found(rows, search) {
  const wanted = plain(search).split(/\s+/).filter(Boolean);
  if (!wanted.length) return rows;
  return rows.filter((row) => {
    const title = plain(named(row));
    return wanted.every((word) => title.includes(word));
  });
}

export function sorted(rows, by) {
  const newest = (one, other) => (one.changed < other.changed ? 1 : one.changed > other.changed ? -1 : 0);
  const order = {
    changed: newest,
    title: (one, other) => words.compare(named(one), named(other)) || newest(one, other),
    state: (one, other) => (RANK[one.state] ?? 4) - (RANK[other.state] ?? 4) || newest(one, other),
  }[by];
  return [...rows].sort(order);
}

// The rows to draw, from which to which, of `count` rows of one `height`, where `above` pixels of the list are out of
// sight and `view` pixels are to be seen; some more on both sides, so that scrolling finds them there.
export function windowed(count, height, above, view, more = 12) {
  if (count < 120) return [0, count];
  const first = Math.max(0, Math.floor(above / height) - more);
  return [Math.min(first, count), Math.min(count, first + Math.ceil(view / height) + 2 * more)];
}
