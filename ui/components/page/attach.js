// What a request, or a message to a turn, names: a chip for each, files on their way, and the buttons that bring one in.
// The chips follow from the text; a chip that goes takes its mention out of it.

import { cellNamed, cuts, fileMention, firstWords, MOST, named } from "./mentions.js";
import { arrived, filesIn, folders, LIMIT, placeFor, send } from "./sending.js";
import { size } from "./words.js";

const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const SEEN = 4 * 2 ** 20; // bytes of a picture that models are shown, as on the server

export default {
  name: "NbAttach",
  // `host`: text(), put(from, to, insert), caret() or null, focus(). `small`: the button is a sign, beside a field.
  props: { text: String, page: Object, own: String, host: Object, small: Boolean },
  template: `
<div class="attach" :class="{ small }">
  <ul v-if="chips.length || sending.length" class="attached" aria-label="Attached">
    <li v-for="chip in chips" :key="chip.key" class="attachment" :class="{ gone: chip.gone }" data-testid="attachment" :data-name="chip.key" :title="chip.title">
      <img v-if="chip.src" :src="chip.src" alt="" loading="lazy"><span v-else class="sign" aria-hidden="true">{{ chip.kind === 'cell' ? '#' : '≡' }}</span>
      <a v-if="chip.href" class="what" :href="chip.href" target="_blank"><b>{{ chip.label }}</b><small>{{ chip.about }}</small></a>
      <button v-else-if="chip.cell" type="button" class="what" @click="page.show(chip.cell)"><b>{{ chip.label }}</b><small>{{ chip.about }}</small></button>
      <span v-else class="what"><b>{{ chip.label }}</b><small>{{ chip.about }}</small></span>
      <button type="button" class="ghost" :aria-label="'Remove ' + chip.label" title="Remove" @click="remove(chip)">✕</button></li>
    <li v-for="one in sending" :key="one.key" class="attachment" :class="{ gone: one.problem }" data-testid="attachment-sending" :role="one.problem ? 'alert' : null">
      <span class="sign" aria-hidden="true">{{ one.problem ? '!' : '↑' }}</span>
      <span class="what"><b>{{ one.name }}</b><small>{{ one.problem || one.words }}</small>
        <i v-if="!one.problem" class="gauge" role="progressbar" :aria-label="'Sending ' + one.name" aria-valuemin="0" aria-valuemax="100" :aria-valuenow="Math.round(100 * one.share)">
          <i :style="{ width: 100 * one.share + '%' }"></i></i></span>
      <button v-if="one.problem && one.file" type="button" class="ghost" :aria-label="'Try again to send ' + one.name" @click="again(one)">Try again</button>
      <button type="button" class="ghost" :aria-label="(one.problem ? 'Dismiss ' : 'Do not send ') + one.name" title="Remove" @click="drop(one)">✕</button></li>
  </ul>
  <p v-if="chips.length > MOST" class="small" role="note">The agent is given the first {{ MOST }} of them.</p>
  <slot :pick="pick"></slot>
  <input ref="pick" type="file" multiple hidden tabindex="-1" :aria-label="'Files to attach'" data-testid="attach-pick" @change="picked">
</div>`,
  data: () => ({ MOST, sending: [] }),
  computed: {
    chips() {
      const cells = this.page.cells();
      const files = this.page.files();
      const coming = new Set(this.sending.filter((one) => !one.problem).map((one) => one.path));
      return named(this.text)
        .filter(({ kind, name }) => kind === "cell" || !coming.has(name))
        .map((mention) => (mention.kind === "cell" ? this.ofCell(mention, cells) : this.ofFile(mention, files)));
    },
  },
  created() {
    this.busy = new Set(); // promises of what is on its way
  },
  beforeUnmount() {
    this.left = true;
  },
  methods: {
    ofCell(mention, cells) {
      const cell = cellNamed(mention.name, cells);
      if (cell?.id === this.own) return { ...mention, label: "This cell", about: "names itself", gone: true };
      if (!cell) return { ...mention, label: "A cell", about: "is not in this notebook any more", gone: true, title: `@cell:${mention.name}` };
      const place = cells.indexOf(cell) + 1;
      return { ...mention, cell: cell.id, label: `Cell ${place}`, about: firstWords(cell) || "empty", title: `Show cell ${place}` };
    },
    ofFile(mention, files) {
      const file = files.get(mention.name);
      const label = mention.name.split("/").at(-1) || mention.name;
      const title = mention.name;
      if (file?.skipped) return { ...mention, label, title, about: `is not kept: ${file.skipped}`, gone: true };
      if (!file || file.deleted) return { ...mention, label, title, about: "is not in this notebook's folder", gone: true };
      const href = this.page.file({ path: mention.name, version: file.version });
      const image = IMAGES.includes(file.mime);
      const large = image && file.bytes > SEEN;
      const about = large ? `${size(file.bytes)}: too large to be shown to a model` : size(file.bytes ?? 0);
      return { ...mention, label, title, about, href, src: image && !large ? href : null };
    },

    remove(chip) {
      for (const { from, to } of cuts(this.host.text(), chip)) this.host.put(from, to, "");
      this.host.focus();
    },

    // Files, from wherever they come
    pick() {
      this.$refs.pick.click();
    },
    picked(event) {
      this.take([...event.target.files]);
      event.target.value = "";
    },
    // A paste or a drop on the field; true when files were in it.
    transferred(event) {
      const transfer = event.clipboardData ?? event.dataTransfer;
      const inside = new Set(folders(transfer));
      const files = filesIn(transfer).filter((file) => !inside.has(file.name));
      for (const name of inside) this.refuse(name, "it is a folder: attach the files in it");
      if (!files.length && !inside.size) return false;
      event.preventDefault();
      event.stopPropagation();
      this.take(files, Boolean(event.clipboardData));
      return true;
    },
    take(files, pasted = false) {
      let before = null;
      for (const file of files) before = this.begin(file, pasted, before);
    },
    // Begins to send one. It is named behind those that came with it and before it; the promise is of its end.
    begin(file, pasted, before = null) {
      if (file.size > LIMIT) return this.refuse(file.name, `it has ${Math.ceil(file.size / 2 ** 20)} MiB; a file has at most ${LIMIT / 2 ** 20} MiB`);
      const one = { key: `${performance.now()} ${Math.random()}`, name: file.name, file, pasted, path: null, share: 0, words: "sending", problem: "", control: {} };
      this.sending.push(one);
      const work = this.bring(this.sending.at(-1), before).finally(() => this.busy.delete(work));
      this.busy.add(work);
      return work;
    },
    async bring(one, before) {
      const known = () => this.page.files();
      try {
        const taken = (path) => this.sending.some((other) => other !== one && !other.problem && other.path === path);
        const { path, there } = await placeFor(one.file, known(), taken, (free) => (one.path = free), one.pasted);
        one.name = path.split("/").at(-1);
        if (!there) {
          const said = await send(one.file, this.page.file({ path }), (share) => (one.share = share), one.control);
          Object.assign(one, { share: 1, words: "being put in its place" });
          if (!(await arrived(path, said.sha256, known, () => this.left))) throw "it was sent, and has not come to the notebook's folder yet";
        }
        await before;
        this.drop(one);
        if (!this.left) this.insert(fileMention(path));
      } catch (problem) {
        one.problem = typeof problem === "string" ? problem : String(problem?.message ?? problem);
        if (!one.problem) this.drop(one); // taken back
      }
    },
    again(one) {
      this.drop(one);
      this.begin(one.file, one.pasted);
    },
    drop(one) {
      if (!one.problem) one.control.abort?.();
      this.sending = this.sending.filter((other) => other !== one);
    },
    // What sending again would not help.
    refuse(name, problem) {
      this.sending.push({ key: `${performance.now()} ${name}`, name, file: null, path: null, share: 0, words: "", problem, control: {} });
    },
    // Where the caret is, else at the end.
    insert(mention) {
      const text = this.host.text();
      const at = this.host.caret() ?? text.length;
      const before = at > 0 && !/\s$/.test(text.slice(0, at)) ? " " : "";
      const after = /^\s/.test(text.slice(at)) ? "" : at < text.length ? " " : "";
      this.host.put(at, at, before + mention + after);
    },
    // Resolves when nothing is on its way any more.
    async settled() {
      while (this.busy.size) await Promise.allSettled([...this.busy]);
    },
  },
};
