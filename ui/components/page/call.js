// A tool call of a turn as one line; it opens to what it was given and what came of it. While it runs, what it prints
// stands under it.

import NbDiff from "./diff.js";
import { atTail, left, toTail } from "./follow.js";
import { hour, took } from "./words.js";

const STATES = {
  open: ["next", ""],
  begun: ["running", "going"],
  done: ["done", "good"],
  error: ["failed", "bad"],
  denied: ["denied", "bad"],
  unknown: ["outcome unknown", "bad"],
  cancelled: ["stopped", ""],
};

export default {
  name: "NbCall",
  components: { NbDiff },
  props: { item: Object, cell: Object, asks: Boolean, files: Array, page: Object },
  template: `
<div class="call" :class="{ opened }" :data-call="item.call" :data-status="item.status">
  <button type="button" class="row" :aria-expanded="opened" @click="opened = !opened">
    <span class="t">{{ at }}</span>
    <span class="fold" aria-hidden="true">{{ opened ? '▾' : '▸' }}</span>
    <span class="name">{{ tick }}{{ item.title || item.tool }}</span>
    <span class="took" v-if="item.ms">{{ took(item.ms) }}</span>
    <span class="status" :class="look">{{ word }}</span>
  </button>
  <div v-if="opened" class="inside">
    <template v-for="[name, value] in given" :key="name"><p class="label">{{ name }}</p><pre tabindex="0">{{ value }}</pre></template>
    <nb-diff v-if="item.diff" :text="item.diff"></nb-diff>
    <template v-if="item.text"><p class="label">Result</p><pre tabindex="0" class="result">{{ item.text }}</pre></template>
    <p v-if="item.left_out" class="small">{{ item.left_out.toLocaleString() }} bytes of it are left out here.</p>
    <p v-if="ended && !item.text && !item.diff" class="small">It gave no text.</p>
  </div>
  <div v-show="live && cell.shown" ref="live" class="livetext" data-testid="call-output" role="region" aria-label="What it prints" tabindex="0"
    @scroll.passive="scrolled"></div>
  <p v-if="files.length" class="files"><a v-for="file in files" :key="file.path" class="filechip" :href="page.file(file)" target="_blank">
    {{ file.path }}<span>v{{ file.version }}</span></a></p>
</div>`,
  data: () => ({ opened: false }),
  computed: {
    at() {
      return this.item.at ? hour(this.item.at, true) : "";
    },
    live() {
      return this.item.status === "begun" && Boolean(this.item.output);
    },
    ended() {
      return !["open", "begun"].includes(this.item.status);
    },
    word() {
      return this.asks ? "waits for you" : (STATES[this.item.status] ?? [this.item.status])[0];
    },
    look() {
      return this.asks ? "wait" : STATES[this.item.status]?.[1];
    },
    tick() {
      if (this.item.tool !== "check") return "";
      return this.item.arguments?.done === false ? "☐ " : "☑ ";
    },
    given() {
      return Object.entries(this.item.arguments ?? {}).map(([name, value]) => [
        name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " "),
        typeof value === "string" ? value : JSON.stringify(value, null, 1),
      ]);
    },
  },
  watch: {
    live: { handler: "adopt", flush: "post" },
  },
  mounted() {
    this.follow = true;
    if (this.live) this.adopt(true);
  },
  beforeUnmount() {
    if (this.cell.tail === this.tail) this.cell.tail = null;
  },
  methods: {
    took,
    // The cell's output is that of the call at hand.
    adopt(live) {
      if (!live) return;
      this.follow = true;
      this.scrolledTo = 0;
      this.$refs.live.append(this.cell.output.root);
      this.tail ??= () => {
        const box = this.$refs.live;
        if (!box) return;
        if (this.follow && left(box, this.scrolledTo)) this.follow = false;
        if (this.follow) toTail(box);
        this.scrolledTo = box.scrollTop;
      };
      this.cell.tail = this.tail;
      this.tail();
    },
    scrolled() {
      const box = this.$refs.live;
      this.follow = atTail(box);
      this.scrolledTo = box.scrollTop;
    },
  },
};
