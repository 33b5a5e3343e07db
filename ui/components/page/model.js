// By which model an agent cell runs, in its line; a click opens the list of all there are. The choice is the notebook's: it
// holds for its cells from their next run on, and goes before the team's.

import { listed } from "./listed.js";
import { attempt, look, models } from "./models.js";

const RUNBOOK = "runbook";

export default {
  name: "NbModel",
  mixins: [listed],
  props: { page: Object },
  template: `
<span class="model">
  <button ref="button" type="button" class="ghost" data-testid="model-pick" :data-model="now" aria-haspopup="dialog" :title="title" @click="show">
    {{ label }} <span aria-hidden="true">▾</span></button>
  <span v-if="none" class="small" data-testid="model-none"><span>Only code blocks are carried out. </span><a href="/settings">Choose a model</a></span>
  <dialog v-if="open" ref="dialog" class="over palette models" aria-label="Which model replies in this notebook" data-testid="model-list" @close="closed"
    @click.self="$refs.dialog.close()">
    <input ref="field" v-model="asked" type="text" role="combobox" aria-expanded="true" aria-controls="nb-models" aria-label="Name of a model"
      :aria-activedescendant="found.length ? 'nb-model-' + at : null" placeholder="Which model replies in this notebook" autocomplete="off"
      autocapitalize="off" spellcheck="false" data-testid="model-asked" @keydown="key">
    <ul id="nb-models" ref="list" role="listbox" aria-label="Models">
      <li v-for="(one, index) in found" :id="'nb-model-' + index" :key="one.value" role="option" :aria-selected="index === at" :data-model="one.value"
        @mousemove="at = index" @click="take(one)"><span class="name">{{ one.name }}</span><span class="about">{{ one.about }}</span><span class="grow"></span>
        <span v-if="one.value === chosen" class="about">✓ now</span></li></ul>
    <p v-if="!found.length" class="none">No model of that name. A choice is PLACE:MODEL, for example ollama:NAME.</p>
    <p v-for="trouble in troubles" :key="trouble" class="none">{{ trouble }}</p>
    <p class="under"><span role="status">{{ asking ? 'Asking ' + asking : 'Holds from the next run on.' }}</span><span class="grow"></span><a href="/settings">Settings</a></p>
  </dialog></span>`,
  data: () => ({ open: false }),
  computed: {
    chosen() {
      return this.page.model();
    },
    team: () => (models.known ? (models.known.chosen ?? models.known.default) : null),
    now() {
      return this.chosen || this.team || "";
    },
    // Nobody chose a model that reads plain words.
    none() {
      return !this.chosen && models.known !== null && models.known.chosen === null && models.known.default === RUNBOOK;
    },
    label() {
      if (this.none) return "No model";
      if (this.now === RUNBOOK) return "Runbook";
      return this.now.slice(this.now.indexOf(":") + 1) || "Model";
    },
    title() {
      if (this.none) return "No model is chosen: a runbook carries out the code blocks, and reads no plain words";
      return this.chosen ? `${this.now}, chosen for this notebook` : this.now ? `${this.now}, as the team chose` : "Which model replies";
    },
    all() {
      const rows = [
        { value: "", name: "As the team chose", about: this.team ?? "" },
        { value: RUNBOOK, name: "Runbook", about: "carries out code blocks, reads no plain words" },
      ];
      for (const place of models.known?.places ?? []) {
        for (const name of models.tried[place.id]?.models ?? []) rows.push({ value: `${place.id}:${name}`, name, about: place.title });
      }
      if (this.chosen && !rows.some((row) => row.value === this.chosen)) rows.splice(1, 0, { value: this.chosen, name: this.chosen, about: "" });
      return rows;
    },
    found() {
      const asked = this.asked.trim().toLowerCase();
      const rows = this.all.filter((row) => `${row.name} ${row.value} ${row.about}`.toLowerCase().includes(asked));
      const places = (models.known?.places ?? []).map((place) => place.id);
      const [place, model] = this.asked.trim().split(/:(.*)/s);
      const typed = places.includes(place) && model && !this.all.some((row) => row.value === this.asked.trim());
      return typed ? [...rows, { value: this.asked.trim(), name: `Use ${this.asked.trim()}`, about: "as it is written" }] : rows;
    },
    troubles() {
      const told = (models.known?.places ?? []).filter((place) => models.tried[place.id]?.error && !models.tried[place.id].busy);
      return [...(models.problem ? [`What there is cannot be read: ${models.problem}.`] : []), ...told.map((place) => `${place.title}: ${models.tried[place.id].error}`)];
    },
    asking() {
      return (models.known?.places ?? [])
        .filter((place) => models.tried[place.id]?.busy)
        .map((place) => place.title)
        .join(", ");
    },
  },
  mounted() {
    if (models.known === null) look();
  },
  methods: {
    async show() {
      Object.assign(this, { open: true, asked: "", at: 0 });
      await this.$nextTick();
      this.$refs.dialog.showModal();
      this.$refs.field.focus();
      this.at = Math.max(0, this.found.findIndex((row) => row.value === this.chosen));
      await look();
      for (const place of models.known?.places ?? []) if (place.ready) attempt(place);
    },
    closed() {
      this.open = false;
      this.$refs.button.focus({ preventScroll: true });
    },
    take(row) {
      this.$refs.dialog.close();
      if (row.value !== this.chosen) this.page.chooseModel(row.value);
    },
  },
};
