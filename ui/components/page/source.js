// The text of one cell between the person who types and the server: splices out, splices in, and no typed character lost.
//
// `server` is the text at `version`; `local` is what stands in the editor. One edit is on its way at most (`flight`); its
// answer is the frame that carries its command id. Positions sent and received count code points; inside, UTF-16 units.

const LONGEST = 1000; // milliseconds that typing without a pause may keep from the server

export const SOURCE_LIMIT = 512 * 1024; // bytes of UTF-8, as on the server

// The one splice that leads from `before` to `after`: {at, removed, insert}, in UTF-16 units.
export function difference(before, after) {
  const shorter = Math.min(before.length, after.length);
  let start = 0;
  while (start < shorter && before.charCodeAt(start) === after.charCodeAt(start)) start += 1;
  let end = 0;
  while (
    end < shorter - start &&
    before.charCodeAt(before.length - 1 - end) === after.charCodeAt(after.length - 1 - end)
  ) {
    end += 1;
  }
  if (isLow(before, start) || isLow(after, start)) start -= 1;
  if (end > 0 && (isLow(before, before.length - end) || isLow(after, after.length - end))) end -= 1;
  return { at: start, removed: before.length - start - end, insert: after.slice(start, after.length - end) };
}

export function points(text, units) {
  let count = 0;
  for (let at = 0; at < units; at += 1) if (!isLow(text, at)) count += 1;
  return count;
}

export function units(text, count, from = 0) {
  let at = from;
  for (; count > 0 && at < text.length; count -= 1) at += isHigh(text, at) ? 2 : 1;
  return at;
}

export function bytes(text) {
  return text.length * 3 < SOURCE_LIMIT ? text.length : new TextEncoder().encode(text).length;
}

function spliced(text, splice) {
  return text.slice(0, splice.at) + splice.insert + text.slice(splice.at + splice.removed);
}

// `splice` and `mine` were made on one text: `splice` as it is after `mine`, or null when both touch the same place.
function beyond(splice, mine) {
  if (splice.at + splice.removed <= mine.at && !(splice.at === mine.at && !mine.removed && !splice.removed)) return splice;
  if (splice.at < mine.at + mine.removed || splice.at === mine.at) return null;
  return { ...splice, at: splice.at + mine.insert.length - mine.removed };
}

// What `text`, made from `base`, becomes when `base` has become `theirs` meanwhile; null when both changed the same place.
function joined(base, theirs, text) {
  if (base === theirs) return text;
  if (base === text) return theirs;
  const moved = beyond(difference(base, theirs), difference(base, text));
  return moved && spliced(text, moved);
}

function isLow(text, at) {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code < 0xe000;
}

function isHigh(text, at) {
  const code = text.charCodeAt(at);
  return code >= 0xd800 && code < 0xdc00 && isLow(text, at + 1);
}

// `host` gives send(splice body) -> command id, store(draft or null), show(text, splice or null), notice(words or null),
// keep(text) for text that found no place: a cell of its own.
export class Source {
  constructor(host, source, version, delay = 400) {
    this.host = host;
    this.server = source;
    this.version = version;
    this.local = source;
    this.delay = delay;
    this.flight = null; // {command, text, retried}
    this.conflict = false; // someone else changed what was typed since the flight
    this.timer = null;
    this.since = null; // when the oldest of what is not sent was typed
    this.waiting = []; // resolved when all that was typed is on the server
  }

  get clean() {
    return this.local === this.server && !this.flight;
  }

