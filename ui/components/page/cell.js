// One cell: gutter, source, output, the line for input, one quiet foot line. What it shows comes in through `cell`, an
// object the page keeps up to date; its source and output are drawn by hand, so that typing and streaming re-render nothing.

import NbAttach from "./attach.js";
import { CellEditor } from "./editor.js";
import { drag } from "./drag.js";
import { atTail, left, toTail } from "./follow.js";
import { markdown } from "./markdown.js";
import { MentionList } from "./mention_list.js";
import NbModel from "./model.js";
import { forget, whenNear } from "./near.js";
import { expected, Room } from "./room.js";
import NbTurn from "./turn.js";
import { duration, inLine, size, took } from "./words.js";

const ACTIVE = ["queued", "running", "waiting", "cancelling"];
const DOUBLE = 400; // milliseconds after "run" in which a second click of the same button, "stop" by then, was meant for "run"
const LARGE = 100_000; // characters from which on the foot tells how much was printed
const WHOLE = 12; // cells that are drawn with all their tools at once: the first window
const PLACEHOLDERS = {
  agent: "What should be done? Markdown; fenced blocks run as steps",
  python: "Python",
  shell: "Shell command",
  markdown: "Text, in Markdown",
};
const NAMES = { agent: "Agent", python: "Python", shell: "Shell", markdown: "Text" };

// A colour of its own for each page of somebody else's.
function hue(page) {
  const sum = [...page].reduce((total, sign) => (total * 31 + sign.charCodeAt(0)) % 360, 7);
  return `hsl(${sum} var(--peer-tone))`;
}

