// The checklist in the rail. Agents put items on it and tick them; a person ticks, takes ticks away, and adds.

export default {
  name: "NbChecks",
  props: { state: Object, page: Object },
  template: `
<section v-if="items.length" class="checks" aria-label="Checklist" data-testid="checklist"><h2>Checklist <span class="count">{{ done }} of {{ items.length }}</span></h2>
  <ul><li v-for="[item, ticked] in items" :key="item"><label :class="{ ticked }">
    <input type="checkbox" :checked="ticked" data-testid="check" @change="page.check(item, $event.target.checked)"><span>{{ item }}</span></label></li></ul>
</section>`,
  computed: {
    items() {
      return [...this.state.checks];
    },
    done() {
      return this.items.filter(([, ticked]) => ticked).length;
    },
  },
};
