// Who else, and who, is here: initials, the name in words for the pointer and for screen readers.

const SHOWN = 4;
const COLOURS = 6; // in head.css

export function initials(name) {
  const words = name.split(/[\s._@-]+/).filter(Boolean);
  const letters = words.length > 1 ? [words[0], words.at(-1)].map((word) => [...word][0]) : [...(words[0] ?? "?")].slice(0, 1);
  return letters.join("").toUpperCase();
}

function colour(name) {
  let sum = 0;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) % 9973;
  return sum % COLOURS;
}

export default {
  name: "NbFaces",
  props: { people: Array, member: String },
  template: `
<ul v-if="people.length" class="faces" aria-label="Who is here">
  <li v-for="person in shown" :key="person" :class="'face-' + colour(person)" :title="words(person)">
    <span aria-hidden="true">{{ initials(person) }}</span><span class="unseen">{{ words(person) }}</span></li>
  <li v-if="rest.length" class="rest" :title="rest.join(', ')"><span aria-hidden="true">+{{ rest.length }}</span>
    <span class="unseen">{{ rest.join(', ') }}</span></li>
</ul>`,
  computed: {
    shown() {
      return this.people.length > SHOWN ? this.people.slice(0, SHOWN - 1) : this.people;
    },
    rest() {
      return this.people.slice(this.shown.length);
    },
  },
  methods: {
    initials,
    colour,
    words(person) {
      return person === this.member ? `${person} (you)` : person;
    },
  },
};
