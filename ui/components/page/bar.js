// A question that waits outside of what the reader sees: a bar at the foot of the window says so and leads there.

export default {
  name: "NbBar",
  props: { asks: Array },
  emits: ["show"],
  template: `
<div class="waitbar" aria-live="polite">
  <div v-if="asks.length" data-testid="ask-bar"><span class="dot"></span>
    <span class="words">{{ asks.length === 1 ? '1 question waits' : asks.length + ' questions wait' }}: May I {{ title }}?</span>
    <button type="button" @click="$emit('show', asks[0].ask)">Show</button></div></div>`,
  computed: {
    title() {
      const { title } = this.asks[0];
      return /^[A-Z][a-z]/.test(title) ? title[0].toLowerCase() + title.slice(1) : title;
    },
  },
};
