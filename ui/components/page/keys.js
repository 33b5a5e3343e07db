// What a person can do by name and by key: one table, read by the keyboard, the palette and the list of keys.
//
// A key means one thing while a text is edited (`edit`) and another while a cell as a whole is chosen (`chosen`: the cell
// has the focus, not its text). Keys are named as in "Mod-Shift-k"; Mod is Cmd on a Mac and Ctrl elsewhere; "d d" is twice.

const MAC = /Mac|iP(hone|ad|od)/.test(navigator.platform);
const TWICE = 900; // milliseconds in which the second of two keys counts
const FIELDS = "input, textarea, select, [contenteditable]:not([contenteditable=false])";

// do(page, cell); `cell` says that it needs one; `held`: a key held down goes on doing it.
export const DEEDS = [
  { group: "Run", name: "Run cell", edit: ["Mod-Enter"], chosen: ["Mod-Enter"], cell: true, do: (page, cell) => page.runHere(cell) },
  { group: "Run", name: "Run cell and go on", edit: ["Shift-Enter"], chosen: ["Shift-Enter"], cell: true, do: (page, cell, editing) => page.runOn(cell, editing) },
  { group: "Run", name: "Run cell and insert below", edit: ["Alt-Enter"], chosen: ["Alt-Enter"], cell: true, do: (page, cell) => page.runInsert(cell) },
  { group: "Run", name: "Run all above", cell: true, do: (page, cell) => page.runAbove(cell) },
  { group: "Run", name: "Run from here on", cell: true, do: (page, cell) => page.runBelow(cell) },
  { group: "Run", name: "Run all", do: (page) => page.runAll() },
  { group: "Run", name: "Stop all that runs", chosen: ["i i"], do: (page) => page.stopAll() },
  { group: "Run", name: "Restart kernel", chosen: ["0 0"], do: (page) => page.ask("restart") },
  { group: "Run", name: "Restart kernel and run all", do: (page) => page.ask("restartAll") },

  { group: "Move about", name: "Edit cell", chosen: ["Enter"], cell: true, do: (page, cell) => page.edit(cell) },
  { group: "Move about", name: "Leave the text, choose the cell", edit: ["Escape"], hidden: true, cell: true, do: (page, cell) => page.choose(cell) },
  { group: "Move about", name: "Choose the cell above", chosen: ["k", "ArrowUp"], held: true, do: (page, cell) => page.step(cell, -1) },
  { group: "Move about", name: "Choose the cell below", chosen: ["j", "ArrowDown"], held: true, do: (page, cell) => page.step(cell, 1) },
  { group: "Move about", name: "Find and replace", chosen: ["/", "Mod-f", "Mod-Shift-f"], edit: ["Mod-Shift-f"], global: ["/", "Mod-Shift-f"], do: (page, cell) => page.find(cell) },
  { group: "Move about", name: "Everything by name", edit: ["Mod-k"], chosen: ["Mod-k"], global: ["Mod-k"], hidden: true, do: (page, cell) => page.palette(cell) },
  { group: "Move about", name: "Keys", chosen: ["?"], global: ["?"], do: (page) => page.keys() },

  { group: "Cells", name: "Insert cell above", chosen: ["a"], cell: true, do: (page, cell) => page.insert(cell, -1) },
  { group: "Cells", name: "Insert cell below", chosen: ["b"], cell: true, do: (page, cell) => page.insert(cell, 1) },
  { group: "Cells", name: "Cut cell", chosen: ["x"], cell: true, do: (page, cell) => page.cut(cell) },
  { group: "Cells", name: "Copy cell", chosen: ["c"], cell: true, do: (page, cell) => page.copy(cell) },
  { group: "Cells", name: "Paste cell below", chosen: ["v"], cell: true, do: (page, cell) => page.paste(cell) },
  { group: "Cells", name: "Duplicate cell", cell: true, do: (page, cell) => page.duplicate(cell) },
  { group: "Cells", name: "Delete cell", chosen: ["d d"], cell: true, do: (page, cell) => page.remove(cell) },
  { group: "Cells", name: "Undo the last change of cells", chosen: ["z"], do: (page) => page.undo() },
  { group: "Cells", name: "Move cell up", chosen: ["Shift-ArrowUp", "Mod-Shift-ArrowUp"], held: true, cell: true, do: (page, cell) => page.move(cell, -1) },
  { group: "Cells", name: "Move cell down", chosen: ["Shift-ArrowDown", "Mod-Shift-ArrowDown"], held: true, cell: true, do: (page, cell) => page.move(cell, 1) },
  { group: "Cells", name: "Split cell at the caret", edit: ["Mod-Shift--"], cell: true, do: (page, cell) => page.split(cell) },
  { group: "Cells", name: "Merge with the cell below", chosen: ["Shift-m"], cell: true, do: (page, cell) => page.merge(cell) },
  { group: "Cells", name: "Make it Python", chosen: ["y"], cell: true, do: (page, cell) => page.kind(cell, "python") },
  { group: "Cells", name: "Make it shell", chosen: ["s"], cell: true, do: (page, cell) => page.kind(cell, "shell") },
  { group: "Cells", name: "Make it text", chosen: ["m"], cell: true, do: (page, cell) => page.kind(cell, "markdown") },
  { group: "Cells", name: "Make it agent", cell: true, do: (page, cell) => page.kind(cell, "agent") },
  { group: "Cells", name: "Fold or show the output", chosen: ["o"], cell: true, do: (page, cell) => page.collapse(cell, { output: !cell.hide_output }) },
  { group: "Cells", name: "Fold or show the source", chosen: ["Shift-o"], cell: true, do: (page, cell) => page.collapse(cell, { source: !cell.hide_source }) },
];

