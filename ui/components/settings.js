// Settings: which model replies to agent cells, where models are, and what each place answers when it is tried.

import { Link } from "nightbook/link.js";
import { ask, attempt, look, models } from "nightbook/models.js";

export default {
  template: `
<div class="nb">
  <header class="head"><a class="logo" href="/" aria-label="All notebooks" title="All notebooks"></a><h1>Settings</h1></header>
  <div class="page settings">
    <p v-if="problem" class="failure" role="alert">{{ problem }} <button type="button" @click="load">Try again</button></p>
    <p v-if="!known && !problem" class="small" role="status">Looking</p>
    <template v-if="known">
      <section class="place"><h2>The model that replies</h2>
        <p>Now: <b data-testid="model-now">{{ now }}</b><span v-if="now === 'runbook'"> (carries out the code blocks of a request, step by step; it does not read plain words)</span></p>
        <p v-if="nowhere" data-testid="model-nowhere">No place below is ready yet. Set the key of one in the environment of Nightbook and start it again, or start Ollama
          on this machine and try it.</p>
        <form class="say" @submit.prevent="choose(wanted)"><input v-model="wanted" list="models" aria-label="Model" data-testid="model-name"
            placeholder="anthropic:…, openai:…, ollama:… or runbook" autocomplete="off" spellcheck="false">
          <datalist id="models"><option v-for="name in offered" :key="name" :value="name"></option></datalist>
          <button type="submit" class="main" data-testid="model-choose" :disabled="!wanted.trim() || busy">Use it</button>
          <button v-if="known.chosen !== null" type="button" data-testid="model-default" :disabled="busy" @click="choose(null)">Back to {{ known.default }}</button></form>
        <p v-if="said" :role="wrong ? 'alert' : 'status'" data-testid="model-said" :class="wrong ? 'failure' : 'small'">{{ said }}</p>
        <p class="small">It replies from the next run on, in every notebook that does not choose its own.</p></section>
      <section v-for="place in known.places" :key="place.id" class="place" :data-testid="'place-' + place.id">
        <h2>{{ place.title }}</h2>
        <p><code>{{ place.url }}</code> <span class="small">from {{ place.url_variable }}</span></p>
        <p v-if="place.variable">{{ place.key ? 'A key is set' : place.ready ? 'No key is set; this address may need none:' : 'No key is set:' }}
          <span class="small">{{ place.key ? 'from' : 'set' }} {{ place.variable }} {{ place.key ? 'in the environment; it is never shown' : 'in the environment of Nightbook and start it again' }}</span></p>
        <p><button type="button" :data-testid="'try-' + place.id" :disabled="tries[place.id]?.busy" @click="attempt(place, false)">
          {{ tries[place.id]?.busy ? 'Asking…' : 'Try it' }}</button></p>
        <div v-if="tries[place.id] && !tries[place.id].busy" :data-testid="'said-' + place.id" role="status">
          <p v-if="tries[place.id].error" :class="tries[place.id].unasked ? 'small' : 'failure'">{{ tries[place.id].error }}</p>
          <p v-else-if="!tries[place.id].models.length">It answers, and has no model yet.</p>
          <template v-else><p>It answers, with {{ tries[place.id].models.length }} model{{ tries[place.id].models.length === 1 ? '' : 's' }}:</p>
            <ul class="names"><li v-for="name in tries[place.id].models" :key="name"><code>{{ name }}</code>
              <button type="button" class="ghost" :aria-label="'Use ' + name" @click="choose(place.id + ':' + name)">Use it</button></li></ul></template>
        </div></section>
      <section class="place"><h2>Used today</h2>
        <p class="count">{{ known.tokens.toLocaleString() }} tokens<template v-if="known.day_tokens"> of {{ known.day_tokens.toLocaleString() }}</template><template
          v-if="known.cost !== null">, \${{ known.cost.toFixed(2) }}<template v-if="known.day_cost"> of \${{ known.day_cost.toFixed(2) }}</template></template></p>
        <p class="small">The day is UTC. NIGHTBOOK_DAY_TOKENS and NIGHTBOOK_DAY_COST are bounds that stop. Web search by the provider is
          {{ known.web_search ? 'on' : 'off' }} (NIGHTBOOK_WEB_SEARCH).</p></section>
    </template>
  </div>
</div>`,
  data: () => ({ wanted: "", said: "", wrong: false, busy: false }),
  computed: {
    known: () => models.known,
    problem: () => (models.problem ? `The settings cannot be read: ${models.problem}.` : ""),
    tries: () => models.tried,
    // No key anywhere, and no server that answers without one.
    nowhere() {
      return this.known.places.every((place) => !place.key && (!place.ready || this.tries[place.id]?.error));
    },
    now() {
      return this.known.chosen ?? this.known.default;
    },
    offered() {
      const names = Object.entries(this.tries).flatMap(([id, tried]) => (tried.models ?? []).map((name) => `${id}:${name}`));
      return ["runbook", ...names];
    },
  },
  created() {
    // A server that was started anew may have other keys.
    this.link = new Link({ connected: () => this.known && this.load(), elements: () => this.$root.elements, silence: Infinity });
  },
  mounted() {
    this.load().then(() => this.known && this.find());
    setTimeout(() => this.link.start()); // the framework makes its socket after this
  },
  unmounted() {
    this.link.stop();
  },
  methods: {
    async load() {
      await look();
    },
    // A server on this machine is found without a click; providers are asked when somebody wants to know.
    find() {
      const local = this.known.places.filter((place) => /^https?:\/\/(127\.|localhost|\[::1\])/i.test(place.url));
      for (const place of local) attempt(place, !place.key);
    },
    attempt,
    async choose(name) {
      this.busy = true;
      try {
        await ask("", "PUT", { model: name === null ? null : name.trim() });
        await this.load();
        [this.said, this.wrong, this.wanted] = [`${this.now} replies from now on.`, false, ""];
      } catch (error) {
        [this.said, this.wrong] = [error.message, true];
      }
      this.busy = false;
    },
  },
};
