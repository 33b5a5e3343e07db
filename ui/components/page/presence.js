// Who is here: in which cell this person and the others are, whether the page is looked at, and what one is told who comes
// back, or whose server was another one meanwhile. `this` is the notebook component.

import { freshId, recall, remember } from "./commands.js";

export const STAND = 5000; // milliseconds after which a page says again in which cell the person is (engine/whereabouts.py)
const AWAY = 60000; // milliseconds after which who comes back is told what happened
const RESTART = 600000; // milliseconds after which a new server is no news any more
const TOLD = 8000; // milliseconds for which a restart is told

export const presence = {
  // A page out of sight is in no cell.
  stand() {
    if (!this.standing?.cell || !this.link.up) return;
    this.$emit("at", document.hidden ? { cell: null, at: null } : this.standing);
  },
  // Where others type: by cell, only what changed is drawn.
  meet(carets) {
    const found = new Map();
    for (const caret of carets) {
      const own = caret.member === this.member;
      const words = { who: own ? "you" : caret.member, told: own ? "You, on another page, are in this cell" : `${caret.member} is in this cell` };
      found.set(caret.cell, [...(found.get(caret.cell) ?? []), { ...caret, ...words }]);
    }
    for (const cell of this.cells.values()) {
      const now = found.get(cell.id) ?? [];
      if (JSON.stringify(now) !== JSON.stringify(cell.others)) cell.others = now;
    }
  },
  // Another server than the tab last heard of, a moment ago: it was restarted, and the page came back by itself.
  served(server) {
    const key = `nightbook.server.${this.notebook}`;
    const last = recall(key);
    if (last?.server === server && Date.now() - last.at < RESTART / 4) return;
    remember(key, { server, at: Date.now(), busy: this.runs.busy });
    if (!last || last.server === server || Date.now() - last.at > RESTART) return;
    this.restarted = last.busy ? "Server restarted, work went on" : "Server restarted";
    setTimeout(() => (this.restarted = ""), TOLD);
  },
  back({ seq, ...told }) {
    this.link.heard();
    this.left = seq;
    this.absence = { ...told, key: freshId() };
  },
  // Looking away and back. A page is looked at while it is in front; after a while away one is told what happened.
  look(first = false) {
    const looking = !document.hidden;
    const back = looking && (first || (this.awaySince !== undefined && Date.now() - this.awaySince > AWAY));
    if (!looking && this.awaySince === undefined) this.awaySince = Date.now();
    if (looking && this.link.up) this.awaySince = undefined;
    if (this.link.up) this.$emit("look", { looking, back });
  },
  async showLeft() {
    const left = this.$refs.rail.$el.querySelector(".left");
    const mark = left?.nextElementSibling?.querySelector("[data-cell]")?.dataset.cell;
    const entry = this.history.find((one) => one.until > this.left && this.cells.has(one.cell));
    const id = mark ?? entry?.cell;
    if (id) this.page.show(id);
    else left?.scrollIntoView({ block: "center" });
  },
};
