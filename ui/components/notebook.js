// The notebook page: the head, the cells, and what connects them with the server. View operations come in through `push`,
// wishes go out by HTTP; the socket only brings news.

import { markRaw, nextTick, reactive } from "vue";
import { heard, inbox } from "nightbook/asks.js";
import NbBar from "nightbook/bar.js";
import NbCell from "nightbook/cell.js";
import { Commands, freshId, recall, remember } from "nightbook/commands.js";
import { deeds } from "nightbook/deeds.js";
import { load } from "nightbook/editor.js";
import NbFind from "nightbook/find.js";
import { Keys } from "nightbook/keys.js";
import { Link } from "nightbook/link.js";
import { Output } from "nightbook/output.js";
import NbPalette from "nightbook/palette.js";
import { Painter } from "nightbook/painter.js";
import { presence, STAND } from "nightbook/presence.js";
import { Source } from "nightbook/source.js";
import NbHead from "nightbook/head.js";
import NbJump from "nightbook/jump.js";
import { operations } from "nightbook/operations.js";
import NbRail from "nightbook/rail.js";
import NbStrip from "nightbook/strip.js";
import { newStory, pending } from "nightbook/story.js";
import { Told } from "nightbook/told.js";
import { turnDeeds } from "nightbook/turn_deeds.js";

const ACTIVE = ["running", "waiting", "cancelling"];
const UNDO = 60000; // milliseconds for which a deletion can be undone

