// What else a turn tells, each kind as a row of its own: what it was asked, thoughts, searches, messages, what it
// delivered, what went wrong, and the line that closes it.

import { markdown } from "./markdown.js";
import { cellNamed, pieces } from "./mentions.js";
import { took } from "./words.js";

const SHORT = 140; // characters of a thought's first line
const WEB = /^https?:\/\//i;

const Prose = {
  props: { text: String },
  template: `<div ref="prose" class="prose said"></div>`,
  watch: { text: { handler: "draw", flush: "post" } },
  mounted() {
    this.draw();
  },
  methods: {
    draw() {
      this.$refs.prose.replaceChildren(markdown(this.text));
    },
  },
};

// What a person said, its mentions as links to what they name.
const Words = {
  props: { text: String, page: Object },
  template: `<span class="words"><template v-for="(piece, at) in drawn" :key="at"><button v-if="piece.cell" type="button" class="mention" @click="page.show(piece.cell)">{{ piece.text }}</button
    ><a v-else-if="piece.href" class="mention" :href="piece.href" target="_blank">{{ piece.text }}</a><span v-else-if="piece.kind" class="mention gone">{{ piece.text }}</span
    ><template v-else>{{ piece.text }}</template></template></span>`,
  computed: {
    drawn() {
      if (!this.text?.includes("@")) return [{ text: this.text }];
      const cells = this.page.cells();
      return pieces(this.text).map((piece) => {
        const cell = piece.kind === "cell" && cellNamed(piece.name, cells);
        if (cell) return { ...piece, text: `Cell ${cells.indexOf(cell) + 1}`, cell: cell.id };
        const file = piece.kind === "file" && this.page.files().get(piece.name);
        return file && !file.deleted && !file.skipped ? { ...piece, text: piece.name, href: this.page.file({ path: piece.name }) } : piece;
      });
    },
  },
};

export const NbRequest = {
  name: "NbRequest",
  components: { Words },
  props: { item: Object, page: Object },
  template: `<p class="row said-by"><span class="t">{{ item.by || 'You' }}</span><words :text="item.text" :page="page"></words></p>`,
};

export const NbThought = {
  name: "NbThought",
  components: { Prose },
  props: { item: Object, streaming: Boolean, final: Boolean },
  template: `
<div class="thought" :class="{ opened }">
  <prose v-if="opened && !item.thinking" :text="item.text"></prose>
  <p v-else-if="opened" class="words">{{ item.text }}</p>
  <p v-else class="words first">{{ first }}</p>
  <button v-if="more && !streaming" type="button" class="ghost fold" :aria-expanded="opened" @click="chosen = !opened">
    {{ opened ? 'Less' : item.thinking ? 'All of the thought' : 'More' }}</button>
</div>`,
  data: () => ({ chosen: null }),
  computed: {
    first() {
      const line = this.item.text.trim().split("\n")[0];
      return line.length > SHORT ? `${line.slice(0, SHORT)}…` : line + (this.item.text.trim().length > line.length ? " …" : "");
    },
    more() {
      const text = this.item.text.trim();
      return text.includes("\n") || text.length > SHORT;
    },
    opened() {
      return this.streaming || (this.chosen ?? ((this.final && !this.item.thinking) || !this.more));
    },
  },
};

export const NbSearch = {
  name: "NbSearch",
  props: { item: Object },
  template: `
<div class="lookup"><p class="row"><span class="t">Search</span><span class="words">{{ item.query }}</span></p>
  <ul v-if="item.sources.length" class="sources"><li v-for="(source, at) in item.sources" :key="at">
    <a v-if="web(source.url)" :href="source.url" target="_blank" rel="noopener noreferrer">{{ source.title || source.url }}</a>
    <span v-else>{{ source.title || source.url }}</span></li></ul>
  <p v-else class="small">Found nothing.</p></div>`,
  methods: {
    web: (url) => WEB.test(url ?? ""),
  },
};