const SIGNS = { Mod: MAC ? "⌘" : "Ctrl", Shift: "Shift", Alt: MAC ? "⌥" : "Alt", ArrowUp: "↑", ArrowDown: "↓", Escape: "Esc" };

// A key as people read it: ["Ctrl", "Shift", "K"].
export function shown(key) {
  return key.split(" ").flatMap((one) =>
    one.split(/-(?=.)/).map((part) => SIGNS[part] ?? (part.length === 1 ? part.toUpperCase() : part)),
  );
}

export function keysOf(deed) {
  return [...new Set([...(deed.edit ?? []), ...(deed.chosen ?? [])])];
}

function chord(event) {
  let key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (event.code === "Minus" && event.shiftKey) key = "-";
  const mod = MAC ? event.metaKey || (event.ctrlKey && key === "-") : event.ctrlKey;
  const other = MAC ? event.ctrlKey && key !== "-" : event.metaKey;
  const shift = event.shiftKey && (key.length > 1 || key === "-" || key.toUpperCase() !== key);
  return `${other ? "Other-" : ""}${mod ? "Mod-" : ""}${event.altKey ? "Alt-" : ""}${shift ? "Shift-" : ""}${key}`;
}

function table(mode) {
  const found = new Map();
  for (const deed of DEEDS) for (const key of deed[mode] ?? []) found.set(key, deed);
  return found;
}

export class Keys {
  // `page` are the deeds; `cellAt(node)` gives the cell that a node of the page belongs to.
  constructor(page, cellAt) {
    this.page = page;
    this.cellAt = cellAt;
    this.tables = { edit: table("edit"), chosen: table("chosen"), global: table("global") };
    this.before = null; // the first of two keys: {key, at, cell}
    this.listen = (event) => this.#pressed(event);
    document.addEventListener("keydown", this.listen);
  }

  close() {
    document.removeEventListener("keydown", this.listen);
  }

  // A key in the text of `cell`; true when it was for the page.
  edited(event, cell) {
    if (event.isComposing || event.keyCode === 229) return false;
    return this.#do(this.tables.edit.get(chord(event)), event, cell, true);
  }

  #pressed(event) {
    if (event.defaultPrevented || event.isComposing || event.keyCode === 229) return;
    const { target } = event;
    if (!(target instanceof Element) || target.closest(FIELDS) || document.querySelector("dialog[open]")) return;
    const cell = this.cellAt(target);
    const key = chord(event);
    if (!cell && target !== document.body) {
      const deed = this.tables.global.get(key);
      if (deed) this.#do(deed, event, null, false);
      return;
    }
    const own = target.matches(".cell") || target === document.body;
    const lone = /^(Enter| |Shift-Enter)$/.test(key) || key.startsWith("Arrow") || key.startsWith("Shift-Arrow");
    if (!own && lone) return; // what a button, a link or an output does with it
    const table = cell ? this.tables.chosen : this.tables.global;
    const before = this.before;
    this.before = null;
    const now = performance.now();
    if (before?.key === key && before.cell === cell && now - before.at < TWICE && table.has(`${key} ${key}`)) {
      this.#do(table.get(`${key} ${key}`), event, cell, false);
    } else if (table.has(`${key} ${key}`)) {
      if (!event.repeat) this.before = { key, at: now, cell };
      event.preventDefault();
    } else if (cell || table.has(key)) this.#do(table.get(key), event, cell, false);
    else if (key === "j" || key === "k") this.#do(this.tables.chosen.get(key), event, null, false);
  }

  #do(deed, event, cell, editing) {
    if (!deed || (deed.cell && !cell)) return false;
    event.preventDefault();
    if (!event.repeat || deed.held) deed.do(this.page, cell, editing);
    return true;
  }
}
