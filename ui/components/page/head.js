// The head of a notebook page: its title, what runs, what the sandbox and the link are doing, and the deeds for all cells.

import NbInboxLink from "./inbox_link.js";
import NbPolicy, { policyName } from "./policy.js";
import { duration } from "./words.js";
import { chosen, themeEntries } from "./choice.js";
import NbFaces from "./faces.js";
import NbMenu from "./menu.js";

const FEED = {
  live: ["Live", "What you see is what is."],
  "catching-up": ["Catching up", "Reading what happened meanwhile."],
  network: ["You are offline", "This device has no network. The work goes on; this page comes back by itself."],
  offline: ["Server does not answer", "No connection to the server. What runs there goes on; this page comes back by itself."],
  "engine-away": ["Engine away", "Nothing serves this notebook at the moment. What you ask for is kept until it is back."],
  leaving: ["Server restarts", "The server restarts. What runs goes on; this page comes back by itself."],
  "store-full": ["Database full", "The database has no room left on its disk, so nothing new can be kept. Programs are held up and lose nothing; all goes on by itself once there is room."],
  "store-away": ["Database away", "The server cannot reach its database. What runs goes on; this page comes back by itself."],
};

const SAVED = [["html", "As a web page"], ["md", "As Markdown"], ["txt", "As plain text"]];
const NARROW = matchMedia("(max-width: 760px)"); // as in head.css
const TITLE = 300; // characters, as on the server

