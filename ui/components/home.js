// The home page: notebooks as calm rows, live. The list comes whole once, then what changed in it.

import { chosen, themeEntries } from "nightbook/choice.js";
import { heard, inbox } from "nightbook/asks.js";
import { call, Commands, freshId, remember } from "nightbook/commands.js";
import NbFaces from "nightbook/faces.js";
import { Link } from "nightbook/link.js";
import NbMenu from "nightbook/menu.js";
import { found, named, sorted, SORTS, windowed } from "nightbook/shelf.js";
import { TOUR } from "nightbook/tour.js";
import NbInboxLink from "nightbook/inbox_link.js";
import { Told } from "nightbook/told.js";
import { ago } from "nightbook/words.js";

const STATES = { running: "Running", queued: "Queued", waiting: "Waits for you", error: "Last run failed", idle: "" };
const SORT = "nightbook.sort";

export default {
  components: { NbFaces, NbInboxLink, NbMenu },
  props: { member: String },
  emits: ["hello", "watch"],
  template: `
<div class="nb home">
  <header class="head">
    <span class="logo" aria-hidden="true"></span><h1>Nightbook</h1>
    <span class="grow"></span>
    <span v-if="!up || away" class="chip off" role="status"><span class="dot"></span>{{ up ? 'Database away' : 'Offline' }}</span>
    <nb-inbox-link></nb-inbox-link>
    <a class="icon" href="/settings" aria-label="Settings" title="Settings: models" data-testid="home-settings"><svg viewBox="0 0 20 20" aria-hidden="true"><path
      d="M3 6h7m4 0h3M3 14h3m4 0h7"/><circle cx="12" cy="6" r="2"/><circle cx="8" cy="14" r="2"/></svg></a>
    <span class="deeds">
      <button type="button" class="main" data-testid="notebook-new" :disabled="making" title="New notebook (n)" @click="blank">New notebook</button>
      <nb-menu :entries="entries"></nb-menu>
    </span>
  </header>
  <div class="page">
    <p v-for="notice in notices" :key="notice.key" class="note" role="alert">{{ notice.text }}</p>
    <div class="shelf">
      <nav class="tabs" aria-label="Which notebooks">
        <button type="button" :aria-pressed="!archived" @click="show(false)">Notebooks</button>
        <button type="button" :aria-pressed="archived" @click="show(true)">Archive</button>
      </nav>
      <span class="grow"></span>
      <template v-if="rows.length">
        <input ref="search" v-model="search" type="search" class="search" data-testid="notebook-search" aria-label="Search by title"
          placeholder="Search by title" autocomplete="off" spellcheck="false" maxlength="200" aria-keyshortcuts="/">
        <select v-model="sort" aria-label="Sort by" data-testid="notebook-sort">
          <option v-for="(name, by) in SORTS" :key="by" :value="by">{{ name }}</option></select>
      </template>
    </div>
    <p class="unseen" role="status">{{ search ? counted : '' }}</p>
    <ul v-if="listed.length" ref="list" class="entries" role="list" :style="{ paddingTop: span[0] * height + 'px', paddingBottom: (listed.length - span[1]) * height + 'px' }">
      <li v-for="(row, at) in drawn" :key="row.id" class="entry" data-testid="notebook-row" :data-notebook-id="row.id" :data-state="row.state"
        :aria-setsize="listed.length" :aria-posinset="span[0] + at + 1">
        <form v-if="renaming === row.id" class="rename" @submit.prevent="rename(row)">
          <input ref="field" v-model="title" maxlength="300" aria-label="New title" @keydown.esc="closed(row)">
          <button type="submit">Rename</button>
          <button type="button" class="ghost" @click="closed(row)">Cancel</button>
        </form>
        <template v-else>
          <a class="name" :href="'/n/' + encodeURIComponent(row.id)">{{ named(row) }}</a>
          <nb-faces :people="row.people" :member="member"></nb-faces>
          <span v-if="STATES[row.state]" class="chip" :class="{ run: row.state === 'running', wait: row.state === 'waiting', bad: row.state === 'error' }">
            <span class="dot"></span>{{ row.waiting > 1 ? row.waiting + ' wait for you' : STATES[row.state] }}</span>
          <span class="when">{{ when(row) }}</span>
          <nb-menu :entries="deeds(row)" :label="'More for ' + named(row)"></nb-menu>
        </template>
      </li>
    </ul>
    <div v-else-if="rows.length" class="empty"><h2>Nothing found</h2><p>No title has “{{ search.trim() }}” in it.</p>
      <button type="button" @click="clear">Clear the search</button></div>
    <div v-else-if="loaded" class="empty">
      <template v-if="archived"><h2>Nothing archived</h2><p>Notebooks you put out of sight wait here. Nothing in them is lost.</p></template>
      <template v-else><h2>Work that keeps going when you leave</h2>
        <p>Start something, close the tab, come back: the page shows what you missed.<br>The tour is a real notebook that lets you try it in a few minutes.</p>
        <p class="choice"><button type="button" class="main" data-testid="tour-start" :disabled="making" @click="tour">Start the tour</button>
        <button type="button" :disabled="making" @click="blank">New notebook</button></p></template>
    </div>
  </div>
  <div v-if="undo" class="undo" role="status"><span>{{ undo.words }}</span>
    <button type="button" @click="takeBack">Undo</button>
    <button type="button" class="ghost" aria-label="Dismiss" @click="undo = null">✕</button></div>
</div>`,
  data: () => ({
    STATES,
    SORTS,
    rows: [],
    loaded: false,
    archived: false,
    up: true,
    away: false,
    making: false,
    renaming: null,
    title: "",
    notices: [],
    search: "",
    sort: kept(),
    theme: chosen(),
    undo: null,
    height: 55, // of one row, measured once there is one
    above: 0, // how much of the list is out of sight, in pixels
    view: innerHeight,
    now: performance.now(),
  }),
  computed: {
    listed() {
      return sorted(found(this.rows, this.search), this.sort);
    },
    span() {
      return windowed(this.listed.length, this.height, this.above, this.view);
    },
    drawn() {
      return this.listed.slice(...this.span);
    },
    counted() {
      return this.listed.length === 1 ? "1 notebook found" : `${this.listed.length} notebooks found`;
    },
    entries() {
      return [
        { label: "Start the tour", hint: "Makes a notebook that shows how Nightbook works", run: () => this.tour() },
        { heading: "Theme" },
        ...themeEntries(this.theme, (theme) => (this.theme = theme)),
      ];
    },
  },
  watch: {
    sort(by) {
      try {
        localStorage.setItem(SORT, by);
      } catch {
        // The browser keeps nothing: the order lasts as long as the page.
      }
    },
    listed: "measure",
  },
  created() {
    this.queues = new Map();
    this.told = new Told();
    this.link = new Link({ connected: () => (this.hello(), this.$emit("watch", {})), changed: (up) => (this.up = up), elements: () => this.$root.elements });
  },
  mounted() {
    setTimeout(() => this.link.start()); // the framework makes its socket after this
    this.ticking = setInterval(() => (this.now = performance.now()), 15000);
    this.onScroll = () => this.measure();
    addEventListener("scroll", this.onScroll, { passive: true });
    addEventListener("resize", this.onScroll);
    this.onKey = (event) => this.key(event);
    document.addEventListener("keydown", this.onKey);
  },
  unmounted() {
    this.link.stop();
    clearInterval(this.ticking);
    removeEventListener("scroll", this.onScroll);
    removeEventListener("resize", this.onScroll);
    document.removeEventListener("keydown", this.onKey);
  },
  methods: {
    named,
    hello() {
      this.stream = Date.now();
      this.$emit("hello", { stream: this.stream, archived: this.archived });
    },
    // what the server calls
    list(stream, rows) {
      this.link.heard();
      if (stream !== this.stream) return;
      this.rows = rows.map((row) => this.received(row));
      this.loaded = true;
      this.away = false;
    },
    changes(stream, rows, gone) {
      this.link.heard();
      if (stream !== this.stream) return;
      const left = new Set([...gone, ...rows.map((row) => row.id)]);
      this.rows = [...this.rows.filter((row) => !left.has(row.id)), ...rows.map((row) => this.received(row))];
      this.away = false;
    },
    asked(asks) {
      this.link.heard();
      heard(asks);
      this.told.heard(asks);
      document.title = inbox.asks.length ? `(${inbox.asks.length}) Nightbook` : "Nightbook";
    },
    beat(stream, engine) {
      this.link.heard();
      this.away = engine !== "here";
    },
    received(row) {
      this.now = performance.now();
      return Object.freeze({ ...row, since: this.now - row.ago * 1000 });
    },

    show(archived) {
      this.archived = archived;
      this.rows = [];
      this.loaded = false;
      this.renaming = this.undo = null;
      this.search = "";
      if (this.link.up) this.hello();
    },
    when(row) {
      return ago((this.now - row.since) / 1000);
    },
    // Which rows are in sight; they all have one height.
    async measure() {
      await this.$nextTick();
      const list = this.$refs.list;
      if (!list) return;
      const row = list.querySelector(".entry");
      if (row) this.height = row.offsetHeight || this.height;
      const above = Math.max(0, -list.getBoundingClientRect().top);
      if (Math.abs(above - this.above) > this.height * 4 || above < this.height) this.above = above;
      this.view = innerHeight;
    },

    // deeds
    deeds(row) {
      return [
        { label: "Rename", run: () => this.ask(row) },
        { label: this.archived ? "Take back" : "Archive", run: () => this.archive(row, !this.archived) },
      ];
    },
    send(row, kind, fields) {
      if (!this.queues.has(row.id)) {
        this.queues.set(row.id, new Commands(row.id, { failed: (_, detail) => this.say(detail), waiting: () => {} }));
      }
      this.queues.get(row.id).send(kind, fields);
    },
    ask(row) {
      this.title = row.title;
      this.renaming = row.id;
      this.$nextTick(() => this.$refs.field?.[0]?.select());
    },
    rename(row) {
      const title = this.title.trim();
      if (title && title !== row.title) this.send(row, "rename", { title });
      this.closed(row);
    },
    async closed(row) {
      this.renaming = null;
      await this.$nextTick();
      this.focus(row.id);
    },
    archive(row, archived) {
      this.send(row, "archive", { archived });
      this.undo = { row, archived, words: `${named(row)} is ${archived ? "in the archive" : "back in the list"}.` };
    },
    takeBack() {
      const { row, archived } = this.undo;
      this.send(row, "archive", { archived: !archived });
      this.undo = null;
    },
    blank() {
      return this.make({ title: "Untitled notebook", cells: [{ kind: "python", source: "" }] }, true);
    },
    tour() {
      return this.make(TOUR, false);
    },
    async make(notebook, write) {
      if (this.making) return;
      this.making = true;
      try {
        const { id } = await call("/api/v1/notebooks", notebook);
        if (write) remember("nightbook.new", id);
        window.location.href = `/n/${encodeURIComponent(id)}`;
      } catch (problem) {
        this.say(problem.detail);
        this.making = false;
      }
    },
    say(text) {
      this.notices = [...this.notices.slice(-2), { key: freshId(), text }];
    },

    // keyboard
    key(event) {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
      const at = document.activeElement;
      const searching = at === this.$refs.search;
      if (searching && event.key === "Escape") this.clear();
      else if (searching && event.key === "Enter") this.$refs.list?.querySelector(".name")?.click();
      else if (event.key === "ArrowDown" && (searching || !at.matches("input, select"))) this.step(1);
      else if (event.key === "ArrowUp" && !at.matches("input, select")) this.step(-1);
      else if (at.matches("input, select, textarea")) return;
      else if (event.key === "/") this.$refs.search?.focus();
      else if (event.key === "n") this.blank();
      else return;
      event.preventDefault();
    },
    clear() {
      this.search = "";
      this.$refs.search?.focus();
    },
    step(by) {
      const id = document.activeElement.closest("[data-notebook-id]")?.dataset.notebookId;
      const at = this.listed.findIndex((row) => row.id === id);
      if (at === 0 && by < 0) this.$refs.search?.focus();
      else this.focus(this.listed[at < 0 ? 0 : Math.min(this.listed.length - 1, at + by)]?.id);
    },
    focus(id) {
      const node = document.querySelector(`[data-notebook-id="${CSS.escape(id ?? "")}"] .name`);
      node?.focus();
      node?.scrollIntoView({ block: "nearest" });
    },
  },
};

function kept() {
  try {
    const by = localStorage.getItem(SORT);
    return by in SORTS ? by : "changed";
  } catch {
    return "changed";
  }
}