  type(text) {
    this.local = text;
    this.#remember();
    if (bytes(text) > SOURCE_LIMIT) {
      this.host.notice("Over 512 KiB: not saved. Put part of it in a file or a second cell.");
      return;
    }
    this.host.notice(null);
    const now = performance.now();
    this.since ??= now;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.send(), Math.max(0, Math.min(this.delay, this.since + LONGEST - now)));
  }

  // Sends what is not sent yet, at once; resolves when the server has it all.
  flush() {
    this.send();
    if (this.clean || bytes(this.local) > SOURCE_LIMIT) return Promise.resolve();
    return new Promise((resolve) => this.waiting.push(resolve));
  }

  send() {
    clearTimeout(this.timer);
    this.since = null;
    if (this.flight || this.local === this.server || bytes(this.local) > SOURCE_LIMIT) return;
    this.#launch(difference(this.server, this.local), this.server, this.version, false);
  }

  #launch(splice, base, version, retried) {
    const body = {
      base: version,
      at: points(base, splice.at),
      remove: points(base.slice(splice.at, splice.at + splice.removed), splice.removed),
      insert: splice.insert,
    };
    this.flight = { command: this.host.send(body), text: this.local, retried };
    this.#remember();
  }

  // An `edit` operation of the feed. `splice` is in code points of the server's text.
  edited(op) {
    const at = units(this.server, op.at);
    const splice = { at, removed: units(this.server, op.remove, at) - at, insert: op.insert };
    const before = this.server;
    this.server = spliced(before, splice);
    const version = this.version;
    this.version = op.version;
    if (this.flight && op.command === this.flight.command) {
      this.#answered();
      return;
    }
    if (splice.removed === 0 && splice.insert === "") return;
    const mine = difference(before, this.local);
    const moved = beyond(splice, mine);
    if (this.local === before) {
      this.local = this.server;
      this.host.show(this.local, splice);
    } else if (moved) {
      if (this.flight) this.flight.text = joined(before, this.server, this.flight.text) ?? this.flight.text;
      this.local = spliced(this.local, moved);
      this.host.show(this.local, moved);
    } else if (this.flight) {
      this.conflict = true; // the answer to the flight settles it
    } else {
      this.#launch(mine, before, version, false); // on the old version: the server sees that both touched it, and keeps both
    }
    this.#remember();
  }

  #answered() {
    const { text } = this.flight;
    this.flight = null;
    if (this.conflict && this.local !== this.server) {
      this.host.keep(this.local);
      this.#yield();
    } else if (this.local === text && this.local !== this.server) {
      this.local = this.server; // nothing typed since: the server's merge is the text
      this.host.show(this.local, null);
    }
    this.conflict = false;
    this.#settled();
  }

  // The edit became a cell of its own, because someone else changed the same text first. Returns what was typed, whole.
  beside() {
    const typed = this.local;
    this.flight = null;
    this.conflict = false;
    this.#yield();
    this.#settled();
    return typed;
  }

  // The edit was refused. Once it is tried again on today's text; then what was typed is kept as a cell.
  refused(reason) {
    const { retried } = this.flight;
    this.flight = null;
    this.conflict = false;
    if (this.local !== this.server && !retried) {
      this.#launch(difference(this.server, this.local), this.server, this.version, true);
      return;
    }
    if (this.local !== this.server) {
      this.host.notice(`This change was refused: ${reason}. What you typed is kept in a new cell.`);
      this.host.keep(this.local);
      this.#yield();
    }
    this.#settled();
  }

  #yield() {
    this.local = this.server;
    this.host.show(this.local, null);
  }

  #settled() {
    this.#remember();
    if (this.local !== this.server) this.send();
    if (this.clean) {
      for (const resolve of this.waiting.splice(0)) resolve();
    }
  }

  // A whole new text from a snapshot, after the link was away: nothing local, or the draft goes on from its own version.
  replaced(source, version) {
    if (version === this.version) return;
    const draft = this.local !== this.server || this.flight ? this.draft() : null;
    this.server = source;
    this.version = version;
    this.local = source;
    this.flight = null;
    this.host.show(source, null);
    if (draft) this.restore(draft);
    else this.#settled();
  }

  draft() {
    const { at, removed, insert } = difference(this.server, this.local);
    return {
      version: this.version,
      splice: { at, removed, insert },
      before: this.server.slice(at, at + removed),
      text: this.local,
      command: this.flight?.command ?? null,
      flown: this.flight && difference(this.local, this.flight.text), // leads to the text that the flight brings about
    };
  }

  // What was typed before a reload and may not be on the server. The edit that was on its way may have arrived or not: the
  // text tells. Only what touches someone else's change finds no place, and is kept as a cell.
  restore(draft) {
    const { text, splice, command } = draft;
    const base = spliced(text, { at: splice.at, removed: splice.insert.length, insert: draft.before });
    const flown = command ? spliced(text, draft.flown ?? { at: 0, removed: 0, insert: "" }) : base;
    if (text === this.server) return this.#settled();
    const flying = command && this.server !== flown ? this.#onItsWay(draft.version, base, flown) : null;
    const local = joined(flying === null ? flown : base, this.server, text);
    if (local === null) {
      this.host.keep(text);
      return this.#settled();
    }
    this.local = local;
    this.host.show(local, null);
    if (flying !== null) this.flight = { command, text: flying, retried: false };
    return this.#settled();
  }

  // The text that an edit still on its way, from `base` to `flown`, will lead to; null when it has arrived, or touches what
  // someone else changed.
  #onItsWay(version, base, flown) {
    if (version === this.version) return flown;
    return joined(base, this.server, flown);
  }

  #remember() {
    this.host.store(this.clean ? null : this.draft());
  }
}
