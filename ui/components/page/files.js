// The files of the notebook in the rail: what is kept, by version, and what is not kept, with the reason. One file at a
// time opens to a preview and its versions; files come in by a button or by dropping them here.

import { freshId } from "./commands.js";
import { ago, size } from "./words.js";

const SHOWN = 30; // files listed before one asks for more
const PREVIEW = 128 * 1024; // bytes of text in a preview
const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

export default {
  name: "NbFiles",
  props: { state: Object, page: Object },
  template: `
<section class="filelist" :class="{ over }" aria-label="Files" data-testid="files" @dragover="hover" @dragleave="over = false" @drop="dropped">
  <h2>Files <button type="button" class="ghost" data-testid="file-upload" @click="$refs.pick.click()">Upload</button></h2>
  <input ref="pick" type="file" multiple hidden aria-label="Files to upload" data-testid="file-pick" @change="picked">
  <p v-if="!files.length" class="small">Nothing yet. What cells and agents write in the notebook's folder is kept here, by version.</p>
  <ul><li v-for="file in shown" :key="file.path" :data-path="file.path">
    <button type="button" class="fileline" :aria-expanded="open === file.path" :disabled="Boolean(file.skipped)" @click="toggle(file)">
      <span class="path">{{ file.path }}</span>
      <span v-if="file.version" class="about">v{{ file.version }}, {{ size(file.bytes ?? 0) }}</span></button>
    <p v-if="file.skipped" class="small skipped" title="Lost with the folder, and not in a backup">Not kept: {{ file.skipped }}</p>
    <div v-if="open === file.path" class="opened" data-testid="file-open">
      <p class="small">Changed {{ age(file) }}<template v-if="file.by"> by {{ file.by }}</template>
        <template v-if="file.added || file.removed">, +{{ file.added ?? 0 }} −{{ file.removed ?? 0 }} lines</template></p>
      <img v-if="image" :src="page.file({ path: file.path, version: chosen })" :alt="file.path">
      <pre v-else-if="text !== null" tabindex="0" role="region" :aria-label="'Preview of ' + file.path">{{ text }}</pre>
      <p v-if="note" class="small" role="status">{{ note }}</p>
      <p class="versions"><label>Version <select :value="chosen" data-testid="file-version" @change="choose(file, Number($event.target.value))">
        <option v-for="version in versions" :key="version.version" :value="version.version" :disabled="version.deleted">{{ version.version }}{{ version.deleted ? ' (deleted)' : ', ' + size(version.bytes) }}</option></select></label>
        <a :href="download(file)" download>Download</a></p>
    </div></li></ul>
  <button v-if="files.length > shown.length" type="button" class="ghost" @click="all = true">All {{ files.length }} files</button>
  <p v-for="problem in problems" :key="problem" class="small bad" role="alert">{{ problem }}</p>
  <p v-if="sending" class="small" role="status">Sending {{ sending }}</p>
</section>`,
  data: () => ({ open: null, chosen: null, versions: [], text: null, image: false, note: "", all: false, over: false, sending: "", problems: [], now: performance.now() }),
  computed: {
    files() {
      const files = [...this.state.files.values()].filter((file) => !file.deleted);
      return files.sort((one, other) => (one.path < other.path ? -1 : 1));
    },
    shown() {
      return this.all ? this.files : this.files.slice(0, SHOWN);
    },
    // The opened file's newest version: when it changes, the preview follows.
    newest() {
      return this.open && this.state.files.get(this.open)?.version;
    },
  },
  watch: {
    newest(version, before) {
      const file = this.open && this.state.files.get(this.open);
      if (file && before && version && this.chosen === before) this.load(file);
    },
  },
  methods: {
    size,
    age(file) {
      return ago(Math.max(0, (performance.now() - file.at) / 1000));
    },
    download({ path }) {
      return this.page.file({ path, version: this.chosen }).replace(/\?|$/, (sign) => (sign ? "?download=true&" : "?download=true"));
    },
    toggle(file) {
      if (this.open === file.path) this.open = null;
      else this.load(file);
    },
    async load(file) {
      this.open = file.path;
      this.versions = [{ version: file.version, bytes: file.bytes ?? 0, deleted: false }];
      this.choose(file, file.version);
      try {
        const list = this.page.file({ path: "" }).replace(/\/$/, "");
        const answer = await fetch(`${list}?path=${encodeURIComponent(file.path)}`);
        if (answer.ok && this.open === file.path) this.versions = (await answer.json()).files;
      } catch {
        this.note = "The server does not answer.";
      }
    },
    async choose(file, version) {
      Object.assign(this, { chosen: version, text: null, note: "", image: IMAGES.includes(file.mime) });
      if (this.image) return;
      if (file.mime && !/^text\/|json|xml|yaml|javascript|toml/.test(file.mime)) {
        this.note = "No preview of this kind of file.";
        return;
      }
      if ((file.bytes ?? 0) > 64 * PREVIEW) {
        this.note = "Too large for a preview.";
        return;
      }
      try {
        const answer = await fetch(this.page.file({ path: file.path, version }));
        const text = answer.ok ? await answer.text() : "";
        if (this.open !== file.path || this.chosen !== version) return;
        if (!answer.ok) this.note = "This version cannot be read.";
        else if (text.slice(0, 4096).includes("\0")) this.note = "No preview of this kind of file.";
        else this.text = text.slice(0, PREVIEW);
        if (text.length > PREVIEW) this.note = `The first ${size(PREVIEW)} of ${size(text.length)}.`;
      } catch {
        this.note = "The server does not answer.";
      }
    },
    hover(event) {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      this.over = true;
    },
    dropped(event) {
      this.over = false;
      if (!event.dataTransfer?.files.length) return;
      event.preventDefault();
      this.send([...event.dataTransfer.files]);
    },
    picked(event) {
      this.send([...event.target.files]);
      event.target.value = "";
    },
    async send(files) {
      this.problems = [];
      for (const file of files) {
        this.sending = file.name;
        try {
          const answer = await fetch(`${this.page.file({ path: file.name })}?id=${freshId()}`, { method: "PUT", body: file });
          const said = answer.ok ? {} : await answer.json().catch(() => ({}));
          if (!answer.ok) this.problems.push(`${file.name}: ${said.detail || said.title || `the server answered ${answer.status}`}`);
        } catch {
          this.problems.push(`${file.name}: the server does not answer. Nothing was sent.`);
        }
      }
      this.sending = "";
    },
  },
};
