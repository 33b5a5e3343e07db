// What a request names: `@cell:ID` and `@file:PATH`, plain text in it. Read, written and taken out here, as the engine reads
// it (`engine/agent/mentions.py`; `tests/mention_cases.json` is the table that both run).

const MENTION =
  /(?<![\p{L}\p{N}_@/])@(?:cell:([A-Za-z0-9_.:-]{1,64})|file:(?:"((?:[^"\\\n]|\\[^\n])+)"|([^\s"<>]+)))/gu;
const AROUND = /(?:(?![_/-])[\p{P}`])+$/u; // the sentence's own signs behind a name
const SHORT = 8; // characters of a cell's id, where only one cell begins so
const WORDS = 80; // characters of what a cell says first

export const MOST = 20; // of one request, as on the server

// Each mention in `text`, in order: {kind, name, from, to}.
export function mentions(text) {
  const found = [];
  for (const match of text.matchAll(MENTION)) {
    const [whole, cell, quoted, path] = match;
    const from = match.index;
    if (quoted !== undefined) {
      found.push({ kind: "file", name: unquoted(quoted), from, to: from + whole.length });
      continue;
    }
    const name = (cell ?? path).replace(AROUND, "");
    if (name) found.push({ kind: cell ? "cell" : "file", name, from, to: from + whole.length - (cell ?? path).length + name.length });
  }
  return found;
}

function unquoted(text) {
  try {
    return JSON.parse(`"${text}"`);
  } catch {
    return text;
  }
}

// The same, each name once.
export function named(text) {
  const seen = new Map();
  for (const mention of mentions(text)) {
    const key = `${mention.kind}:${mention.name}`;
    if (!seen.has(key)) seen.set(key, { ...mention, key });
  }
  return [...seen.values()];
}

// The text of a mention.
export function fileMention(path) {
  const plain = `@file:${path}`;
  const [found, more] = mentions(plain);
  return !more && found?.name === path && found.to === plain.length ? plain : `@file:${JSON.stringify(path)}`;
}

export function cellMention(id, ids) {
  const short = id.slice(0, SHORT);
  const alone = /[\p{L}\p{N}_-]$/u.test(short) && ids.filter((other) => other.startsWith(short)).length === 1;
  return `@cell:${alone ? short : id}`;
}

// The cell that a mention means: of that id, or the only one whose id begins so.
export function cellNamed(name, cells) {
  const whole = cells.find((cell) => cell.id === name);
  if (whole) return whole;
  const found = cells.filter((cell) => cell.id.startsWith(name));
  return found.length === 1 ? found[0] : null;
}

// What stands where a mention is taken out of `text`, from the last to the first: {from, to}; the space before it goes too.
export function cuts(text, { kind, name }) {
  return mentions(text)
    .filter((mention) => mention.kind === kind && mention.name === name)
    .map(({ from, to }) => (text[from - 1] === " " ? { from: from - 1, to } : text[to] === " " ? { from, to: to + 1 } : { from, to }))
    .reverse();
}

// Text and mentions in turn, to be drawn.
export function pieces(text) {
  const found = [];
  let at = 0;
  for (const mention of mentions(text)) {
    if (mention.from > at) found.push({ text: text.slice(at, mention.from) });
    found.push({ ...mention, text: text.slice(mention.from, mention.to) });
    at = mention.to;
  }
  if (at < text.length) found.push({ text: text.slice(at) });
  return found;
}

// The first words of a cell.
export function firstWords(cell) {
  const line = cell.source.local.split("\n").find((one) => one.trim()) ?? "";
  const words = line.replace(/^#+\s*/, "").trim();
  return words.length > WORDS ? `${words.slice(0, WORDS)}…` : words;
}
