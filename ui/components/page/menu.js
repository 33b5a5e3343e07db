// The one menu for what is needed seldom (⋯). Entries are objects: `label` and `run()`, perhaps `checked` (one of several),
// `disabled`, `hint`; `{ heading }` stands above those that follow it. By mouse, finger or keyboard.

let number = 0;

export default {
  name: "NbMenu",
  props: { entries: Array, label: { type: String, default: "More" } },
  template: `
<span class="menu" @focusout="left" @keydown="key">
  <button ref="button" type="button" class="ghost dots" :id="id" aria-haspopup="menu" :aria-expanded="open" :aria-label="label"
    :title="label" @click="toggle"><span aria-hidden="true">⋯</span></button>
  <div v-if="open" ref="list" class="sheet" role="menu" :aria-labelledby="id">
    <template v-for="entry in entries" :key="entry.heading ?? entry.label">
      <div v-if="entry.heading" class="heading" role="presentation">{{ entry.heading }}</div>
      <button v-else type="button" tabindex="-1" :role="'checked' in entry ? 'menuitemradio' : 'menuitem'" :disabled="entry.disabled"
        :aria-checked="'checked' in entry ? entry.checked : null" :title="entry.hint" @click="take(entry)">
        <span class="tick" aria-hidden="true">{{ entry.checked ? '✓' : '' }}</span>{{ entry.label }}</button>
    </template>
  </div>
</span>`,
  data: () => ({ open: false }),
  created() {
    this.id = `menu-${(number += 1)}`;
  },
  methods: {
    toggle() {
      this.open = !this.open;
      if (this.open) this.$nextTick(() => this.items()[0]?.focus());
    },
    items() {
      return [...(this.$refs.list?.querySelectorAll("button:not(:disabled)") ?? [])];
    },
    close() {
      this.open = false;
      this.$refs.button.focus();
    },
    take(entry) {
      this.close();
      entry.run();
    },
    left(event) {
      if (!this.$el.contains(event.relatedTarget)) this.open = false;
    },
    key(event) {
      if (!this.open) return;
      const items = this.items();
      const at = items.indexOf(document.activeElement);
      const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
      if (to !== undefined) items.at(to % items.length)?.focus();
      else if (event.key === "Escape") this.close();
      else return;
      event.preventDefault();
      event.stopPropagation();
    },
  },
};
