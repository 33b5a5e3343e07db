// A list under a field that has the focus (a combobox): arrows go round in it, Enter takes the entry in hand. Mixed into a
// component that has `found`, the entries for what was `asked`, `take(entry)`, and the list's element as `list`.

export const listed = {
  data: () => ({ asked: "", at: 0 }),
  watch: {
    asked() {
      this.at = 0;
    },
  },
  methods: {
    key(event) {
      if (event.isComposing) return;
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) {
        event.preventDefault();
        const count = this.found.length;
        this.at = count ? (this.at + step + count) % count : 0;
        this.$nextTick(() => this.$refs.list.children[this.at]?.scrollIntoView({ block: "nearest" }));
      } else if (event.key === "Enter") {
        event.preventDefault();
        if (this.found[this.at]) this.take(this.found[this.at]);
      }
    },
  },
};
