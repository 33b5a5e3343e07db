// The turn of an agent cell as it happens: its rows, how far its bounds are used up, and the line in which a person adds
// to it, answers it or goes on with it.

import NbAsk from "./ask.js";
import NbAttach from "./attach.js";
import NbCall from "./call.js";
import { silence } from "./asks.js";
import { recall, remember } from "./commands.js";
import { atTail, left as wentUp, toTail } from "./follow.js";
import { MentionList } from "./mention_list.js";
import { pressed, Room } from "./room.js";
import { NbContext, NbDelivered, NbDone, NbFailure, NbMessage, NbRequest, NbSearch, NbThought } from "./rows.js";
import { left, pending } from "./story.js";
import { duration } from "./words.js";

const RUNNING = ["queued", "running", "waiting", "cancelling"];
const LIMIT = 20000; // characters of a message, as on the server
const FIRST = 240; // pixels for the rows of a turn that begins
const MORE = 120; // and for those that come of what is said to it

export default {
  name: "NbTurn",
  components: { NbAsk, NbAttach, NbCall, NbContext, NbDelivered, NbDone, NbFailure, NbMessage, NbRequest, NbSearch, NbThought },
  props: { cell: Object, page: Object, clock: Object },
  emits: ["held"], // whether rows are kept out of sight, and the newest in a line when none can be read
  template: `
<div class="turn" data-testid="turn">
  <p v-if="story.left_out" class="small">{{ story.left_out.toLocaleString() }} earlier steps are not shown here.</p>
  <div ref="box" class="story" :tabindex="withheld ? 0 : null" :role="withheld ? 'region' : null"
    :aria-label="withheld ? 'What the turn did' : null" @scroll.passive="scrolled"><div ref="rows">
  <template v-for="(item, at) in story.items" :key="item.key">
    <nb-thought v-if="item.t === 'thought'" :item="item" :streaming="running && at === last" :final="at === final"></nb-thought>
    <nb-call v-else-if="item.t === 'tool'" :item="item" :cell="cell" :page="page" :asks="asking.has(item.call)" :files="made(item)"></nb-call>
    <nb-ask v-else-if="item.t === 'ask'" :ask="item" :page="page" :current="!running && item.run === story.run_id"></nb-ask>
    <nb-message v-else-if="item.t === 'message'" :item="item" :page="page"></nb-message>
    <nb-context v-else-if="item.t === 'context'" :item="item" :page="page"></nb-context>
    <nb-search v-else-if="item.t === 'search'" :item="item"></nb-search>
    <nb-delivered v-else-if="item.t === 'delivered'" :item="item" :files="page.files()" :page="page"></nb-delivered>
    <nb-failure v-else-if="item.t === 'error'" :item="item" :cell="cell"></nb-failure>
    <nb-done v-else-if="item.t === 'done'" :item="item"></nb-done>
    <nb-request v-else-if="item.t === 'request' && at > 0" :item="item" :page="page"></nb-request>
  </template></div></div>
  <div v-if="running" class="budget">
    <template v-if="story.progress"><p class="progress">{{ story.progress.text }}
      <b v-if="share !== null" class="count">{{ share }} %</b></p>
      <div v-if="share !== null" class="bar" role="progressbar" aria-label="Progress" aria-valuemin="0" aria-valuemax="100"
        :aria-valuenow="share"><i :style="{ width: share + '%' }"></i></div></template>
    <p v-if="bounds" class="small count" data-testid="turn-budget">{{ bounds }}</p>
  </div>
  <section v-if="question" class="asked" data-testid="turn-question" :aria-label="'A question for you'">
    <h3>A question for you</h3><p class="words">{{ question }}</p>
    <nb-attach ref="attach" small :text="text" :page="page" :own="cell.id" :host="host"><template #default="{ pick }">
    <form class="say" @submit.prevent="say"><button type="button" class="ghost plus" aria-label="Attach a file or a picture" title="Attach a file or a picture; or paste it, or drop it" @click="pick">+</button>
      <textarea ref="text" v-model="text" rows="1" :maxlength="LIMIT" aria-label="Your answer" v-on="field"
      placeholder="Your answer" data-testid="turn-answer"></textarea>
      <button type="submit" class="main" :disabled="!text.trim()">Answer</button></form></template></nb-attach></section>
  <p v-if="resume" class="resume"><button type="button" data-testid="turn-go-on" :disabled="going" @click="goOn">{{ resume }}</button></p>
  <nb-attach v-if="begun && !question" ref="attach" small :text="text" :page="page" :own="cell.id" :host="host"><template #default="{ pick }">
  <form class="say" @submit.prevent="say">
    <button type="button" class="ghost plus" aria-label="Attach a file or a picture" title="Attach a file or a picture; or paste it, or drop it" @click="pick">+</button>
    <textarea ref="text" v-model="text" rows="1" :maxlength="LIMIT" :aria-label="running ? 'Add to the turn' : 'Reply to the turn'"
      :placeholder="running ? 'Add to it…' : 'Reply…'" data-testid="turn-say" v-on="field"></textarea>
    <button type="submit" :disabled="!text.trim() || stopping">{{ running ? 'Add' : 'Send' }}</button>
  </form></template></nb-attach>
</div>`,
  data: () => ({ LIMIT, text: "", going: false, withheld: false }),
  computed: {
    story() {
      return this.cell.story;
    },
    begun() {
      return this.story.run_id !== null || this.cell.state === "queued";
    },
    running() {
      return RUNNING.includes(this.cell.state);
    },
    stopping() {
      return this.cell.state === "cancelling";
    },
    last() {
      return this.story.items.length - 1;
    },
    // The thought that is the turn's answer: its last word, when nothing was delivered.
    final() {
      if (this.running) return -1;
      const at = this.story.items.findLastIndex((item) => item.t === "thought" || item.t === "delivered" || item.t === "error");
      return this.story.items[at]?.t === "thought" ? at : -1;
    },
    asking() {
      return new Set(pending(this.story).map((item) => item.call));
    },
    share() {
      const { fraction } = this.story.progress ?? {};
      return fraction === null || fraction === undefined ? null : Math.round(100 * Math.min(1, Math.max(0, fraction)));
    },
    bounds() {
      const { round, rounds, attempt } = this.story;
      if (!round) return "";
      const seconds = left(this.story, this.clock.now);
      const words = [rounds ? `Round ${round} of ${rounds}` : `Round ${round}`];
      if (attempt > 1) words.push(`attempt ${attempt}`);
      if (seconds !== null) words.push(`${duration(1000 * seconds).replace(/^0/, "")} left`);
      if (this.cell.state === "waiting") words.push("its time stands still while you are asked");
      return words.join(" · ");
    },
    question() {
      if (this.story.waits_for !== "answer") return "";
      const asked = this.story.items.findLast((item) => item.t === "tool" && item.tool === "ask_person");
      return asked?.text || asked?.arguments?.question || asked?.title || "The turn waits for your answer.";
    },
    // What goes on with a turn that ended at a step. Where silence said no, the card of the question offers it already.
    resume() {
      const { resume_step: step, items, run_id: run } = this.story;
      if (this.running || step === null) return "";
      const last = items.findLast((item) => item.t === "ask" || item.t === "tool");
      const denied = last?.t === "ask" && last.run === run && last.verdict === "deny" ? last : null;
      if (denied && silence(denied)) return "";
      return denied?.reason === "person" ? `Approve step ${step} after all, and go on` : `Go on at step ${step}`;
    },
  },
  watch: {
    running(running) {
      this.going = false;
      if (!running) this.$nextTick(() => this.space.settle()); // the last rows may come with the end
    },
    "cell.asked"(asked) {
      if (asked) this.space.reserve(FIRST);
    },
    "story.run_id"() {
      this.follow = true;
      this.space.begin();
    },
    // A question is never out of sight in its own cell.
    "asking.size": { handler(now, before) { if (now > before) this.space.show(); }, flush: "post" },
    text(text) {
      remember(this.draftKey, text || null);
    },
    // What was said and refused comes back.
    "cell.unsaid"(text) {
      if (text && !this.text) this.text = text;
      this.cell.unsaid = null;
    },
  },
  created() {
    this.draftKey = `nightbook.said.${this.cell.id}`;
    this.text = recall(this.draftKey) ?? "";
    const area = () => this.$refs.text;
    // What chips and list ask for: as long as the field was not in hand, new things go to its end.
    this.host = {
      text: () => this.text,
      caret: () => (document.activeElement === area() ? area().selectionStart : null),
      put: (from, to, insert) => {
        this.text = this.text.slice(0, from) + insert + this.text.slice(to);
        this.$nextTick(() => {
          area()?.setSelectionRange(from + insert.length, from + insert.length);
          this.grow();
          this.list.update();
        });
      },
      focus: () => matchMedia("(hover: none)").matches || area()?.focus(),
      field: area,
      box: () => area().getBoundingClientRect(),
      known: () => ({ own: this.cell.id, cells: this.page.cells(), files: [...this.page.files().values()] }),
      upload: () => this.$refs.attach?.pick(),
    };
    this.list = new MentionList(this.host);
    this.field = {
      input: () => {
        this.grow();
        this.$nextTick(() => this.list.update());
      },
      click: () => this.list.update(),
      keydown: (event) => this.key(event),
      keyup: (event) => ["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key) && this.list.update(),
      blur: () => this.list.close(),
      paste: (event) => this.$refs.attach.transferred(event),
      drop: (event) => this.$refs.attach.transferred(event),
      dragover: (event) => event.dataTransfer?.types.includes("Files") && event.preventDefault(),
    };
    this.follow = true;
    this.scrolledTo = 0;
  },
  mounted() {
    if (this.text && this.$refs.text) this.grow();
    this.space = new Room(this.$refs.box, this.$refs.rows, this.$el.closest(".cell"), {
      active: () => this.running || this.cell.asked,
      held: (...args) => this.held(...args),
      grew: () => this.stay(),
    });
    if (this.cell.asked) this.space.reserve(FIRST);
  },
  beforeUnmount() {
    this.list.close();
    this.space.close();
  },
  methods: {
    // After rows were drawn; `tail`: the reader is at the page's, `opening`: the page is just opened.
    drawn(tail, opening) {
      this.space.drawn(tail, opening);
      this.stay();
    },
    // Who is at the end of the rows stays there.
    stay() {
      const { box } = this.$refs;
      if (this.follow && wentUp(box, this.scrolledTo)) this.follow = false;
      if (this.follow && this.running) toTail(box);
      this.scrolledTo = box.scrollTop;
    },
    scrolled() {
      this.follow = atTail(this.$refs.box);
      this.scrolledTo = this.$refs.box.scrollTop;
    },
    held(height, natural) {
      this.withheld = height !== null && natural > height + 1;
      const { text, title } = this.story.items.at(-1) ?? {};
      const newest = (text ?? title ?? "").trim().split("\n").at(-1).slice(0, 200);
      this.$emit("held", this.withheld, this.withheld && height < 40 ? newest : "");
    },
    unfold() {
      this.space.unfold();
    },
    made(item) {
      return this.page.filesOf(item.call);
    },
    goOn() {
      this.going = true;
      this.page.goOn(this.cell);
    },
    grow() {
      const { text } = this.$refs;
      text.style.height = "auto";
      text.style.height = `${Math.min(text.scrollHeight + 2, 240)}px`;
    },
    key(event) {
      if (this.list.key(event)) return event.preventDefault();
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || matchMedia("(hover: none)").matches) return;
      event.preventDefault();
      this.say();
    },
    async say() {
      await this.$refs.attach?.settled();
      const text = this.text.trim();
      if (!text || this.stopping) return;
      this.page.tell(this.cell, text);
      pressed();
      this.space.reserve(this.$refs.box.offsetHeight + MORE);
      this.text = "";
      await this.$nextTick();
      if (this.$refs.text) this.grow();
    },
  },
};
