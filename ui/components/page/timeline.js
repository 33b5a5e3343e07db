// The timeline: what happened in the notebook, newest last, each line linked to its cell, with the mark "you left here". What
// belongs together the server has put together already (engine/history.py); here it only gets its words.

import { verdictWords } from "./asks.js";
import { took } from "./words.js";

const SHOWN = 12; // lines at first, and how many more each time

// Made once: of all that a line takes, these are what takes long.
const CLOCK = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", hour12: false });
const FULL = new Intl.DateTimeFormat([], { dateStyle: "short", timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat([], { weekday: "short", day: "numeric", month: "short" });

const SANDBOX = {
  awake: "Sandbox awake",
  asleep: "Sandbox asleep",
  lost: "Sandbox lost, variables gone",
  gone: "Kernel gone, variables gone",
};

// One line: who or what, and what happened. `place(id)` names a cell.
export function told(entry, place, member) {
  const { what, status, text, count, cell, cells, ms } = entry;
  const who = entry.by === null ? "" : entry.by === member ? "You" : entry.by;
  const name = place(cell);
  const many = cells.length > 1 ? `${count > cells.length && cells.length > 19 ? "many" : cells.length} cells` : name;
  switch (what) {
    case "made":
      return `${who || "Somebody"} made the notebook`;
    case "renamed":
      return `${who} named it ${text}`;
    case "archived":
      return `${who} archived it`;
    case "unarchived":
      return `${who} took it out of the archive`;
    case "run_all":
      return `${who} asked to run ${count === 1 ? name : `${count} cells`}`;
    case "run": {
      const time = ms === null ? "" : `, ${took(ms)}`;
      if (status === "running") return `${name} is running`;
      if (status === "started") return `${name} started`; // and waits: its own line says for what
      if (status === "error") return `${name} failed${text ? `: ${text}` : ""}`;
      const done = status === "done" ? "finished" : "stopped";
      if (count > 1 && cells.length === 1) return `${name} ${done} ${count} times`;
      return `${many} ${done}${status === "done" ? time : ""}`;
    }
    case "edited":
      return `${who || "Somebody"} changed ${many}`;
    case "deleted":
      return `${who || "Somebody"} deleted ${count === 1 ? "a cell" : `${count} cells`}`;
    case "asked":
      return status === "open" ? `${name} waits for a line` : `${name} got its line`;
    case "ask":
      return `${name} ${status === "open" ? "asks" : "asked"}: ${text}`;
    case "verdict":
      return verdictWords({ verdict: status, reason: text }, who === "You" ? "you" : who, "");
    case "delivered":
      return `Delivered: ${text}`;
    case "file":
      return `Wrote ${text}${count > 1 ? `, ${count} versions` : ""}`;
    case "comment":
      return `${who}: ${text}`;
    case "sandbox":
      return SANDBOX[status] ?? `Sandbox ${status}`;
    case "restarted":
      return "Server restarted";
  }
  return what;
}

export default {
  name: "NbTimeline",
  props: { state: Object, page: Object },
  template: `
<section v-if="lines.length" class="timeline" aria-labelledby="timeline-title" data-testid="timeline">
  <h2 id="timeline-title">Timeline</h2>
  <button v-if="lines.length > shown" type="button" class="ghost earlier" @click="shown += ${SHOWN * 2}">Earlier…</button>
  <ol ref="list" role="list">
    <template v-for="line in lines.slice(-shown)" :key="line.seq">
      <li v-if="line.day" class="day">{{ line.day }}</li>
      <li v-if="line.mark" class="left" data-testid="left-here">you left here</li>
      <li :class="['t-' + line.what, 't-' + line.status]"><time :datetime="line.at" :title="line.full">{{ line.clock }}</time>
        <a v-if="line.link" href="" :data-cell="line.cell" :title="line.text" @click.prevent="page.show(line.cell)">{{ line.text }}</a>
        <span v-else :title="line.text">{{ line.text }}</span></li>
    </template>
    <li v-if="state.left !== null && !marked" class="left" data-testid="left-here">you left here</li>
  </ol>
</section>`,
  data: () => ({ shown: SHOWN }),
  computed: {
    lines() {
      const { history, left, member, order, cells } = this.state;
      const places = new Map(order.map((id, at) => [id, at + 1]));
      const place = (id) => (places.has(id) ? `Cell ${places.get(id)}` : "A deleted cell");
      let marked = left === null;
      let today = new Date().toDateString();
      let before = today;
      // One's own typing is no news to oneself; that one made the notebook is where it begins.
      const kept = history.filter((entry) => !(entry.what === "edited" && entry.by === member));
      return kept.map((known) => {
        const waits = known.what === "run" && known.status === "running" && cells.get(known.cell)?.state === "waiting";
        const entry = waits ? { ...known, status: "started" } : known;
        const at = new Date(entry.at);
        const day = at.toDateString();
        const line = {
          ...entry,
          text: told(entry, place, member),
          link: entry.cell !== null && cells.has(entry.cell),
          clock: CLOCK.format(at),
          full: FULL.format(at),
          day: day === before ? "" : day === today ? "Today" : DAY.format(at),
          mark: !marked && entry.until > left,
        };
        before = day;
        marked ||= line.mark;
        return line;
      });
    },
    marked() {
      return this.lines.some((line) => line.mark);
    },
  },
};
