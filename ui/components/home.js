// The home page: notebooks as calm rows, live. The list comes whole, whenever something in it changed.

import { call, Commands, freshId, remember } from "nightbook/commands.js";
import { Link } from "nightbook/link.js";
import { ago } from "nightbook/words.js";

const STATES = { running: "Running", queued: "Queued", waiting: "Waits for you", error: "Last run failed", idle: "" };

export default {
  emits: ["hello"],
  template: `
<div class="nb home">
  <header class="head">
    <span class="logo" aria-hidden="true"></span><h1>Nightbook</h1>
    <span class="grow"></span>
    <span v-if="!up || away" class="chip off" role="status"><span class="dot"></span>{{ up ? 'Database away' : 'Offline' }}</span>
    <button type="button" class="main" data-testid="notebook-new" :disabled="making" @click="make">New notebook</button>
  </header>
  <div class="page">
    <p v-for="notice in notices" :key="notice.key" class="note" role="alert">{{ notice.text }}</p>
    <nav class="tabs" aria-label="Which notebooks">
      <button type="button" :aria-pressed="!archived" @click="show(false)">Notebooks</button>
      <button type="button" :aria-pressed="archived" @click="show(true)">Archive</button>
    </nav>
    <ul v-if="rows.length" class="entries">
      <li v-for="row in rows" :key="row.id" class="entry" data-testid="notebook-row" :data-notebook-id="row.id" :data-state="row.state">
        <form v-if="renaming === row.id" class="rename" @submit.prevent="rename(row)">
          <input ref="field" v-model="title" maxlength="300" aria-label="New title" @keydown.esc="named(row)">
          <button type="submit">Rename</button>
          <button type="button" class="ghost" @click="named(row)">Cancel</button>
        </form>
        <template v-else>
          <a class="name" :href="'/n/' + encodeURIComponent(row.id)">{{ name(row) }}</a>
          <span v-if="STATES[row.state]" class="chip" :class="{ run: row.state === 'running', wait: row.state === 'waiting', bad: row.state === 'error' }">
            <span class="dot"></span>{{ row.waiting > 1 ? row.waiting + ' wait for you' : STATES[row.state] }}</span>
          <span class="when">{{ when(row) }}</span>
          <span class="tools">
            <button type="button" class="ghost" :aria-label="'Rename ' + name(row)" @click="ask(row)">Rename</button>
            <button type="button" class="ghost" :aria-label="(archived ? 'Take back ' : 'Archive ') + name(row)" @click="archive(row)">
              {{ archived ? 'Take back' : 'Archive' }}</button>
          </span>
        </template>
      </li>
    </ul>
    <div v-else-if="loaded" class="empty">
      <template v-if="archived"><h2>Nothing archived</h2><p>Notebooks you put out of sight wait here. Nothing in them is lost.</p></template>
      <template v-else><h2>No notebooks yet</h2>
        <p>Start one, run a cell, close the tab. The work goes on, and the page shows what you missed.</p>
        <button type="button" class="main" :disabled="making" @click="make">New notebook</button></template>
    </div>
  </div>
</div>`,
  data: () => ({
    STATES,
    rows: [],
    loaded: false,
    archived: false,
    up: true,
    away: false,
    making: false,
    renaming: null,
    title: "",
    notices: [],
    now: performance.now(),
  }),
  created() {
    this.queues = new Map();
    this.link = new Link({ connected: () => this.hello(), changed: (up) => (this.up = up) });
  },
  mounted() {
    setTimeout(() => this.link.start()); // the framework makes its socket after this
    this.ticking = setInterval(() => (this.now = performance.now()), 15000);
  },
  unmounted() {
    this.link.stop();
    clearInterval(this.ticking);
  },
  methods: {
    hello() {
      this.stream = Date.now();
      this.$emit("hello", { stream: this.stream, archived: this.archived });
    },
    arrived(rows) {
      this.receivedAt = this.now = performance.now();
      this.rows = rows;
      this.loaded = true;
      this.away = false;
    },
    // what the server calls
    list(stream, rows) {
      this.link.heard();
      if (stream === this.stream) this.arrived(rows);
    },
    beat(stream, engine) {
      this.link.heard();
      this.away = engine !== "here";
    },
    show(archived) {
      this.archived = archived;
      this.rows = [];
      this.loaded = false;
      this.renaming = null;
      if (this.link.up) this.hello();
    },
    name(row) {
      return row.title.trim() || "Untitled notebook";
    },
    when(row) {
      return ago(row.ago + (this.now - this.receivedAt) / 1000);
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
      this.named(row);
    },
    async named(row) {
      this.renaming = null;
      await this.$nextTick();
      document.querySelector(`[data-notebook-id="${CSS.escape(row.id)}"] .name`)?.focus();
    },
    archive(row) {
      this.send(row, "archive", { archived: !this.archived });
    },
    async make() {
      this.making = true;
      try {
        const { id } = await call("/api/v1/notebooks", { title: "Untitled notebook", cells: [{ kind: "python", source: "" }] });
        remember("nightbook.new", id);
        window.location.href = `/n/${encodeURIComponent(id)}`;
      } catch (problem) {
        this.say(problem.detail);
        this.making = false;
      }
    },
    say(text) {
      this.notices = [...this.notices.slice(-2), { key: freshId(), text }];
    },
  },
};
