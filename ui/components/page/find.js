// Find and replace in the text of all cells, shown or not. What is replaced goes out as edits, as if it had been typed.

const MOST = 9999; // places that are counted
const MARKED = 1000; // places that are marked in the text at once
const LOOK = 400; // milliseconds between two looks at texts that others may have changed

const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

// The pattern asked for, or null when it is none.
export function pattern({ text, regex, word, exact }, flags) {
  const body = regex ? text : escaped(text);
  const whole = word ? `(?<![\\p{L}\\p{N}_])(?:${body})(?![\\p{L}\\p{N}_])` : body;
  const all = `${flags}m${exact ? "" : "i"}`;
  try {
    return new RegExp(whole, `${all}u`);
  } catch {
    if (word) return null;
    try {
      return new RegExp(whole, all); // escapes that only the older syntax knows
    } catch {
      return null;
    }
  }
}

// Where `found` (a global pattern) is in `text`, at most `most` places: [from, to] in UTF-16 units. Nothing is no place.
export function places(text, found, most = MOST) {
  const all = [];
  found.lastIndex = 0;
  for (let match; all.length < most && (match = found.exec(text)); ) {
    if (match[0]) all.push([match.index, match.index + match[0].length]);
    else found.lastIndex += text.codePointAt(found.lastIndex) > 0xffff ? 2 : 1;
  }
  return all;
}

// `replacement` as String.replace takes it: $1 and $& mean something in a regular expression only.
export function replaced(text, asked, at, replacement) {
  const found = pattern(asked, at === null ? "g" : "y");
  if (at !== null) found.lastIndex = at;
  const literal = asked.regex ? replacement.replace(/\\n/g, "\n").replace(/\\t/g, "\t") : replacement.replace(/\$/g, "$$$$");
  return text.replace(found, literal);
}

// A range over still text, by places in it.
function range(node, from, to) {
  const made = document.createRange();
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  let at = 0;
  let begun = false;
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const end = at + text.length;
    if (!begun && from < end) {
      made.setStart(text, from - at);
      begun = true;
    }
    if (begun && to <= end) {
      made.setEnd(text, to - at);
      return made;
    }
    at = end;
  }
  return null;
}

