// What agents may do unasked in this notebook: said in the head at all times, changed in a small panel, with the rules
// that were given by "Always".

const POLICIES = [
  ["ask", "Asks before it acts", "Reading is free. Everything that changes a file, runs code or reaches the network waits for your yes."],
  ["edits", "Edits files freely", "Files in this notebook's folder may change unasked. Running code and the network wait for your yes."],
  ["all", "Acts freely", "Nothing is asked. Agents run code, change files and reach the network on their own."],
];

// What holds, in a few words: "Asks before it acts, 2 rules".
export function policyName(policy, rules) {
  const [, name] = POLICIES.find(([value]) => value === policy) ?? POLICIES[0];
  return rules.length ? `${name}, ${rules.length} ${rules.length === 1 ? "rule" : "rules"}` : name;
}

export default {
  name: "NbPolicy",
  props: { policy: String, rules: Array, page: Object },
  template: `
<span class="policy" ref="root" @keydown.esc="close">
  <button ref="button" type="button" class="chip" :class="policy" data-testid="policy" :data-policy="policy" aria-haspopup="dialog"
    :aria-expanded="open" title="What agents may do unasked" @click="open ? close() : show()">
    {{ name }}
    <span aria-hidden="true">▾</span></button>
  <div v-if="open" class="panel" role="dialog" aria-label="What agents may do unasked" data-testid="policy-panel">
    <fieldset><legend>Agents in this notebook</legend>
      <label v-for="[value, title, words] in POLICIES" :key="value"><input type="radio" name="policy" :value="value" :checked="value === policy"
        :data-testid="'policy-' + value" @change="page.policy(value)"><span><b>{{ title }}</b><small>{{ words }}</small></span></label></fieldset>
    <p class="small">What waits already goes on waiting for its own answer.</p>
    <template v-if="rules.length"><h4>Always allowed here</h4>
      <ul><li v-for="rule in rules" :key="rule.id" data-testid="rule"><code>{{ rule.title }}</code>
        <button type="button" class="ghost" :aria-label="'Remove the rule for ' + rule.title" @click="page.removeRule(rule.id)">Remove</button></li></ul>
    </template>
    <p v-else class="small">No rules yet. “Always in this notebook”, on a question, makes one.</p>
  </div></span>`,
  data: () => ({ POLICIES, open: false }),
  computed: {
    name() {
      return policyName(this.policy, this.rules);
    },
  },
  watch: {
    open(open) {
      if (open) document.addEventListener("pointerdown", this.outside);
      else document.removeEventListener("pointerdown", this.outside);
      if (open) this.$nextTick(() => this.$refs.root.querySelector("input:checked")?.focus());
    },
  },
  beforeUnmount() {
    document.removeEventListener("pointerdown", this.outside);
  },
  methods: {
    outside(event) {
      if (!this.$refs.root.contains(event.target)) this.open = false;
    },
    // From the button, or from the menu where there is no room for one: the focus goes back to where it came from.
    show() {
      this.from = document.activeElement;
      this.open = true;
    },
    close() {
      if (!this.open) return;
      this.open = false;
      (this.from?.isConnected ? this.from : this.$refs.button).focus();
    },
  },
};