// What the model was shown of the notebook, or the summary that stands for older rounds from then on.
export const NbContext = {
  name: "NbContext",
  props: { item: Object, page: Object },
  template: `
<div class="saw"><details class="context" data-testid="turn-context"><summary class="small">{{ words }}</summary>
  <p v-if="item.text" class="words">{{ item.text }}</p>
  <ul v-else class="sources"><li v-for="(one, at) in given" :key="'given' + at">{{ one }}</li>
    <li v-for="cell in item.cells ?? []" :key="cell.id">Cell {{ cell.number }} ({{ cell.kind }}), {{ cell.characters.toLocaleString() }} characters</li>
    <li v-for="name in item.names ?? []" :key="name">{{ name }}, as a picture</li></ul></details>
  <p v-for="(one, at) in missing" :key="at" class="small lacking" data-testid="turn-lacking" role="note">{{ one }}</p></div>`,
  computed: {
    // What was named with @ and given, and what could not be.
    given() {
      return (this.item.mentions ?? []).filter((one) => !one.problem).map((one) => {
        const what = one.kind === "cell" ? `Cell ${one.number}, named` : `${one.name} (version ${one.version}), named`;
        const parts = [one.characters ? `${one.characters.toLocaleString()} characters` : "", one.picture ? "as a picture" : ""].filter(Boolean);
        return `${what}: ${parts.join(", ") || "empty"}`;
      });
    },
    missing() {
      return (this.item.mentions ?? []).filter((one) => one.problem && one.kind !== "pictures").map((one) => {
        if (one.kind === "more") return `${one.name} more mentions were left out.`;
        return `@${one.kind}:${one.name}: ${one.problem}. The agent was told so.`;
      });
    },
    words() {
      const { event, cells, left_out: out, characters, model, upto, mentions } = this.item;
      const named = mentions?.length ? `${mentions.length} named with @` : "";
      if (mentions?.[0].kind === "pictures") return `${model} reads text alone: ${mentions[0].name === "1" ? "a picture was" : "pictures were"} only named to it`;
      if (event === "attached") return `With it, ${model} saw what it names (${mentions.length})`;
      if (event === "compacted") return `The conversation became long: its first ${upto} rounds are put together from here on`;
      const seen = cells?.length ? `${cells.length} cell${cells.length === 1 ? "" : "s"} above, ${characters.toLocaleString()} characters` : "no cells above";
      return `What ${model} saw: the request, ${[named, seen].filter(Boolean).join(", ")}${out ? `, ${out} further up left out` : ""}`;
    },
  },
};

export const NbMessage = {
  name: "NbMessage",
  components: { Words },
  props: { item: Object, page: Object },
  template: `
<p class="row said-by" :data-message="item.message" :data-event="item.event"><span class="t">{{ item.by || 'You' }}</span>
  <words :class="{ gone: item.event === 'withdrawn' }" :text="item.text" :page="page"></words>
  <span class="status">{{ { queued: asked ? 'taking back' : 'goes in at the next round', withdrawn: 'taken back', taken: 'told to the agent' }[item.event] }}</span>
  <button v-if="item.event === 'queued'" type="button" class="ghost" :disabled="asked" @click="withdraw">Take back</button></p>`,
  data: () => ({ asked: false }),
  methods: {
    withdraw() {
      this.asked = true;
      this.page.withdraw(this.item.message);
    },
  },
};

export const NbDelivered = {
  name: "NbDelivered",
  components: { Prose },
  props: { item: Object, files: Map, page: Object },
  template: `
<div class="delivered" data-testid="delivered"><p class="label">Delivered</p>
  <prose v-if="item.text" :text="item.text"></prose>
  <p v-if="item.files?.length" class="files"><a v-for="path in item.files" :key="path" class="filechip" target="_blank"
    :href="page.file(files.get(path) ?? { path })">{{ path }}<span v-if="files.get(path)">v{{ files.get(path).version }}</span></a></p></div>`,
};

export const NbFailure = {
  name: "NbFailure",
  props: { item: Object, cell: Object },
  template: `
<div class="failure" role="note"><p><b>{{ place }}</b>{{ reason }}</p>
  <button v-if="item.line" type="button" class="ghost" @click="show">Show line {{ item.line }}</button>
  <a v-if="item.settings" href="/settings" data-testid="error-settings">Open Settings</a></div>`,
  computed: {
    reason() {
      const { reason } = this.item;
      return this.place ? reason : reason[0]?.toUpperCase() + reason.slice(1);
    },
    place() {
      if (/^(step|line) \d/i.test(this.item.reason)) return ""; // it says so itself
      return named(this.item.step ? `Step ${this.item.step}` : "", this.item.line ? `line ${this.item.line}` : "");
    },
  },
  methods: {
    show() {
      const lines = this.cell.source.local.split("\n").slice(0, this.item.line - 1);
      this.cell.view?.focus(lines.reduce((sum, line) => sum + line.length + 1, 0));
    },
  },
};

function named(...parts) {
  const known = parts.filter(Boolean).join(", ");
  return known ? `${known}: ` : "";
}

export const NbDone = {
  name: "NbDone",
  props: { item: Object },
  template: `<p class="closing" data-testid="turn-done">{{ words }}</p>`,
  computed: {
    words() {
      const counted = (number, name) => `${number} ${name}${number === 1 ? "" : "s"}`;
      const { rounds, calls, ms, tokens, cost } = this.item;
      const spent = typeof cost === "number" ? [`$${cost.toFixed(cost < 1 ? 4 : 2)}`] : [];
      return [counted(rounds, "round"), counted(calls, "call"), `${took(ms)} of work`, ...(tokens ? [`${tokens.toLocaleString()} tokens`] : []), ...spent].join(" · ");
    },
  },
};
