// The way back to what runs, while it is out of sight: nobody is scrolled anywhere unasked.

export default {
  name: "NbJump",
  props: { running: Array }, // ids of cells, in the order of the page
  emits: ["jump"],
  template: `
<button v-if="hidden" type="button" class="jump" @click="$emit('jump', hidden)">
  <span aria-hidden="true">{{ below ? '↓' : '↑' }}</span> Jump to the running cell</button>`,
  data: () => ({ seen: {}, below: true }),
  computed: {
    hidden() {
      return this.running.some((id) => this.seen[id] !== false) ? null : this.running[0] ?? null;
    },
  },
  watch: {
    running: { handler: "watch", immediate: true, flush: "post" },
  },
  beforeUnmount() {
    this.observer?.disconnect();
  },
  methods: {
    watch(now, before) {
      if (before && now.join() === before.join()) return;
      this.observer?.disconnect();
      this.seen = {};
      if (!now.length) return;
      this.observer = new IntersectionObserver((entries) => {
        for (const { target, isIntersecting, boundingClientRect } of entries) {
          this.seen[target.dataset.cellId] = isIntersecting;
          if (!isIntersecting) this.below = boundingClientRect.top > 100;
        }
      }, { rootMargin: "-60px 0px 0px 0px" });
      for (const id of now) {
        const node = document.querySelector(`.cell[data-cell-id="${CSS.escape(id)}"]`);
        if (node) this.observer.observe(node);
      }
    },
  },
};
