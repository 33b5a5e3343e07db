// What opens over the page: everything by name, the list of keys, and a question before what cannot be taken back.

import { DEEDS, keysOf, shown } from "./keys.js";
import { listed } from "./listed.js";

// Whether all letters of `asked` come in `name` in order; smaller is better, null is no.
function distance(name, asked) {
  const text = name.toLowerCase();
  if (!asked) return 0;
  const whole = text.indexOf(asked);
  if (whole >= 0) return whole && text[whole - 1] !== " " ? 10 + whole : whole / 100;
  let at = -1;
  let gaps = 0;
  for (const letter of asked) {
    const next = text.indexOf(letter, at + 1);
    if (next < 0) return null;
    gaps += at < 0 ? next : next - at - 1;
    at = next;
  }
  return 100 + gaps;
}

const QUESTIONS = {
  restart: ["Restart the kernel?", "Its variables are lost, and code that runs is stopped.", "Restart", (page) => page.restart()],
  restartAll: ["Restart the kernel and run all cells?", "Its variables are lost, and code that runs is stopped.", "Restart and run all", (page) => page.restart(true)],
};

export default {
  name: "NbPalette",
  mixins: [listed],
  props: { page: Object },
  template: `
<dialog ref="names" class="over palette" aria-label="Everything by name" @close="closed" @click.self="$refs.names.close()">
  <input ref="field" v-model="asked" type="text" role="combobox" aria-expanded="true" aria-controls="nb-names" aria-label="Name of what to do"
    :aria-activedescendant="found.length ? 'nb-name-' + at : null" :placeholder="about" autocomplete="off" spellcheck="false" @keydown="key">
  <ul id="nb-names" ref="list" role="listbox" aria-label="Deeds">
    <li v-for="(deed, index) in found" :id="'nb-name-' + index" :key="deed.name" role="option" :aria-selected="index === at"
      @mousemove="at = index" @click="take(deed)"><span>{{ deed.name }}</span><span class="grow"></span>
      <span v-for="(keys, n) in keysOf(deed).slice(0, 1)" :key="n" class="keys"><kbd v-for="(sign, m) in shown(keys)" :key="m">{{ sign }}</kbd></span></li>
  </ul>
  <p v-if="!found.length" class="none">Nothing of that name.</p>
</dialog>
<dialog ref="list_of_keys" class="over keylist" aria-labelledby="nb-keys-title" @close="closed" @click.self="$refs.list_of_keys.close()">
  <div class="keys-head"><h2 id="nb-keys-title">Keys</h2><span class="grow"></span>
    <form method="dialog"><button class="ghost" aria-label="Close">✕</button></form></div>
  <p>Esc leaves the text and chooses the cell; keys without Ctrl work then. Enter goes back into the text.</p>
  <div class="groups" tabindex="0" role="region" aria-label="All keys">
    <section v-for="group in groups" :key="group.name"><h3>{{ group.name }}</h3>
      <dl><div v-for="deed in group.deeds" :key="deed.name"><dt>{{ deed.name }}</dt>
        <dd><template v-for="(keys, n) in keysOf(deed)" :key="n"><i v-if="n"> or </i><span class="keys"><kbd v-for="(sign, m) in shown(keys)" :key="m">{{ sign }}</kbd></span></template></dd></div></dl></section>
  </div>
</dialog>
<dialog ref="question" class="over question" aria-labelledby="nb-question" @close="answered">
  <form v-if="question" method="dialog"><h2 id="nb-question">{{ question[0] }}</h2><p>{{ question[1] }}</p>
    <div class="choice"><button value="">Cancel</button><button class="main" value="yes">{{ question[2] }}</button></div></form>
</dialog>`,
  data: () => ({ cell: null, question: null }),
  computed: {
    about() {
      return this.cell ? `What to do with this cell, or with all` : "What to do";
    },
    found() {
      const asked = this.asked.trim().toLowerCase();
      return DEEDS.filter((deed) => !deed.hidden && (this.cell || !deed.cell))
        .map((deed) => ({ deed, far: distance(deed.name, asked) }))
        .filter(({ far }) => far !== null)
        .sort((one, other) => one.far - other.far)
        .map(({ deed }) => deed);
    },
    groups() {
      const extra = [
        { name: "Complete, or indent", edit: ["Tab"] },
        { name: "Complete", edit: ["Mod- "] },
        { name: "What is this?", edit: ["Shift-Tab"] },
        { name: "Comment in or out", edit: ["Mod-/"] },
        { name: "Undo in the text", edit: ["Mod-z"] },
      ];
      const names = [...new Set(DEEDS.map((deed) => deed.group))];
      const groups = names.map((name) => ({ name, deeds: DEEDS.filter((deed) => deed.group === name && keysOf(deed).length) }));
      return [...groups, { name: "In the text", deeds: extra }];
    },
  },
  methods: {
    keysOf,
    shown: (key) => shown(key.replace(/ $/, "Space")),
    open(cell) {
      this.from = document.activeElement;
      this.cell = cell;
      this.asked = "";
      this.at = 0;
      this.$refs.names.showModal();
      this.$refs.field.focus();
    },
    openKeys() {
      this.from = document.activeElement;
      this.$refs.list_of_keys.showModal();
    },
    async ask(name) {
      this.from = document.activeElement;
      this.question = QUESTIONS[name];
      this.$refs.question.returnValue = "";
      await this.$nextTick();
      this.$refs.question.showModal();
    },
    answered() {
      const deed = this.question?.[3];
      const yes = this.$refs.question.returnValue === "yes";
      this.question = null;
      this.closed();
      if (yes) deed(this.page);
    },
    closed() {
      if (this.from?.isConnected) this.from.focus({ preventScroll: true });
      this.from = null;
    },
    take(deed) {
      const { cell } = this;
      this.$refs.names.close();
      // The focus is back where it was before the deed looks for it.
      this.closed();
      deed.do(this.page, cell, false);
    },
  },
};