export default {
  name: "NbCell",
  components: { NbAttach, NbModel, NbTurn },
  props: { cell: Object, page: Object, clock: Object, place: Number, last: Boolean, gone: Boolean, line: Number },
  template: `
<section class="cell" data-testid="cell" :data-cell-id="cell.id" :data-kind="cell.kind" :data-state="cell.state"
  :aria-label="NAMES[cell.kind] + ' cell ' + place" tabindex="-1" @focusin="entered" @focusout="exited">
  <div class="gut">
    <button v-if="cell.kind !== 'markdown' || active" type="button" class="go" ref="run" @click="pressed"
      :data-testid="active ? 'cell-stop' : 'cell-run'" :disabled="cell.state === 'cancelling'"
      :aria-label="(active ? 'Stop cell ' : 'Run cell ') + place" :title="active ? 'Stop' : 'Run (Ctrl+Enter)'">
      <span aria-hidden="true">{{ active ? '■' : '▶' }}</span></button>
    <span class="count" v-if="cell.count" title="Execution count">[{{ cell.count }}]</span>
    <span class="kind">{{ NAMES[cell.kind] }}</span>
    <span v-for="other in cell.others" :key="other.page" class="peer" :style="{ '--peer': hue(other.page) }"
      :title="other.told">{{ other.who }}</span>
    <button v-if="near" type="button" class="grip" tabindex="-1" aria-hidden="true" title="Drag to move" @pointerdown="grip">↕</button>
  </div>
  <div class="box">
    <p v-if="cell.beside && !seen" class="note" role="note">
      Two people changed the same text. This is the other version, kept as a cell of its own.
      <button type="button" class="ghost" @click="seen = true">Fine</button></p>
    <p v-if="cell.notice" class="note" role="alert">{{ cell.notice }}</p>
    <button v-if="cell.hide_source && !cell.peek" type="button" class="folded" aria-expanded="false" title="Show the source (O)"
      @click="page.collapse(cell, { source: false })"><span aria-hidden="true">▸</span><code>{{ first }}</code></button>
    <div v-if="cell.kind === 'markdown'" v-show="!editing && (!cell.hide_source || cell.peek)" ref="rendered" class="prose" tabindex="0" role="group"
      :aria-label="'Text of cell ' + place + ', Enter edits it'" @click="edit" @keydown.enter.prevent="edit(null)"></div>
    <div class="editor" ref="editor" v-show="(!cell.hide_source || cell.peek) && (cell.kind !== 'markdown' || editing)"
      @paste.capture="brought" @drop.capture="brought" @dragover.capture="hovered" @dragleave="over = false" :class="{ over }"></div>
    <nb-attach v-if="cell.kind === 'agent'" v-show="!cell.hide_source || cell.peek" ref="attach" :text="request" :page="page" :own="cell.id" :host="requestHost">
      <template #default="{ pick }"><div class="attach-bar">
        <nb-model :page="page"></nb-model><span class="grow"></span>
        <button type="button" class="ghost" data-testid="attach-file" title="Attach a file or a picture; or paste it, or drop it" @click="pick">Attach</button>
        <button type="button" class="ghost" data-testid="attach-mention" title="Name a cell or a file (@)" aria-label="Name a cell or a file" @mousedown.prevent @click="mention">@</button></div></template>
    </nb-attach>
    <nb-turn v-if="cell.kind === 'agent' && (cell.story.items.length || active || cell.asked)" ref="turn" :cell="cell" :page="page" :clock="clock"
      @held="turnHeld"></nb-turn>
    <div class="out" data-testid="cell-output" ref="out" :class="{ tall }" v-show="(prints || room) && !cell.hide_output"
      :tabindex="scrolls ? 0 : -1" :role="scrolls ? 'region' : null" :aria-label="scrolls ? 'Output of cell ' + place : null"
      @scroll.passive="scrolled"></div>
    <button v-if="prints && cell.hide_output" type="button" class="folded output" aria-expanded="false" title="Show the output (o)"
      @click="page.collapse(cell, { output: false })"><span aria-hidden="true">▸</span>Output folded away</button>
    <form v-if="takesInput" class="line" @submit.prevent="answer">
      <label :for="'in-' + cell.id">{{ cell.input ? (cell.input.prompt || 'The program asks for a line') : 'Type a line for the program' }}</label>
      <input :id="'in-' + cell.id" ref="input" data-testid="input-field" v-model="text" autocomplete="off"
        autocapitalize="off" spellcheck="false" :type="cell.input && cell.input.password ? 'password' : 'text'">
      <button type="submit" class="main">Send</button>
    </form>
    <div class="foot">
      <span v-if="words" class="state" :class="cell.state">{{ words }}</span>
      <span v-if="time" class="time">{{ time }}</span>
      <button v-if="active && !follow && overflows && !tall && !cell.hide_output" type="button" class="ghost" data-testid="follow"
        title="To the newest line, and stay with it" @click="toTail">↓ Follow</button>
      <span v-if="newest" class="newest" :title="newest">{{ newest }}</span>
      <button v-if="withheld && cell.kind === 'agent'" type="button" class="ghost" @click="$refs.turn.unfold()">Show all of it</button>
      <button v-if="(overflows || newest) && prints && !cell.hide_output" type="button" class="ghost" @click="unfold">
        {{ tall ? 'Show less' : newest ? 'Show the output' : 'Show all of it' }}</button>
      <a v-if="whole" :href="whole.href" download="output.txt">Whole output, {{ whole.size }}</a>
      <span v-else-if="printed" class="time">{{ printed }} printed</span>
      <span class="grow"></span>
      <button v-if="gone && cell.kind === 'python' && place > 1" type="button" class="ghost" @click="page.runAll(cell.id)"
        title="The variables are gone: run all cells above, then this one">Run to here</button>
      <span v-if="near" class="tools">
        <button v-if="cell.kind === 'markdown' && editing" type="button" class="ghost" @click="leave">Done</button>
        <select :value="cell.kind" :disabled="active" aria-label="Kind of cell" title="Kind of cell"
          @change="page.kind(cell, $event.target.value)">
          <option v-for="(name, kind) in NAMES" :key="kind" :value="kind">{{ name }}</option></select>
        <button type="button" class="ghost" :disabled="place === 1" aria-label="Move up" title="Move up" @click="page.move(cell, -1)">↑</button>
        <button type="button" class="ghost" :disabled="last" aria-label="Move down" title="Move down" @click="page.move(cell, 1)">↓</button>
        <button type="button" class="ghost" aria-label="Add a cell below" title="Add a cell below" @click="page.add(cell.kind, cell.id)">+</button>
        <button type="button" class="ghost" aria-label="More to do with this cell" title="More (Ctrl+K)" @click="page.palette(cell)">⋯</button>
        <button type="button" class="ghost" aria-label="Delete cell" title="Delete" @click="page.remove(cell)">✕</button>
      </span>
    </div>
  </div>
</section>`,
  data() {
    return {
      NAMES, seen: false, editing: false, text: "", tall: false, overflows: false, follow: true, room: 0, newest: "", withheld: false, printed: "",
      request: "", over: false,
      near: this.place <= WHOLE,
    };
  },
  computed: {
    active() {
      return ACTIVE.includes(this.cell.state);
    },
    takesInput() {
      const { state, kind, input } = this.cell;
      return (input && input.id !== this.cell.answered) || (kind === "shell" && (state === "running" || state === "waiting"));
    },
    // What a turn's calls print stands with the call.
    prints() {
      return this.cell.shown && this.cell.kind !== "agent";
    },
    words() {
      const { state, reason, asked, traced, hide_output: hidden } = this.cell;
      if (asked) return "Asked to run";
      if (state === "queued") return inLine(this.line);
      if (state === "running") return "Running";
      if (state === "waiting") return this.cell.kind === "agent" ? "Waits for you" : "Waits for a line from you";
      if (state === "cancelling") return "Stopping";
      if (state === "error" && this.cell.story.items.some((item) => item.t === "error")) return "Failed"; // its row says why
      if (state === "error" && traced && reason?.startsWith(traced) && !hidden) return "Failed"; // as the traceback above it says
      if (state === "error") return reason ? `Failed: ${reason}` : "Failed";
      if (state === "cancelled") return reason && reason !== "stopped" ? `Stopped: ${reason}` : "Stopped";
      return state === "done" && reason ? reason : "";
    },
    time() {
      const { state, startedAt, ms } = this.cell;
      if (startedAt !== null && state !== "queued") return duration(Math.max(0, this.clock.now - startedAt));
      return ms === null || state === "queued" ? "" : took(ms);
    },
    first() {
      if (!this.cell.hide_source) return "";
      const lines = this.cell.source.local.trim().split("\n");
      return lines.length > 1 ? `${lines[0]} … ${lines.length} lines` : lines[0] || "Empty";
    },
    scrolls() {
      return this.overflows && !this.tall;
    },
    // All that the run printed: kept whole past a bound, else as its frames have it.
    whole() {
      const { whole } = this.cell;
      if (whole && /^[0-9a-f]{64}$/.test(whole.sha256 ?? "")) return { href: `/api/v1/blobs/${whole.sha256}`, size: size(whole.bytes ?? 0) };
      return this.printed && !this.active ? { href: this.cell.output.host.whole(), size: this.printed } : null;
    },
  },
  watch: {
    "cell.kind"(kind) {
      this.editing = false;
      this.editor.recast();
      if (kind !== "agent") this.$refs.out.append(this.cell.output.root);
      this.$nextTick(() => this.draw());
    },
    "cell.others"(others) {
      this.editor.peers(others.map(({ page, at }) => ({ at, hue: hue(page) })));
    },
    place() {
      this.editor.drawStill();
    },
    "cell.input"(now, before) {
      if (now && now.id !== before?.id) this.$nextTick(() => this.offerInput());
    },
    // Its going must not drop the focus: keys would be the page's from there on.
    takesInput(takes) {
      const typing = document.activeElement === this.$refs.input;
      const clicked = this.clicked && document.activeElement === this.$refs.run;
      this.clicked = false;
      if (takes && clicked) this.$nextTick(() => this.$refs.input?.focus({ preventScroll: true }));
      else if (!takes && typing) this.$nextTick(() => this.$el.focus({ preventScroll: true }));
    },
    "cell.shown"() {
      this.measure();
    },
    active(active) {
      if (active) return;
      this.cell.output.draw(); // the last of it may have come with the end
      this.space.settle();
    },
    near() {
      this.editor.drawStill();
    },
    tall() {
      this.$nextTick(() => this.cell.output.draw());
    },
  },
  created() {
    // What the chips and the list of an agent's request ask for.
    this.requestHost = {
      text: () => this.cell.source.local,
      caret: () => this.editor.caret,
      put: (from, to, insert) => this.editor.put(from, to, insert),
      focus: () => matchMedia("(hover: none)").matches || this.focus(),
      known: () => ({ own: this.cell.id, cells: this.page.cells(), files: [...this.page.files().values()] }),
      upload: () => this.$refs.attach?.pick(),
    };
    this.ranAt = -Infinity;
    this.clicked = false; // "run", with a pointer, and the line of its program is not there yet
    this.scrolledTo = 0;
  },
  mounted() {
    if (this.cell.kind !== "agent") this.$refs.out.append(this.cell.output.root);
    this.list = new MentionList({ ...this.requestHost, field: () => this.editor.content, box: (at) => this.editor.boxOf(at) });
    this.editor = new CellEditor(this.$refs.editor, this.host());
    this.space = new Room(this.$refs.out, this.cell.output.root, this.$el, {
      active: () => this.active || this.cell.asked,
      held: (...args) => this.held(...args),
      grew: () => this.grew(),
    });
    this.cell.view = this;
    const how = this.page.takeFocus(this.cell.id); // and its text, where that was typed before it came
    this.draw();
    if (!this.near) whenNear(this.$el, () => (this.near = true));
    if (how === "choose") this.choose();
    else if (how) this.focus(this.page.caret);
    if (this.cell.input) this.offerInput();
  },
  beforeUnmount() {
    forget(this.$el);
    this.space.close();
    this.list.close();
    this.editor.destroy();
    if (this.cell.view === this) this.cell.view = null;
  },
  methods: {
    hue,
    // What the editor asks of the cell.
    host() {
      return {
        text: () => this.cell.source.local,
        kind: () => this.cell.kind,
        near: () => this.near,
        label: () => `Source of cell ${this.place}`,
        placeholder: () => PLACEHOLDERS[this.cell.kind] ?? "",
        changed: (text) => {
          this.cell.source.type(text);
          if (this.cell.kind === "agent") this.request = text;
        },
        focused: () => {},
        blurred: () => this.left(),
        moved: (at) => {
          this.page.at(this.cell, at);
          if (this.cell.kind === "agent") this.$nextTick(() => this.list.update());
        },
        key: (event) => this.list.key(event) || this.page.keyed(event, this.cell),
        knows: () => this.cell.kind === "python",
        complete: (text, at) => this.page.complete(text, at),
        inspect: (text, at) => this.page.inspect(text, at),
      };
    },
    // The source as the model has it; `splice` says what a remote edit changed, so that the caret stays where it was.
    draw(splice = null) {
      this.editor.draw(splice);
      if (this.cell.kind === "agent") this.request = this.cell.source.local;
      if (this.cell.kind === "markdown") {
        const text = this.cell.source.local;
        if (text.trim() === "" && !this.editor.focused) this.editing = true;
        this.$refs.rendered?.replaceChildren(markdown(text));
      }
    },
    left() {
      // The editor that takes the place of a plain field, or the other way round, keeps the focus.
      this.$nextTick(() => (this.editor.focused ? this.list.update() : this.list.close()));
      this.cell.source.send();
      if (this.cell.kind === "markdown" && this.cell.source.local.trim() !== "") this.leave();
    },
    // Files that are pasted into a request, or dropped on it.
    brought(event) {
      this.over = false;
      if (this.cell.kind === "agent") this.$refs.attach.transferred(event);
    },
    hovered(event) {
      if (this.cell.kind !== "agent" || !event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      event.stopPropagation();
      this.over = true;
    },
    // Types the sign that opens the list.
    async mention() {
      const { editor } = this;
      const at = editor.caret ?? this.cell.source.local.length;
      this.focus(at);
      await this.$nextTick();
      editor.put(at, at, at > 0 && /\S/.test(this.cell.source.local[at - 1]) ? " @" : "@");
    },
    edit(event) {
      if (event?.target.closest("a")) return;
      this.focus();
    },
    leave() {
      if (this.cell.source.local.trim() === "") return;
      this.editing = false;
      this.draw();
    },
    focus(caret = null) {
      if (this.cell.kind === "markdown") this.editing = true;
      this.$nextTick(() => {
        this.editor.focus(caret);
        this.$el.scrollIntoView({ block: "nearest" });
      });
    },
    // The focus, without beginning to edit a text that is there.
    take() {
      if (this.cell.kind === "markdown" && !this.editing) this.$refs.rendered.focus();
      else if (matchMedia("(hover: none)").matches) this.$el.querySelector("button").focus(); // no keyboard over half the screen
      else this.focus();
    },
    // The cell as a whole has the focus: keys without Ctrl are about it, and Tab moves on behind its text.
    choose() {
      if (this.cell.kind === "markdown") this.leave();
      this.$el.focus({ preventScroll: true });
      this.$el.scrollIntoView({ block: "nearest" });
    },
    entered(event) {
      this.near = true;
      this.page.entered(this.cell);
      if (event.target === this.$el) this.page.at(this.cell, null);
      if (event.target === this.$el) this.editor.reachable(false);
      else if (this.$refs.editor.contains(event.target)) this.editor.reachable(true);
    },
    exited(event) {
      const to = event.relatedTarget;
      if (this.$el.contains(to)) return;
      this.editor.reachable(true);
      if (document.hasFocus() && !to?.closest(".cell")) this.page.at(null); // not when the whole window lost it
    },
    grip(event) {
      drag(event, this.$el, this.page.elements, (index) => this.page.dropped(this.cell, index));
    },
    pressed(event) {
      const now = performance.now();
      if (!this.active) {
        this.page.run(this.cell);
        this.ranAt = now;
        // What is typed next is for the program, were its keys not the cell's; on a phone it would open the keyboard.
        this.clicked = this.cell.kind === "shell" && event.detail > 0 && !matchMedia("(hover: none)").matches;
      } else if (event.detail < 2 || now - this.ranAt > DOUBLE) {
        this.page.stop(this.cell);
      }
    },
    // The focus stays in the line while there is one, else with the cell, where the run's next line finds it.
    async answer() {
      this.page.input(this.cell, this.text);
      this.text = "";
      await this.$nextTick();
      const at = document.activeElement;
      if (this.$refs.input) this.$refs.input.focus({ preventScroll: true });
      else if (at === document.body || this.$el.contains(at)) this.$el.focus({ preventScroll: true });
    },
    offerInput() {
      const at = document.activeElement;
      if (at === document.body || this.$el.contains(at)) this.$refs.input?.focus({ preventScroll: true });
    },
    // After output was drawn: keep to the tail for who is there. `tail`: of the page; `opening`: the page is just opened.
    drawn(tail = false, opening = false) {
      const { out, turn } = this.$refs;
      turn?.drawn(tail, opening);
      if (!out) return;
      if (this.follow && left(out, this.scrolledTo)) this.follow = false;
      this.cell.output.draw();
      if (this.prints) this.space.drawn(tail, opening);
      if (this.follow && !this.tall && out.scrollHeight > out.clientHeight) {
        toTail(out);
        this.cell.output.draw(); // what is near the tail now
        toTail(out);
      }
      this.scrolledTo = out.scrollTop;
      this.measure();
    },
    grew() {
      const { out } = this.$refs;
      if (this.follow && left(out, this.scrolledTo)) this.follow = false;
      if (this.active && this.follow && !this.tall) toTail(out);
      this.scrolledTo = out.scrollTop;
      this.measure();
    },
    toTail() {
      this.follow = true;
      this.scrolledTo = 0;
      this.drawn();
    },
    measure() {
      const { out } = this.$refs;
      this.overflows = this.cell.shown && (this.tall || out.scrollHeight > out.clientHeight + 1);
      const { cut, printed } = this.cell.output;
      this.printed = cut || printed > LARGE ? size(printed) : "";
    },
    // A run was asked for by whoever looks at this page; of many, when others are run with it.
    expect(many = false) {
      this.space.reserve(expected(this.cell.kind, this.cell.source.local, many));
    },
    // How high the output stands while it comes: nothing of it can be read when that is next to nothing.
    held(height, natural) {
      this.room = height ?? 0;
      const hidden = height !== null && natural > height + 1 && height < 40;
      this.newest = hidden ? this.cell.output.newest() : "";
      if (height === null && this.overflows) this.measure(); // all of it may be there now
    },
    turnHeld(withheld, newest) {
      this.withheld = withheld;
      this.newest = newest;
    },
    unfold() {
      if (this.tall) this.tall = false;
      else if (this.space.height === null) this.tall = true;
      else this.space.unfold();
      this.$nextTick(() => this.drawn());
    },
    scrolled() {
      const { out } = this.$refs;
      this.follow = atTail(out);
      this.scrolledTo = out.scrollTop;
    },
  },
};
