// A unified diff as lines of their own colour; a sign stands before each, so colour is never alone.

const KINDS = { "+": "added", "-": "removed", "@": "place" };

export default {
  name: "NbDiff",
  props: { text: String },
  template: `<pre class="diff" tabindex="0" role="region" aria-label="Changes"><span v-for="(line, at) in lines" :key="at" :class="line.kind">{{ line.text }}\n</span></pre>`,
  computed: {
    lines() {
      return this.text.replace(/\n$/, "").split("\n").map((text) => {
        const file = text.startsWith("+++") || text.startsWith("---");
        return { text, kind: file ? "file" : KINDS[text[0]] ?? "" };
      });
    },
  },
};
