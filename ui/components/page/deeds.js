// What a person can do in a notebook; cells, the head, keys and the palette call these. Each is a command to the server, or
// a step of the focus; nothing here changes what the page shows of the document before the server has said so.

import { letGo } from "./editor.js";
import { call, freshId, recall, remember } from "./commands.js";
import { points, units } from "./source.js";

const CLIPBOARD = "nightbook.clipboard"; // a cell that was cut or copied, for all notebooks of this tab

const WHY = { busy: "The kernel is busy: words of this notebook.", asleep: "The kernel is asleep: words of this notebook." };

// `nb` is the notebook component.
export function deeds(nb) {
  const send = (kind, fields) => nb.commands.send(kind, fields);
  const saved = async () => {
    const cells = [...nb.cells.values()];
    await Promise.all(cells.map((cell) => cell.view?.$refs.attach?.settled())); // files that are on their way to a request
    await Promise.all(cells.map((cell) => cell.source.flush()));
  };
  const near = (cell, by) => nb.cells.get(nb.order[nb.order.indexOf(cell.id) + by]);
  // Cells that will run get their room now, and show that they were asked for until the server speaks of them.
  const asking = (cells, many) => {
    const asked = cells.filter((cell) => cell.kind !== "markdown" && !(many && cell.view?.active));
    for (const cell of asked) {
      cell.asked = true;
      cell.view?.expect(many);
    }
    return (command) => asked.forEach((cell) => cell.asked && (cell.asked = command));
  };
  const before = (cell) => nb.order[nb.order.indexOf(cell.id) - 1] ?? null;

  const page = {
    caret: null, // where the caret goes in the cell that takes the focus next
    takeFocus: (id) => {
      if (nb.focusing !== id) return null;
      const how = nb.how;
      nb.focusing = nb.how = null;
      const { ahead } = nb.$refs;
      if (ahead?.value) {
        nb.page.caret = ahead.value.length;
        nb.cells.get(id).source.type(ahead.value);
        ahead.value = "";
      }
      const at = document.activeElement; // who types somewhere else by now is left there
      return at === nb.from || !at.matches("textarea, input, [contenteditable]") ? (how ?? "edit") : null;
    },

    keyed: (event, cell) => nb.keys.edited(event, cell),
    entered: (cell) => (nb.chosen = cell.id),
    cells: () => nb.order.map((id) => nb.cells.get(id)),
    chooseById: (id) => nb.cells.get(id)?.view?.choose(),
    elements: () => nb.order.map((id) => nb.cells.get(id).view.$el),

    // Where this person is in the text, for the others: at most once a second. `cell` null: nowhere.
    at: (cell, units = null) => {
      nb.standing = { cell: cell?.id ?? null, at: units === null ? null : points(cell.source.local, units) };
      nb.telling ??= setTimeout(() => {
        nb.telling = null;
        if (nb.link.up) nb.$emit("at", nb.standing);
      }, 1000);
    },

    // What the kernel knows, or the notebook's own words while it does not answer.
    complete: async (text, at) => {
      const answer = await call(`${nb.commands.place}/complete`, { source: text, at: points(text, at) });
      const from = units(text, answer.start);
      return {
        from,
        items: answer.items,
        sure: answer.known_by === "kernel",
        static: answer.known_by === "kernel" ? "" : WHY[answer.why],
      };
    },
    inspect: async (text, at) => {
      const answer = await call(`${nb.commands.place}/inspect`, { source: text, at: points(text, at) });
      return answer.known_by === "kernel" ? answer : { text: `Nothing to be said now. ${WHY[answer.why]}` };
    },

    // Runs
    run: async (cell) => {
      const sent = asking([cell], false);
      await cell.view?.$refs.attach?.settled();
      await cell.source.flush();
      sent(send("run_cell", { cell_id: cell.id }));
    },
    runHere: (cell) => {
      if (cell.kind !== "markdown") page.run(cell);
      else if (cell.view?.editing) cell.view.choose();
    },
    runOn: (cell, editing) => {
      page.runHere(cell);
      const next = near(cell, 1);
      if (editing || !next) page.next(cell);
      else page.choose(next);
    },
    runInsert: (cell) => {
      page.runHere(cell);
      page.add(cell.kind === "markdown" ? "python" : cell.kind, cell.id);
    },
    runAbove: (cell) => {
      if (before(cell)) page.runAll(before(cell));
    },
    runBelow: (cell) => page.runAll(undefined, cell.id),
    runAll: async (until, since) => {
      const [first, last] = [since ? nb.order.indexOf(since) + 1 : 0, until ? nb.order.indexOf(until) + 1 : nb.order.length];
      const sent = asking(page.cells().slice(first, last), true);
      await saved();
      sent(send("run_all", { ...(until && { until }), ...(since && { since }) }));
    },
    stop: (cell) => send("stop", cell.run_id ? { run_id: cell.run_id } : { cell_id: cell.id }),
    // The notebook as one document, which the browser saves.
    save: (format) => {
      const link = document.createElement("a");
      Object.assign(link, { href: `/api/v1/notebooks/${encodeURIComponent(nb.notebook)}/export?format=${format}`, download: "" });
      link.click();
    },
    stopAll: () => send("stop"),
    restart: async (runAll = false) => {
      if (runAll !== true) return send("restart_kernel");
      const sent = asking(page.cells().filter((cell) => cell.kind !== "agent"), true);
      await saved();
      sent(send("restart_kernel", { run_all: true }));
    },
    input: (cell, text) => {
      const input = cell.input?.id ?? null;
      send("input", { run_id: cell.run_id, input: input || null, text });
      cell.answered = input;
    },

    // The focus
    next: (cell) => {
      const next = near(cell, 1);
      if (next) next.view?.focus();
      else page.add("python", cell.id);
    },
    edit: (cell) => {
      if (cell.hide_source) page.collapse(cell, { source: false });
      cell.view?.focus();
    },
    choose: (cell) => cell.view?.choose(),
    step: (cell, by) => {
      const next = cell ? near(cell, by) : (nb.cells.get(nb.chosen) ?? nb.cells.get(nb.order[0]));
      if (next) page.choose(next);
    },
    palette: (cell) => nb.$refs.over.open(cell ?? null),
    keys: () => nb.$refs.over.openKeys(),
    ask: (name) => nb.$refs.over.ask(name),
    find: (cell) => {
      const asked = cell?.view?.editor.selected ?? "";
      letGo(); // all text stands still, so that what is found can be shown in it
      nb.$refs.find.open(asked, cell);
    },

    // The document
    add: (kind, after, source = "", how = "edit") => {
      const id = freshId();
      nb.focusing = id;
      nb.how = how;
      nb.page.caret = null;
      nb.adding = [...nb.adding, id];
      if (nb.up && source === "" && how === "edit") nb.$refs.ahead?.focus({ preventScroll: true }); // who types on types there
      nb.from = document.activeElement;
      if (!nb.up && source === "") nb.wait();
      send("add_cell", { cell_kind: kind, source, cell_id: id, ...(after === undefined ? {} : { after }) });
    },
    insert: (cell, by) => page.add("python", by < 0 ? before(cell) : cell.id, "", "choose"),
    duplicate: (cell) => page.add(cell.kind, cell.id, cell.source.local, "choose"),
    copy: (cell) => {
      remember(CLIPBOARD, { kind: cell.kind, source: cell.source.local });
      navigator.clipboard?.writeText(cell.source.local).catch(() => {}); // only a kindness
    },
    cut: (cell) => {
      page.copy(cell);
      page.remove(cell);
    },
    paste: (cell) => {
      const kept = recall(CLIPBOARD);
      if (kept?.kind) page.add(kept.kind, cell.id, String(kept.source ?? ""), "choose");
    },
    move: (cell, by) => {
      const at = nb.order.indexOf(cell.id);
      const after = by < 0 ? (at === 0 ? undefined : nb.order[at - 2] ?? null) : nb.order[at + 1];
      if (after !== undefined) page.place(cell, after);
    },
    // Behind `after`, null for the first place.
    place: (cell, after) => send("move_cell", { cell_id: cell.id, after }),
    dropped: (cell, index) => {
      const at = nb.order.indexOf(cell.id);
      if (index !== at && index !== at + 1) page.place(cell, nb.order[index - 1] ?? null);
    },
    remove: (cell) => {
      cell.source.send();
      const command = send("delete_cell", { cell_id: cell.id });
      nb.took({ what: "deleted", id: cell.id, command, back: () => send("restore_cell", { cell_id: cell.id }) });
    },
    split: async (cell) => {
      const at = cell.view?.editor.caret;
      if (at === null || at === undefined) return;
      const text = cell.source.local;
      await cell.source.flush();
      if (cell.source.local !== text || !cell.source.clean) return; // changed elsewhere, or over the limit: it says so itself
      const into = freshId();
      nb.focusing = into;
      nb.how = "edit";
      nb.from = cell.view?.editor.content;
      nb.page.caret = 0;
      const command = send("split_cell", { cell_id: cell.id, base: cell.source.version, at: points(text, at), into });
      const joint = text[at - 1] === "\n" || text[at] === "\n" ? "\n" : "";
      nb.took({ what: "split", words: "Cell split.", id: into, command, back: () => send("merge_cells", { cell_id: cell.id, other: into, joint }) });
    },
    merge: async (cell) => {
      const other = near(cell, 1);
      if (!other) return;
      await Promise.all([cell.source.flush(), other.source.flush()]);
      const at = points(cell.source.local, cell.source.local.length);
      const command = send("merge_cells", { cell_id: cell.id, other: other.id });
      const entry = { what: "merged", words: "Cells merged.", id: other.id, command, base: null };
      entry.back = () => send("split_cell", { cell_id: cell.id, base: entry.base ?? cell.source.version, at, into: other.id });
      nb.took(entry);
    },
    // Texts that find and replace has changed.
    replaced: (changes, count) => {
      const back = () => {
        for (const { cell, before, after } of changes) {
          if (cell.source.local !== after) continue; // someone went on in it
          cell.source.type(before);
          cell.view?.draw();
          cell.source.send();
        }
      };
      nb.took({ what: "replaced", words: `${count} replaced.`, id: freshId(), command: null, back });
    },
    undo: () => nb.restore(),
    kind: (cell, kind) => {
      if (cell.kind === kind) return;
      cell.source.send();
      send("edit_cell", { cell_id: cell.id, cell_kind: kind });
    },
    collapse: (cell, what) => send("collapse", { cell_id: cell.id, ...what }),
    say: (text) => nb.say(text),
    rename: (title) => send("rename", { title }),
    show: (id) => {
      const node = nb.cells.get(id)?.view?.$el;
      const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
      node?.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
    },
    archive: () => send("archive", { archived: true }),
    unarchive: () => send("archive", { archived: false }),
  };
  return page;
}
