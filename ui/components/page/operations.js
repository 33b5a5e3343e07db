// What the server tells a page, operation by operation (the table in ui/ops.py), put into what the page shows. `this` is the
// notebook component.

import { nextTick } from "vue";
import { grown, retold, spliced } from "./story.js";

const HISTORY = 200; // entries of the timeline, as in engine/history.py

export const operations = {
  on_reset() {
    this.stale = this.order.length ? new Set(this.cells.keys()) : null;
    this.arriving = [];
    this.staged = { files: new Map(), checks: new Map() };
  },
  on_file({ file }) {
    const { ago, ...fields } = file;
    (this.staged ?? this).files.set(file.path, { ...fields, at: performance.now() - 1000 * ago });
  },
  on_check({ item, done }) {
    (this.staged ?? this).checks.set(item, done);
  },
  on_story(op) {
    const cell = this.cells.get(op.id);
    if (cell) spliced(cell.story, op);
    if (cell && op.items.length) this.touched.add(cell);
  },
  on_thought(op) {
    const cell = this.cells.get(op.id);
    if (cell) grown(cell.story, op);
    if (cell) this.touched.add(cell);
  },
  on_notebook({ set }) {
    for (const key of ["title", "archived", "sandbox", "policy", "model", "rules", "servers"]) if (key in set) this[key] = set[key];
  },
  on_add({ cell: view, after, command }) {
    const { id, source, version, story, ...fields } = view;
    let cell = this.cells.get(id);
    if (cell) {
      if (!cell.output.empty) cell.view?.space.begin(); // its room stays
      cell.output.clear();
      cell.source.replaced(source, version);
    } else {
      cell = this.made(id, source, version);
      this.cells.set(id, cell);
      if (this.fresh) this.focusing = id;
      this.fresh = false;
    }
    retold(cell.story, story);
    this.fields(cell, fields);
    if (cell.asked !== true && !this.commands.has(cell.asked)) cell.asked = false; // it was answered, whatever came of it
    cell.shown = false;
    cell.traced = "";
    this.stale?.delete(id);
    this.adding = this.adding.filter((other) => other !== id);
    const typed = command && view.beside ? this.answered(command, view.beside, cell) : null;
    if (this.stale) this.arriving.push(id);
    else this.order = placed(this.order, id, after);
    if (typed === null) this.recover(cell);
  },
  on_history({ from, entries }) {
    this.history = [...this.history.filter((entry) => entry.seq < from), ...entries].slice(-HISTORY);
  },
  on_move({ id, after }) {
    this.order = placed(this.order, id, after);
    const held = document.activeElement;
    if (this.cells.get(id)?.view?.$el.contains(held)) {
      nextTick(() => {
        if (held.isConnected && document.activeElement !== held) held.focus({ preventScroll: true });
        this.cells.get(id)?.view?.$el.scrollIntoView({ block: "nearest" });
      });
    }
  },
  on_remove({ id }) {
    const own = this.cells.get(id)?.view?.$el;
    const held = own?.contains(document.activeElement);
    const whole = own === document.activeElement;
    const at = this.order.indexOf(id);
    this.drop(id);
    this.order = this.order.filter((other) => other !== id);
    if (held) this.take(this.order[at] ?? this.order[at - 1], whole);
  },
  on_cell({ id, set }) {
    const cell = this.cells.get(id);
    if (!cell) return;
    if (set.state && set.state !== cell.state) this.speak(id, set.state);
    this.fields(cell, set);
    if ("state" in set) cell.asked = false;
  },
  on_edit(op) {
    const merge = this.undo.find((entry) => entry.what === "merged" && entry.command === op.command);
    if (merge) merge.base = op.version; // the text that the merge made: what is undone is found in it
    this.cells.get(op.id)?.source.edited(op);
  },
  on_clear({ id }) {
    const cell = this.cells.get(id);
    if (!cell) return;
    cell.view?.space.begin();
    cell.output.clear();
    cell.shown = false;
    cell.traced = "";
    if (cell.view) cell.view.follow = true;
  },
  on_output({ id, item }) {
    const cell = this.cells.get(id);
    if (!cell) return;
    cell.output.append(item);
    if (item.stream === "traceback") cell.traced = cell.output.newest();
    cell.shown = !cell.output.empty;
    this.touched.add(cell);
  },
  on_update({ id, item }) {
    this.cells.get(id)?.output.update(item);
  },
  on_refused({ command, reason, cell }) {
    this.refused(command, reason, cell);
  },
};

function placed(order, id, after) {
  const rest = order.filter((other) => other !== id);
  const at = after === null ? 0 : rest.includes(after) ? rest.indexOf(after) + 1 : rest.length;
  rest.splice(at, 0, id);
  return rest;
}
