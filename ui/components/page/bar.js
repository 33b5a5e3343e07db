// A question that waits outside of what the reader sees: a bar at the foot of the window says so and leads there.

export default {
  name: "NbBar",
  props: { asks: Array },
  emits: ["show"],
  template: `
<div class="waitbar" aria-live="polite">
  <div v-if="asks.length" data-testid="ask-bar"><span class="dot"></span>
    <span class="words">{{ asks.length === 1 ? '1 question waits' : asks.length + ' questions wait' }}: {{ asks[0].title }}</span>
    <button type="button" @click="$emit('show', asks[0].ask)">Show</button></div></div>`,
};
