// The ask card: a tool call that waits for a person. It cannot be overlooked, and it cannot be answered by accident: keys
// count only while the card itself has the focus, and nothing counts in the moment after it appeared or moved.

import { decide, dues, question, reconsider, RISKS, silence, verdictWords } from "./asks.js";
import NbDiff from "./diff.js";
import { hour, span } from "./words.js";

const STEADY = 500; // milliseconds for which it must have stood still
const LOOK = 100; // milliseconds between two looks at where it stands
const NEAR = 2; // pixels that are no move
const LONG = 12; // lines of a command that scroll inside
const MESSAGE = 2000; // characters

export default {
  name: "NbAsk",
  components: { NbDiff },
  props: { ask: Object, page: Object, current: { type: Boolean, default: true } },
  template: `
<section class="askcard" :class="{ decided }" data-testid="ask" :data-ask-id="ask.ask" :data-state="state" tabindex="0" role="group"
  :aria-labelledby="'ask-' + ask.ask" @keydown="key">
  <template v-if="!decided">
    <h3 :id="'ask-' + ask.ask"><span class="ring" aria-hidden="true" :style="{ '--p': share }"></span>{{ question }}</h3>
    <p class="until"><b data-testid="ask-countdown" :data-seconds="Math.ceil(left)">{{ countdown }}</b>
      <span v-if="ask.risk" class="risk" :class="ask.risk">{{ RISKS[ask.risk] }}</span></p>
    <p v-if="ask.again">Asked once more: {{ ask.again }}</p>
    <p v-if="ask.after" class="foreign" data-testid="ask-after"><span class="label">Careful</span> The model proposed this after it had read
      content that nobody here wrote: {{ ask.after }}</p>
    <p v-if="ask.why"><span class="label">Why</span> {{ ask.why }}</p>
    <pre class="command" :class="{ long }" :tabindex="long ? 0 : -1" :role="long ? 'region' : null"
      :aria-label="long ? 'What would be done' : null">{{ ask.command }}</pre>
    <p v-if="long" class="small">{{ lines }} lines in all: scroll to read the rest.</p>
    <p v-if="ask.touches?.length"><span class="label">May touch</span>{{ ' ' }}
      <template v-for="(place, at) in ask.touches" :key="at"><code>{{ place }}</code>{{ ' ' }}</template></p>
    <nb-diff v-if="ask.diff" :text="ask.diff"></nb-diff>
    <div ref="acts" class="acts" role="group" aria-label="Answer">
      <button type="button" class="main" data-testid="ask-approve" :aria-disabled="shut" @click="press($event, 'approve', 'once')">
        Approve once<kbd aria-hidden="true">y</kbd></button>
      <button v-if="ask.rule" type="button" data-testid="ask-always" :aria-disabled="shut" :aria-describedby="'rule-' + ask.ask"
        @click="press($event, 'approve', 'kind')">Always in this notebook</button>
      <button type="button" data-testid="ask-deny" :aria-disabled="shut" @click="press($event, 'deny', 'once')">
        Deny<kbd aria-hidden="true">n</kbd></button>
      <button v-if="!ask.parked" type="button" data-testid="ask-park" :aria-disabled="shut" @click="press($event, 'park', 'once')">
        Park until tomorrow</button>
      <button v-if="!open" type="button" class="ghost" @click="offer">Add a message</button>
    </div>
    <p v-if="ask.rule" :id="'rule-' + ask.ask" class="small">“Always” covers: {{ ask.rule }}</p>
    <label v-if="open" class="message">A message to the agent, sent with your answer
      <textarea ref="message" v-model="message" rows="2" :maxlength="MESSAGE" data-testid="ask-message"></textarea></label>
  </template>
  <template v-else>
    <h3 :id="'ask-' + ask.ask"><span class="mark" :class="ask.verdict" aria-hidden="true">{{ ask.verdict === 'approve' ? '✓' : '✕' }}</span>
      {{ ending }}</h3>
    <p class="what"><code>{{ short }}</code><template v-if="silent"> The agent was told.</template></p>
    <p v-if="ask.message">“{{ ask.message }}”</p>
    <div v-if="offers" class="acts">
      <button type="button" data-testid="ask-reconsider" :aria-disabled="busy" @click="again">Approve and go on</button>
    </div>
  </template>
  <p v-if="told" class="told" role="status">{{ told }}</p>
</section>`,
  data: () => ({ RISKS, MESSAGE, now: performance.now(), steady: false, sent: null, told: "", open: false, message: "", busy: false }),
  computed: {
    decided() {
      return Boolean(this.ask.verdict);
    },
    left() {
      return Math.max(0, ((dues.get(this.ask.ask) ?? this.now) - this.now) / 1000);
    },
    over() {
      return this.left <= 0;
    },
    share() {
      return Math.min(100, (100 * this.left) / this.ask.seconds);
    },
    shut() {
      return !this.steady || this.over || this.sent !== null;
    },
    state() {
      return this.ask.verdict ?? (this.sent ? "sent" : this.over ? "over" : "waiting");
    },
    countdown() {
      if (this.sent) return this.sent;
      if (this.over) return "Time is up. It counts as a no.";
      return `${this.ask.parked ? "Parked. " : ""}Denies itself in ${span(this.left)}`;
    },
    question() {
      return question(this.ask);
    },
    lines() {
      return this.ask.command.split("\n").length;
    },
    long() {
      return this.lines > LONG || this.ask.command.length > 80 * LONG;
    },
    short() {
      const line = this.ask.command.trim().split("\n")[0];
      return line.length < this.ask.command.trim().length || line.length > 200 ? `${line.slice(0, 200)} …` : line;
    },
    silent() {
      return silence(this.ask);
    },
    offers() {
      return this.current && this.silent;
    },
    ending() {
      const { by, decided_at: at } = this.ask;
      return verdictWords(this.ask, by, at ? ` at ${hour(at)}` : "");
    },
  },
  watch: {
    decided: "closed",
    "ask.parked"() {
      this.sent = null;
    },
  },
  mounted() {
    this.place = null;
    this.movedAt = performance.now();
    if (!this.decided) this.attend();
  },
  beforeUnmount() {
    this.leave();
  },
  methods: {
    attend() {
      this.look();
      this.timer = setInterval(() => this.look(), LOOK);
      this.observer = new IntersectionObserver(([entry]) => this.page.seen(this.ask.ask, shown(entry)), {
        rootMargin: "-56px 0px 0px 0px",
        threshold: [0, 0.3, 0.6],
      });
      this.observer.observe(this.$el);
    },
    leave() {
      clearInterval(this.timer);
      this.observer?.disconnect();
      this.page.seen(this.ask.ask, false);
    },
    // Where the buttons stand now. Scrolling is the reader's own doing, and no move.
    look() {
      const now = performance.now();
      const acts = this.$refs.acts;
      if (!acts) return;
      const place = { top: acts.getBoundingClientRect().top, scroll: window.scrollY };
      const before = this.place;
      if (before && Math.abs(place.top - before.top) > NEAR && Math.abs(place.top + place.scroll - before.top - before.scroll) > NEAR) {
        this.movedAt = now;
      }
      this.place = place;
      this.steady = now - this.movedAt >= STEADY;
      if (Math.floor(now / 500) !== Math.floor(this.now / 500)) this.now = now;
    },
    key(event) {
      if (event.key !== "Tab" && !event.ctrlKey && !event.metaKey) event.stopPropagation(); // no letter pressed here is for the cell
      if (event.target !== this.$el || event.repeat || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
      if (this.decided) return;
      const key = event.key.toLowerCase();
      if (key !== "y" && key !== "n") return;
      event.preventDefault();
      this.act(key === "y" ? "approve" : "deny", "once");
    },
    press(event, verdict, scope) {
      if (event.detail > 1) return; // the second half of a double click
      this.act(verdict, scope);
    },
    async act(verdict, scope) {
      this.look();
      if (this.sent !== null || this.over) return;
      if (!this.steady) {
        this.told = "It had just moved. If you meant it, once more.";
        return;
      }
      this.told = "";
      this.sent = { approve: "Approving", deny: "Denying", park: "Parking" }[verdict];
      try {
        await decide(this.ask.ask, verdict, scope, this.message);
        if (this.sent === null) return; // the feed was faster and has told what became of it
        this.sent = { approve: "Approved", deny: "Denied", park: "Parked" }[verdict];
      } catch (problem) {
        this.sent = null;
        this.told = problem.status === 0 ? "The server does not answer, nothing was decided. Try again." : problem.detail;
      }
    },
    async again() {
      if (this.busy) return;
      this.busy = true;
      this.told = "";
      try {
        await reconsider(this.ask.ask);
        this.told = "Approved. The turn goes on.";
      } catch (problem) {
        this.told = problem.status === 0 ? "The server does not answer. Try again." : problem.detail;
      }
      this.busy = false;
    },
    async offer() {
      this.open = true;
      await this.$nextTick();
      this.$refs.message.focus();
    },
    // Decided, here or elsewhere. Who had the focus in it keeps it.
    async closed(now) {
      const held = this.$el.contains(document.activeElement);
      this.sent = null;
      if (now) {
        this.leave();
        this.told = "";
      } else {
        this.attend();
      }
      await this.$nextTick();
      if (held) this.$el.focus({ preventScroll: true });
    },
  },
};

function shown(entry) {
  return entry.isIntersecting && (entry.intersectionRatio >= 0.3 || entry.intersectionRect.height > 160);
}
