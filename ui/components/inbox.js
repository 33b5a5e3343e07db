// The inbox: all questions of all notebooks, each with the card that its notebook shows, answered in place.

import NbAsk from "nightbook/ask.js";
import { heard, inbox } from "nightbook/asks.js";
import { Link } from "nightbook/link.js";
import { state, tellMe, Told } from "nightbook/told.js";

const TELLING = {
  on: "This browser tells you when a question comes and you look elsewhere, as long as a tab of Nightbook is open.",
  off: "",
  forbidden: "This browser forbids notifications for this address. Its own settings allow them.",
  unable: "This browser cannot notify you here: it does so only over https, or on this machine.",
};

export default {
  components: { NbAsk },
  emits: ["hello"],
  template: `
<div class="nb inboxed">
  <header class="head">
    <a class="logo" href="/" aria-label="All notebooks" title="All notebooks"></a><h1>Inbox</h1>
    <span v-if="waiting" class="chip wait" data-testid="inbox-count" :data-count="waiting" role="status"><span class="dot"></span>{{ waiting }} {{ waiting === 1 ? 'waits' : 'wait' }} for you</span>
    <span class="grow"></span>
    <span v-if="!up || away" class="chip off" role="status"><span class="dot"></span>{{ up ? 'Database away' : 'Offline' }}</span>
    <button v-if="telling === 'off'" type="button" data-testid="tell-me" @click="tell(true)">Tell me in this browser</button>
    <button v-if="telling === 'on'" type="button" class="ghost" data-testid="tell-me-not" @click="tell(false)">Do not tell me</button>
  </header>
  <div class="page">
    <p v-if="TELLING[telling]" class="small">{{ TELLING[telling] }}</p>
    <section v-for="item in shown" :key="item.ask" class="waits" data-testid="inbox-item">
      <p class="whence"><a :href="address(item)">{{ item.notebook?.trim() || 'Untitled notebook' }}</a></p>
      <nb-ask :ask="item" :page="page"></nb-ask>
    </section>
    <div v-if="known && !shown.length" class="empty"><h2>Nothing waits for you</h2>
      <p>When an agent asks before it acts, its question comes here, from every notebook.</p><p><a href="/">All notebooks</a></p></div>
    <p v-if="!known" class="small" role="status">Looking what waits</p>
  </div>
</div>`,
  data: () => ({ TELLING, shown: [], known: false, up: true, away: false, telling: state(), inbox }),
  computed: {
    waiting() {
      return this.shown.filter((item) => !item.verdict).length;
    },
  },
  watch: {
    waiting(count) {
      document.title = `${count ? `(${count}) ` : ""}Inbox · Nightbook`;
    },
  },
  created() {
    this.told = new Told();
    this.page = { seen: () => {} };
    this.link = new Link({ connected: () => this.$emit("hello", {}), changed: (up) => (this.up = up), elements: () => this.$root.elements });
  },
  mounted() {
    setTimeout(() => this.link.start()); // the framework makes its socket after this
  },
  unmounted() {
    this.link.stop();
  },
  methods: {
    // What was decided while it was looked at stays, with its ending, until the page is opened anew; nothing jumps.
    asked(asks, closed) {
      this.link.heard();
      heard(asks);
      this.told.heard(asks);
      const now = new Map(asks.map((ask) => [ask.ask, ask]));
      const ended = new Map(closed.map((ask) => [ask.ask, ask]));
      const kept = this.shown.map((item) => now.get(item.ask) ?? { ...item, ...(item.verdict ? {} : ended.get(item.ask) ?? { verdict: "deny", reason: "changed" }) });
      const places = new Set(kept.map((item) => item.ask));
      this.shown = [...kept, ...asks.filter((ask) => !places.has(ask.ask))];
      this.known = true;
      this.away = false;
    },
    beat(engine) {
      this.link.heard();
      this.away = engine !== "here";
    },
    async tell(yes) {
      this.telling = await tellMe(yes);
    },
    address(item) {
      return `/n/${encodeURIComponent(item.notebook_id)}#ask-${encodeURIComponent(item.ask)}`;
    },
  },
};
