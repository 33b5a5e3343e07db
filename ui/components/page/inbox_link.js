// The way to the inbox in every head, with how many questions wait in all notebooks. Amber only while one does.

import { inbox } from "./asks.js";

export default {
  name: "NbInboxLink",
  template: `<a class="chip inbox" :class="{ wait: count }" href="/inbox" data-testid="inbox-count" :data-count="count"
  :aria-label="count ? 'Inbox: ' + count + (count === 1 ? ' question waits' : ' questions wait') : 'Inbox: no question waits'">
  <span v-if="count" class="dot"></span>Inbox<b v-if="count" class="count">{{ count }}</b></a>`,
  computed: {
    count: () => inbox.asks.length,
  },
};
