// The strip for who comes back: how long they were away, what happened, what waits.

import { away, counted } from "./words.js";

// What happened and what goes on, most important last; "" when nothing did.
export function happened({ finished, failed, stopped, changed, remarks, delivered, restarted }, going, waiting) {
  const parts = [
    finished && `${counted(finished, "cell")} finished`,
    failed && `${finished ? failed : counted(failed, "cell")} failed`,
    stopped && `${finished || failed ? stopped : counted(stopped, "cell")} stopped`,
    changed && `${counted(changed, "cell")} changed by others`,
    remarks && counted(remarks, "remark"),
    delivered && `${counted(delivered, "result")} delivered`,
    restarted && "the server was restarted",
    going && `${finished || failed || stopped ? going : counted(going, "cell")} still running`,
    waiting && (waiting === 1 ? "1 question waits" : `${waiting} questions wait`),
  ].filter(Boolean);
  return parts.join(", ");
}

export default {
  name: "NbStrip",
  props: { absence: Object, going: Number, waiting: Number },
  emits: ["show", "dismiss"],
  template: `
<section class="note back" aria-label="While you were away" data-testid="return-strip">
  <p role="status">You were away for {{ long }}: <b>{{ words || 'nothing happened' }}.</b></p>
  <button v-if="words" type="button" data-testid="show-left" @click="$emit('show')">Show where I left</button>
  <button type="button" class="ghost" @click="$emit('dismiss')">Dismiss</button>
</section>`,
  computed: {
    long() {
      return away(this.absence.seconds);
    },
    words() {
      return happened(this.absence, this.going, this.waiting);
    },
  },
};