export default {
  components: { NbBar, NbCell, NbFind, NbHead, NbJump, NbPalette, NbRail, NbStrip },
  props: { notebook: String, member: String },
  emits: ["hello", "drawn", "look", "watch", "at"],
  template: `
<div class="nb" :class="{ many: order.length > 30, unknown }">
  <nb-head :title="title" :archived="archived" :sandbox="sandbox" :feed="feed" :seq="seq" :runs="runs" :clock="clock"
    :unsent="unsent" :page="page" :engine="engine" :network="network" :restarted="restarted" :people="people"
    :member="member" :policy="policy" :rules="rules"></nb-head>
  <div v-if="gone" class="page empty" role="alert"><h2>This notebook is not here any more</h2>
    <p><a href="/">All notebooks</a></p></div>
  <div v-else class="page railed">
  <section class="column" aria-label="Cells">
    <nb-strip v-if="absence" :absence="absence" :going="runs.going" :waiting="runs.waiting" @show="showLeft" @dismiss="absence = null"></nb-strip>
    <p class="unseen" role="status" aria-live="polite">{{ spoken }}</p>
    <div v-for="notice in notices" :key="notice.key" class="note" role="alert">{{ notice.text }}
      <button type="button" class="ghost" @click="dismiss(notice)">Dismiss</button></div>
    <nb-cell v-for="(id, at) in order" :key="id" v-memo="[cells.get(id), at, order.length, sandbox.kernel, lines[id]]" :cell="cells.get(id)" :page="page" :clock="clock" :place="at + 1"
      :last="at + 1 === order.length" :gone="sandbox.kernel === 'gone'" :line="lines[id] ?? 0"></nb-cell>
    <div v-if="seq !== null && !order.length" class="empty"><p>No cells yet. Add one to begin.</p></div>
    <div ref="add" class="add" v-show="seq !== null">
      <button type="button" data-testid="cell-add-python" @click="page.add('python')">+ Python</button>
      <button type="button" data-testid="cell-add-agent" @click="page.add('agent')">+ Agent</button>
      <button type="button" data-testid="cell-add-shell" @click="page.add('shell')">+ Shell</button>
      <button type="button" data-testid="cell-add-markdown" @click="page.add('markdown')">+ Text</button>
    </div>
  </section>
  <nb-rail ref="rail" :state="state" :page="page"></nb-rail>
  </div>
  <textarea ref="ahead" class="ahead" tabindex="-1" aria-label="Text of the cell that is being added" autocomplete="off" autocapitalize="off"
    spellcheck="false" @keydown.enter="aheadEnter"></textarea>
  <nb-jump :running="running" @jump="page.show"></nb-jump>
  <nb-palette ref="over" :page="page"></nb-palette>
  <nb-find ref="find" :cells="page.cells" :took="page.replaced" :choose="page.chooseById"></nb-find>
  <nb-bar :asks="hidden" @show="page.showAsk"></nb-bar>
  <div v-if="undo.length || promised" ref="bar" class="undo" role="status" tabindex="-1">
    <span>{{ promised }} {{ deleted }}</span>
    <template v-if="undo.length"><button type="button" @click="restore">Undo</button>
      <button type="button" class="ghost" aria-label="Dismiss" @click="undo = []">✕</button></template></div>
</div>`,
  data: () => ({
    title: null,
    archived: false,
    sandbox: { state: "asleep", kernel: "none", isolation: null, reason: null },
    policy: "ask",
    model: "", // that the notebook chose; empty: as the team did
    rules: [],
    servers: [], // tool servers, with what they listed last
    files: new Map(), // path -> its newest version
    checks: new Map(), // item -> ticked
    onScreen: new Set(), // asks whose card can be seen
    order: [],
    seq: null,
    up: false,
    live: false,
    engine: "here",
    network: navigator.onLine,
    people: [],
    history: [], // entries of the timeline, oldest first
    absence: null, // what the server says of the time one was away
    restarted: "",
    left: null, // the last frame seen before one came back
    gone: false,
    unsent: 0,
    notices: [],
    undo: [], // what was done to cells and can be taken back, the latest last: {what, id, words, command, back}
    adding: [], // cells asked for that are not there yet
    spoken: "",
    inbox, // shared by all that is on the page
    clock: { now: performance.now() },
  }),
  computed: {
    // What the sections of the rail see.
    state() {
      return { order: this.order, cells: this.cells, member: this.member, history: this.history, left: this.left, files: this.files, checks: this.checks, servers: this.servers };
    },
    running() {
      return this.order.filter((id) => ["running", "cancelling"].includes(this.cells.get(id).state));
    },
    // Queued cells and their place in line, from 1.
    lines() {
      const queued = this.order.map((id) => this.cells.get(id)).filter((cell) => cell.state === "queued");
      queued.sort((one, other) => (one.turn ?? 0) - (other.turn ?? 0));
      return Object.fromEntries(queued.map((cell, at) => [cell.id, at + 1]));
    },
    feed() {
      if (!this.up) return "offline";
      if (this.engine !== "here") return "engine-away";
      return this.live && this.seq !== null ? "live" : "catching-up";
    },
    // Whether nobody can tell what runs: clocks and rings stand still, and cells say what was last seen of them.
    unknown() {
      return this.feed === "offline" || this.feed === "engine-away";
    },
    ticks() {
      return this.runs.busy && !this.unknown;
    },
    // What was asked for while nobody can answer.
    promised() {
      if ((this.up && !this.unsent) || !this.adding.length) return "";
      return `${counted(this.adding.length)} will be added when the connection is back.`;
    },
    deleted() {
      const last = this.undo.at(-1);
      if (!last) return "";
      if (last.words) return last.words;
      const gone = this.undo.filter((entry) => entry.what === "deleted");
      const due = gone.filter((entry) => this.order.includes(entry.id)).length;
      if (due && (!this.up || this.unsent)) return `${counted(due)} will be deleted when the connection is back.`;
      return `${counted(gone.length)} deleted.`;
    },
    // The asks of this notebook that wait: {ask, title, cell}.
    asks() {
      return this.order.flatMap((id) => {
        const cell = this.cells.get(id);
        return pending(cell.story).map((item) => ({ ...item, cell: id }));
      });
    },
    // Files by the call whose version of them is the newest.
    filesByCall() {
      const made = new Map();
      for (const file of this.files.values()) {
        if (file.call && !file.deleted) made.set(file.call, [...(made.get(file.call) ?? []), file]);
      }
      return made;
    },
    hidden() {
      return this.asks.filter((item) => !this.onScreen.has(item.ask));
    },
    // How many things wait for a person: asks, questions of turns, lines for programs.
    waiting() {
      const others = this.order.filter((id) => {
        const { state, story } = this.cells.get(id);
        return story.waits_for === "answer" || (state === "waiting" && !pending(story).length);
      });
      return this.asks.length + others.length;
    },
    runs() {
      const cells = this.order.map((id) => this.cells.get(id));
      const running = cells.filter((cell) => ACTIVE.includes(cell.state));
      const going = running.filter((cell) => cell.state !== "waiting");
      return {
        going: going.length,
        queued: cells.filter((cell) => cell.state === "queued").length,
        waiting: this.waiting,
        since: going.length ? Math.min(...going.map((cell) => cell.startedAt ?? Infinity)) : null,
        busy: running.length > 0,
      };
    },
  },
  watch: {
    ticks(on) {
      clearInterval(this.ticking);
      if (on || !this.runs.busy) this.clock.now = performance.now();
      if (on) this.ticking = setInterval(() => (this.clock.now = performance.now()), 500);
    },
    title: "name",
    runs: "name",
    "inbox.asks": "name",
  },
  created() {
    this.told = new Told(this.notebook);
    this.said = new Map(); // command -> {cell, text}: what was said to a turn, until it is surely there
    this.cells = new Map();
    this.pinned = false; // whether the reader stands at the page's tail
    this.touched = new Set();
    this.focusing = this.how = this.from = null;
    this.fresh = recall("nightbook.new") === this.notebook; // just made here: the person wants to type
    remember("nightbook.new", null);
    this.page = markRaw({ ...deeds(this), ...turnDeeds(this) });
    this.chosen = null; // the cell that was in hand last
    this.commands = new Commands(this.notebook, {
      failed: (command, detail) => {
        this.undo = this.undo.filter((entry) => entry.command !== command.id);
        this.refused(command.id, detail, command.cell_id);
      },
      waiting: (count) => (this.unsent = count),
    });
    this.link = new Link({
      connected: () => {
        this.live = false;
        this.look(this.looked !== true); // before the page is drawn, so that the strip above it moves nothing
        this.looked = true;
        this.painter.restart();
        this.commands.kick();
      },
      changed: (up) => {
        this.up = up;
        if (!up) this.awaySince ??= Date.now();
      },
      elements: () => this.$root.elements,
    });
    this.painter = new Painter({
      apply: (op) => this[`on_${op.op}`]?.(op),
      settled: (whole) => this.settle(whole),
      hello: (stream, seq) => {
        this.$emit("hello", { stream, seq });
        this.$emit("watch", {});
      },
      drawn: (stream, n, seq, live) => {
        this.seq = seq;
        this.live = live;
        if (this.link.up) this.$emit("drawn", { stream, n });
      },
    });
  },
  mounted() {
    this.onScroll = () => {
      const page = document.documentElement;
      this.pinned = page.scrollHeight - page.scrollTop - page.clientHeight < 48;
    };
    addEventListener("scroll", this.onScroll, { passive: true });
    this.onLook = () => {
      this.look();
      this.stand();
    };
    this.standsAgain = setInterval(() => !document.hidden && this.stand(), STAND);
    document.addEventListener("visibilitychange", this.onLook);
    this.onNetwork = () => (this.network = navigator.onLine);
    addEventListener("online", this.onNetwork);
    addEventListener("offline", this.onNetwork);
    // A phone takes a tab away without another word.
    this.onHide = () => {
      if (document.visibilityState !== "hidden") return;
      for (const cell of this.cells.values()) cell.source.send();
      this.commands.hurry();
    };
    document.addEventListener("visibilitychange", this.onHide);
    addEventListener("pagehide", this.onHide);
    this.keys = new Keys(this.page, (node) => this.cells.get(node.closest(".cell")?.dataset.cellId) ?? null);
    this.commands.start();
    setTimeout(() => this.link.start()); // the framework makes its socket after this
  },
  unmounted() {
    this.link.stop();
    this.keys.close();
    clearInterval(this.ticking);
    clearInterval(this.standsAgain);
    removeEventListener("scroll", this.onScroll);
    document.removeEventListener("visibilitychange", this.onLook);
    removeEventListener("online", this.onNetwork);
    removeEventListener("offline", this.onNetwork);
    document.removeEventListener("visibilitychange", this.onHide);
    removeEventListener("pagehide", this.onHide);
  },
  methods: {
    // what the server calls
    push(text) {
      this.link.heard();
      this.painter.push(JSON.parse(text));
    },
    beat({ stream, n, engine, people, server, carets }) {
      this.meet(carets);
      this.link.heard();
      this.engine = engine;
      if (people.join("\n") !== this.people.join("\n")) this.people = people;
      this.served(server);
      if (this.painter.beat(stream, n)) this.live = true;
    },
    asked(asks) {
      this.link.heard();
      heard(asks);
      this.told.heard(asks);
    },
    vanished() {
      this.gone = true;
    },

    ...presence,
    ...operations,

    // cells
    made(id, source, version) {
      const key = `nightbook.draft.${this.notebook}.${id}`;
      const cell = reactive({
        id, others: [], peek: false, shown: false, notice: null, asked: false, answered: null, startedAt: null, story: newStory(), unsaid: null, traced: "",
      });
      cell.view = cell.tail = null;
      const runs = `/api/v1/notebooks/${encodeURIComponent(this.notebook)}/runs/`;
      cell.output = markRaw(
        new Output({
          whole: () => (cell.run_id ? `${runs}${encodeURIComponent(cell.run_id)}/output` : null),
          place: (other) => (this.cells.has(other) ? this.order.indexOf(other) + 1 : null),
          visit: (other, line) => this.visit(other, line),
        }),
      );
      const host = {
        send: (splice) => this.commands.send("edit_cell", { cell_id: id, ...splice }),
        store: (draft) => remember(key, draft),
        show: (_, splice) => cell.view?.draw(splice),
        notice: (words) => (cell.notice = words),
        keep: (text) => this.page.add(cell.kind, id, text),
      };
      cell.source = markRaw(new Source(host, source, version));
      cell.draftKey = key;
      return cell;
    },
    fields(cell, fields) {
      const { elapsed, ...others } = fields;
      Object.assign(cell, others);
      if (elapsed !== undefined) cell.startedAt = elapsed === null ? null : performance.now() - elapsed;
      if (!ACTIVE.includes(cell.state)) cell.startedAt = null;
    },
    recover(cell) {
      const draft = recall(cell.draftKey);
      if (draft?.text !== undefined && cell.source.clean) cell.source.restore(draft);
    },
    // An edit of ours that overlapped became `cell`: what was typed since goes on there, and so does the person.
    answered(command, besideId, cell) {
      const origin = this.cells.get(besideId);
      if (!origin || origin.source.flight?.command !== command) return null;
      const editor = origin.view?.editor;
      const caret = editor?.caret ?? null;
      const typed = origin.source.beside();
      if (typed !== cell.source.local) cell.source.type(typed);
      if (caret !== null) {
        this.focusing = cell.id;
        this.from = editor.content;
        this.page.caret = caret;
      }
      return typed;
    },
    drop(id) {
      const cell = this.cells.get(id);
      if (!cell) return;
      this.cells.delete(id);
      if (!cell.source.clean && cell.source.local.trim()) {
        this.say("A cell you were typing in was deleted. Your text is kept in a new cell.");
        this.page.add(cell.kind, undefined, cell.source.local);
      }
      remember(cell.draftKey, null);
    },
    // What is typed for a cell that was asked for waits here; keys that run or add wait for the cell itself.
    aheadEnter(event) {
      if (event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) event.preventDefault();
    },
    refused(command, reason, cellId) {
      const { ahead } = this.$refs;
      if (cellId && cellId === this.focusing && ahead?.value) {
        this.say(`What you typed for the new cell: ${ahead.value}`);
        ahead.value = "";
      }
      this.adding = this.adding.filter((id) => id !== cellId);
      const cell = [...this.cells.values()].find((known) => known.source.flight?.command === command);
      if (cell) {
        cell.source.refused(reason);
        return;
      }
      for (const known of this.cells.values()) if (known.asked === command) known.asked = false;
      const said = this.said.get(command);
      if (said) said.cell.unsaid = said.text;
      this.say(reason);
    },

    // after a slice of drawing
    async settle(whole) {
      if (whole && this.arriving && this.stale) {
        for (const id of this.stale) this.drop(id);
        this.order = this.arriving;
      }
      if (whole && this.staged) Object.assign(this, this.staged);
      if (whole) this.arriving = this.stale = this.staged = null;
      if (whole) load().catch(() => {}); // for the first cell that is taken in hand
      const opening = this.seq === null;
      const reading = this.pinned && !opening;
      await nextTick();
      if (whole) this.arrive();
      for (const cell of this.touched) {
        cell.view?.drawn(reading, opening);
        cell.tail?.();
      }
      if (reading && this.touched.size) window.scrollTo(0, document.documentElement.scrollHeight);
      this.touched.clear();
    },

    // Who followed a link to a question is brought to it, once.
    arrive() {
      const ask = /^#ask-(.+)$/.exec(window.location.hash)?.[1];
      if (!ask || this.arrived) return;
      this.arrived = true;
      this.page.showAsk(decodeURIComponent(ask));
    },

    // words
    say(words) {
      const text = words.charAt(0).toUpperCase() + words.slice(1);
      if (this.notices.some((notice) => notice.text === text)) return;
      this.notices = [...this.notices.slice(-4), { key: freshId(), text }];
    },
    dismiss(notice) {
      this.notices = this.notices.filter((other) => other !== notice);
    },
    speak(id, state) {
      const place = this.order.indexOf(id) + 1;
      const words = { running: "is running", waiting: this.cells.get(id).kind === "agent" ? "asks you something" : "waits for a line from you", done: "is done", error: "failed", cancelled: "was stopped" };
      if (words[state]) this.spoken = `Cell ${place} ${words[state]}`;
    },
    name() {
      const sign = this.runs.waiting ? "Waits: " : this.runs.busy ? "Running: " : "";
      const count = inbox.asks.length ? `(${inbox.asks.length}) ` : "";
      document.title = `${count}${sign}${this.title?.trim() || "Notebook"} · Nightbook`;
    },
    // Something was done to cells that can be taken back.
    took(entry) {
      this.undo = [...this.undo.filter((other) => other.id !== entry.id || other.what !== entry.what), entry];
      this.keepUndo();
    },
    restore() {
      const entry = this.undo.pop();
      if (!entry) return;
      this.focusing = entry.what === "deleted" || entry.what === "merged" ? entry.id : null; // what comes back
      this.how = document.activeElement?.matches(".cell") ? "choose" : "edit";
      this.from = document.activeElement;
      this.page.caret = null;
      entry.back();
      this.keepUndo();
    },
    // Nothing comes of it yet: the focus goes to the words that say so, for a key pressed now must not ask again.
    async wait() {
      await nextTick();
      this.from = this.$refs.bar ?? null;
      this.from?.focus({ preventScroll: true });
    },
    keepUndo() {
      clearTimeout(this.forgetting);
      this.forgetting = setTimeout(() => (this.undo = []), UNDO);
    },
    // The focus goes to a cell, or to what can make one.
    async take(id, whole = false) {
      await nextTick();
      const view = this.cells.get(id)?.view;
      if (view) whole ? view.choose() : view.take();
      else this.$refs.add.querySelector("button").focus();
    },
    // To a line of a cell's source, which is shown as the line in hand.
    visit(id, line) {
      const cell = this.cells.get(id);
      if (!cell?.view) return;
      const lines = cell.source.local.split("\n");
      const at = lines.slice(0, Math.min(line, lines.length) - 1).join("\n").length + (line > 1 ? 1 : 0);
      cell.view.focus(at);
    },
  },
};

function counted(cells) {
  return cells === 1 ? "Cell" : `${cells} cells`;
}