export default {
  name: "NbHead",
  props: {
    title: String,
    archived: Boolean,
    sandbox: Object,
    feed: String,
    seq: Number,
    runs: Object,
    clock: Object,
    unsent: Number,
    page: Object,
    engine: String,
    network: Boolean,
    restarted: String,
    people: Array,
    member: String,
    policy: String,
    rules: Array,
  },
  components: { NbFaces, NbInboxLink, NbMenu, NbPolicy },
  template: `
<header class="head">
  <a class="logo" href="/" aria-label="All notebooks" title="All notebooks"></a>
  <h1 ref="title" data-testid="notebook-title" contenteditable="plaintext-only" role="textbox" aria-label="Title"
    title="Click to rename" spellcheck="false" @keydown.enter.prevent="$event.target.blur()"
    @keydown.esc.prevent="cancel" @blur="renamed"></h1>
  <span class="chips">
    <span v-if="runs.going" class="chip busy" :class="{ run: known }"><span class="dot"></span>
      <b><span class="word">Running </span><span class="clock">{{ since }}</span></b>
      <span v-if="known" class="promise">keeps going if you leave</span><span v-else>when last seen</span></span>
    <span v-else-if="runs.queued" class="chip"><span class="dot"></span>{{ runs.queued }} queued</span>
    <button v-if="runs.waiting" type="button" class="chip wait" title="Show it" @click="page.showWaiting()"><span class="dot"></span>
      {{ runs.waiting }} {{ runs.waiting === 1 ? 'waits' : 'wait' }} for you</button>
    <span v-if="archived" class="chip">Archived <button type="button" class="ghost" @click="page.unarchive()">Take it back</button></span>
    <span class="chip" data-testid="sandbox-state" :data-state="sandbox.state" :data-kernel="sandbox.kernel" :title="boxTitle">{{ box }}</span>
    <span class="chip" :class="{ live: feed === 'live', off: feed !== 'live' }" data-testid="feed-state" :data-seq="seq ?? ''"
      :data-state="feed" :title="link[1]" role="status"><span class="dot"></span>{{ link[0] }}</span>
    <span v-if="restarted" class="chip" role="status" data-testid="server-restarted">{{ restarted }}</span>
    <span v-if="unsent" class="chip off" role="status">{{ unsent }} not sent yet</span>
  </span>
  <span class="grow"></span>
  <nb-faces :people="people" :member="member"></nb-faces>
  <nb-inbox-link></nb-inbox-link>
  <nb-policy ref="policy" :policy="policy" :rules="rules" :page="page"></nb-policy>
  <span class="deeds">
    <button type="button" @click="page.stopAll()" :disabled="!runs.busy && !runs.queued">Stop</button>
    <button type="button" class="main" data-testid="run-all" @click="page.runAll()">Run all</button>
  </span>
  <nb-menu :entries="entries"></nb-menu>
</header>
<p v-if="sandbox.isolation === 'process'" class="warn" role="note">Not isolated: code can read what the server's user can.</p>`,
  data: () => ({ theme: chosen(), narrow: NARROW.matches }),
  computed: {
    // What is needed seldom. A part of the notebook with a deed of its own adds it here.
    entries() {
      return [
        ...(this.narrow ? this.unshown : []),
        { label: "Everything by name", hint: "Ctrl+K", run: () => this.page.palette() },
        { label: "Find and replace", hint: "Ctrl+Shift+F", run: () => this.page.find() },
        { label: "Settings", hint: "Models", run: () => (location.href = "/settings") },
        { label: "Keys", hint: "?", run: () => this.page.keys() },
        { heading: "Notebook" },
        { label: "Restart kernel", hint: "A new kernel: variables are gone", run: () => this.page.ask("restart") },
        this.archived
          ? { label: "Take out of the archive", run: () => this.page.unarchive() }
          : { label: "Archive notebook", run: () => this.page.archive() },
        { heading: "Save a copy" },
        ...SAVED.map(([format, label]) => ({ label, run: () => this.page.save(format) })),
        { heading: "Theme" },
        ...themeEntries(this.theme, (theme) => (this.theme = theme)),
      ];
    },
    // What the head has no room for on a phone.
    unshown() {
      const here = this.people.map((person) => (person === this.member ? `${person} (you)` : person)).join(", ");
      return [
        { heading: `${this.link[0]} · ${this.box}` },
        ...(here ? [{ heading: `Here: ${here}` }] : []),
        { label: `Agents: ${policyName(this.policy, this.rules).toLowerCase()}`, hint: "What agents may do unasked", run: () => this.$refs.policy.show() },
      ];
    },
    link() {
      if (this.feed === "offline" && !this.network) return FEED.network;
      if (this.feed !== "live" && this.feed !== "catching-up" && this.engine === "leaving") return FEED.leaving;
      if (this.feed === "engine-away" && this.engine in FEED) return FEED[this.engine];
      return FEED[this.feed];
    },
    known() {
      return this.feed !== "offline" && this.feed !== "engine-away";
    },
    name() {
      return this.title === null ? "" : this.title.trim() || "Untitled notebook";
    },
    since() {
      return Number.isFinite(this.runs.since) ? duration(Math.max(0, this.clock.now - this.runs.since)) : "";
    },
    box() {
      const { state, kernel } = this.sandbox;
      if (state === "lost") return "Sandbox lost, variables gone";
      if (kernel === "gone") return state === "asleep" ? "Sandbox asleep, variables gone" : "Kernel gone, variables gone";
      if (state === "starting") return "Sandbox starting";
      return state === "awake" ? "Sandbox awake" : "Sandbox asleep";
    },
    boxTitle() {
      const { isolation, reason } = this.sandbox;
      return [this.box, isolation ? `Isolation: ${isolation}` : "", reason ?? ""].filter(Boolean).join(". ");
    },
  },
  watch: {
    title: "draw",
  },
  mounted() {
    this.draw();
    this.onWidth = () => (this.narrow = NARROW.matches);
    NARROW.addEventListener("change", this.onWidth);
  },
  unmounted() {
    NARROW.removeEventListener("change", this.onWidth);
  },
  methods: {
    draw() {
      const node = this.$refs.title;
      if (document.activeElement !== node) node.textContent = this.name;
    },
    cancel() {
      this.$refs.title.textContent = this.name;
      this.$refs.title.blur();
    },
    renamed() {
      const node = this.$refs.title;
      const whole = node.textContent.replace(/\s+/g, " ").trim();
      const title = [...whole].slice(0, TITLE).join("");
      if (title.length < whole.length) this.page.say(`A title holds ${TITLE} characters. The rest was left out.`);
      if (title && title !== this.name) this.page.rename(title);
      node.textContent = title || this.name;
      node.scrollLeft = 0;
    },
  },
};