export default {
  name: "NbFind",
  props: { cells: Function, took: Function, choose: Function },
  template: `
<div v-if="on" class="find" role="search" aria-label="Find and replace" @keydown.esc.stop.prevent="close">
  <div class="find-row">
    <input ref="field" v-model="asked.text" type="text" aria-label="Find" placeholder="Find" autocomplete="off" autocapitalize="off"
      spellcheck="false" @keydown.enter.prevent="go($event.shiftKey ? -1 : 1)">
    <span class="count" role="status" :class="{ bad: wrong }">{{ words }}</span>
    <button type="button" class="ghost" aria-label="Previous" title="Previous (Shift+Enter)" :disabled="!found.length" @click="go(-1)">↑</button>
    <button type="button" class="ghost" aria-label="Next" title="Next (Enter)" :disabled="!found.length" @click="go(1)">↓</button>
    <button type="button" class="ghost" aria-label="Close" title="Close (Esc)" @click="close">✕</button>
  </div>
  <div class="find-row">
    <input v-model="other" type="text" aria-label="Replace by" placeholder="Replace by" autocomplete="off" autocapitalize="off"
      spellcheck="false" @keydown.enter.prevent="replace">
    <button type="button" :disabled="!found.length" @click="replace">Replace</button>
    <button type="button" :disabled="!found.length" @click="replaceAll">All</button>
  </div>
  <div class="find-row options">
    <label v-for="[name, label] in OPTIONS" :key="name"><input v-model="asked[name]" type="checkbox">{{ label }}</label>
  </div>
</div>`,
  data: () => ({
    OPTIONS: [["exact", "Match case"], ["word", "Whole words"], ["regex", "Pattern"]],
    on: false,
    asked: { text: "", exact: false, word: false, regex: false },
    other: "",
    found: [], // {id, from, to}, in the order of the page
    at: -1,
    wrong: false,
  }),
  computed: {
    words() {
      if (!this.asked.text) return "";
      if (this.wrong) return "No valid pattern";
      if (!this.found.length) return "Nothing found";
      const count = this.found.length === MOST ? `${MOST}+` : this.found.length;
      return this.at < 0 ? `${count} found` : `${this.at + 1} of ${count}`;
    },
  },
  watch: {
    asked: {
      deep: true,
      handler() {
        this.look();
        this.at = this.nearest();
        this.show();
      },
    },
  },
  beforeUnmount() {
    this.close();
  },
  methods: {
    // `text` to look for, from `cell` on.
    open(text, cell) {
      this.from = cell ?? null;
      if (text) this.asked.text = text;
      this.on = true;
      this.look();
      this.at = this.nearest();
      this.show();
      clearInterval(this.looking);
      this.looking = setInterval(() => this.changed() && this.look() && this.mark(), LOOK);
      this.$nextTick(() => {
        this.$refs.field.focus();
        this.$refs.field.select();
      });
    },
    close() {
      if (!this.on) return;
      clearInterval(this.looking);
      const id = this.found[this.at]?.id ?? this.from?.id;
      this.on = false;
      this.found = [];
      this.mark();
      this.peek(null);
      if (id) this.choose(id);
    },
    changed() {
      const cells = this.cells();
      return cells.length !== this.seen?.length || cells.some((cell, at) => cell.source.local !== this.seen[at]);
    },
    look() {
      const cells = this.cells();
      const before = this.found[this.at];
      this.seen = cells.map((cell) => cell.source.local);
      const found = this.asked.text ? pattern(this.asked, "g") : null;
      this.wrong = Boolean(this.asked.text) && !found;
      const all = [];
      for (const cell of found ? cells : []) {
        for (const [from, to] of places(cell.source.local, found, MOST - all.length)) all.push({ id: cell.id, from, to });
      }
      this.found = all;
      if (before) this.at = all.findIndex((place) => place.id === before.id && place.from >= before.from);
      if (this.at >= all.length) this.at = all.length - 1;
      return true;
    },
    nearest() {
      if (!this.found.length) return -1;
      const order = this.cells().map((cell) => cell.id);
      const begin = this.from ? order.indexOf(this.from.id) : 0;
      return Math.max(0, this.found.findIndex((place) => order.indexOf(place.id) >= begin));
    },
    go(by) {
      this.look();
      const count = this.found.length;
      this.at = count ? (this.at + by + count) % count : -1;
      this.show();
    },
    cell(id) {
      return this.cells().find((cell) => cell.id === id);
    },
    // Folded and drawn text stands open while the place in it is looked at.
    peek(cell) {
      if (this.peeked && this.peeked !== cell) {
        this.peeked.peek = false;
        this.peeked.view?.leave();
      }
      this.peeked = cell;
      if (!cell) return;
      cell.peek = true;
      if (cell.kind === "markdown" && cell.view) cell.view.editing = true;
    },
    async show() {
      const place = this.found[this.at];
      this.peek(place ? this.cell(place.id) : null);
      await this.$nextTick();
      this.mark();
      const view = place && this.cell(place.id)?.view;
      if (!view) return;
      view.$el.scrollIntoView({ block: "nearest" });
      const box = range(view.editor.content, place.from, place.to)?.getBoundingClientRect();
      if (box && (box.top < 130 || box.bottom > innerHeight - 60)) scrollBy(0, box.top - innerHeight / 2);
    },
    mark() {
      if (!globalThis.Highlight) return;
      const now = [];
      const others = [];
      const first = Math.max(0, Math.min(this.at - MARKED / 2, this.found.length - MARKED));
      this.found.slice(first, first + MARKED).forEach((place, index) => {
        const node = this.cell(place.id)?.view?.editor.content;
        const made = node && range(node, place.from, place.to);
        if (made) (first + index === this.at ? now : others).push(made);
      });
      CSS.highlights.set("nb-found", new Highlight(...others));
      CSS.highlights.set("nb-found-now", new Highlight(...now));
    },
    put(cell, text) {
      cell.source.type(text);
      cell.view?.draw();
      cell.source.send();
    },
    replace() {
      this.look();
      const place = this.found[this.at];
      if (!place) return this.go(1);
      const cell = this.cell(place.id);
      const before = cell.source.local;
      const after = replaced(before, this.asked, place.from, this.other);
      this.put(cell, after);
      this.took([{ cell, before, after }], 1);
      const end = place.to + after.length - before.length;
      this.look();
      const order = this.cells().map((other) => other.id);
      const own = order.indexOf(place.id);
      const next = this.found.findIndex((one) => order.indexOf(one.id) > own || (one.id === place.id && one.from >= end));
      this.at = next < 0 ? (this.found.length ? 0 : -1) : next;
      this.show();
    },
    replaceAll() {
      this.look();
      const count = this.found.length;
      const ids = new Set(this.found.map((place) => place.id));
      const changes = this.cells()
        .filter((cell) => ids.has(cell.id))
        .map((cell) => ({ cell, before: cell.source.local, after: replaced(cell.source.local, this.asked, null, this.other) }));
      for (const { cell, after } of changes) this.put(cell, after);
      this.took(changes, count);
      this.look();
      this.at = this.found.length ? 0 : -1;
      this.show();
    },
  },
};
