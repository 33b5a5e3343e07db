// The source of one cell on screen. It stands still, coloured, until it is in hand; then CodeMirror takes its place, with the
// same letters at the same places. One editor is there at a time; what it knew (undo, selection) a cell keeps.
//
// The model of the text is `source.js`. What is typed goes to it by `host.changed`; what comes from elsewhere comes in by
// `draw`, as a change of its own, so that caret, undo and input methods are not disturbed.

import { assistant } from "./assist.js";
import { highlighted, highlighter } from "./highlight.js";
import { difference, units } from "./source.js";

const UNSAFE = /\0|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g; // neither database nor browser takes them
const PAIRS = { "(": ")", "[": "]", "{": "}", '"': '"', "'": "'" };

let CM = null;
let loading = null;
let inHand = null; // the one cell editor whose text is in CodeMirror

// CodeMirror, as NiceGUI serves it. Asked for when the page stands, so that the first key finds it.
export function load() {
  loading ??= import("nicegui-codemirror").then(
    (module) => (CM = module),
    (problem) => {
      loading = null; // the link is down: the next focus asks again
      throw problem;
    },
  );
  return loading;
}

// Puts the text in hand back, as still text.
export function letGo() {
  inHand?.unmount();
}

// `host`: text() and kind() of the cell, near() whether anybody sees its colours, label(), placeholder(); changed(text), focused(), blurred(),
// moved(at) after text or caret has changed;
// key(event) -> whether the page took it; complete(text, at), inspect(text, at), knows().
export class CellEditor {
  constructor(root, host) {
    this.root = root;
    this.host = host;
    this.view = null;
    this.reach = 0;
    this.state = null; // of CodeMirror, from when the cell was last in hand
    this.plain = null; // a text area, as long as CodeMirror is not here: a bad link keeps nobody from typing
    this.still = document.createElement("pre");
    this.still.className = "src";
    this.still.dataset.testid = "cell-source";
    this.still.setAttribute("role", "textbox");
    this.still.setAttribute("aria-multiline", "true");
    this.still.tabIndex = 0;
    this.still.addEventListener("pointerdown", (event) => this.#pressed(event));
    this.still.addEventListener("click", (event) => this.#clicked(event));
    this.still.addEventListener("focus", () => this.#entered());
    root.append(this.still);
    this.drawStill();
  }

  get content() {
    return this.view ? this.view.contentDOM : (this.plain ?? this.still);
  }

  get focused() {
    return document.activeElement === this.content;
  }

  // Where the caret is, in UTF-16 units; null when this is not where one types.
  get caret() {
    if (this.plain) return this.focused ? this.plain.selectionStart : null;
    return this.view?.hasFocus ? this.view.state.selection.main.head : null;
  }

  // What is selected, when it is within a line.
  get selected() {
    const { main } = this.view?.state.selection ?? {};
    const text = main ? this.view.state.sliceDoc(main.from, main.to) : "";
    return text.includes("\n") ? "" : text;
  }

  // Whether Tab stops here: not while the cell as a whole is chosen.
  reachable(on) {
    this.reach = on ? 0 : -1;
    this.still.tabIndex = this.content.tabIndex = this.reach;
  }

  // The text as the model has it; `splice` says what changed, in UTF-16 units, where that is known.
  draw(splice = null) {
    const text = this.host.text();
    if (this.view) this.view.dispatch(...this.#changes(this.view.state, text, splice));
    else {
      if (this.plain) this.#drawPlain(text, splice);
      if (this.state) for (const spec of this.#changes(this.state, text, splice)) this.state = this.state.update(spec).state;
      this.drawStill();
    }
    if (this.others?.length) this.#drawPeers();
  }

  #changes(state, text, splice) {
    const { doc } = state;
    const fits = splice && doc.length + splice.insert.length - splice.removed === text.length;
    if (!fits && doc.toString() === text) return [];
    const { at, removed, insert } = fits ? splice : difference(doc.toString(), text);
    if (!removed && !insert) return [];
    const annotations = [CM.Transaction.addToHistory.of(false), CM.Transaction.remote.of(true)];
    return [{ changes: { from: at, to: at + removed, insert }, annotations }];
  }

  #drawPlain(text, splice) {
    const area = this.plain;
    if (area.value === text) return;
    const { selectionStart: start, selectionEnd: end } = area;
    const { at, removed, insert } = splice ?? difference(area.value, text);
    const moved = (place) => (place <= at ? place : Math.max(at, place - removed) + insert.length);
    area.value = text;
    area.setSelectionRange(moved(start), moved(end));
  }

  // The lines where others are: [{at, hue}], `at` in code points; null: the cell as a whole.
  peers(others) {
    this.others = others;
    this.#drawPeers();
  }

  #drawPeers() {
    for (const mark of this.root.querySelectorAll(".peer-line")) mark.remove();
    const text = this.host.text();
    const top = this.root.getBoundingClientRect().top;
    for (const { at, hue } of this.others ?? []) {
      const box = at === null ? null : this.#boxAt(Math.min(text.length, units(text, at)));
      if (!box) continue;
      const mark = document.createElement("i");
      mark.className = "peer-line";
      mark.style.cssText = `top: ${box.top - top}px; height: ${box.bottom - box.top}px; --peer: ${hue}`;
      this.root.append(mark);
    }
  }

  #boxAt(at) {
    if (this.view) return this.view.coordsAtPos(at);
    if (this.plain) return null;
    const range = document.createRange();
    const walker = document.createTreeWalker(this.still, NodeFilter.SHOW_TEXT);
    let before = 0;
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (at < before + node.length) {
        range.setStart(node, at - before);
        range.setEnd(node, at - before + 1);
        return range.getClientRects()[0] ?? null;
      }
      before += node.length;
    }
    const { bottom } = this.still.getBoundingClientRect(); // behind all text: the last line
    const line = Number.parseFloat(getComputedStyle(this.still).lineHeight);
    return { top: bottom - 11 - line, bottom: bottom - 11 };
  }

  drawStill() {
    const text = this.host.text();
    const kind = this.host.kind();
    this.still.setAttribute("aria-label", this.host.label());
    this.still.dataset.placeholder = this.host.placeholder();
    const colours = this.host.near() ? kind : null;
    if (this.drawnText === text && this.drawnColours === colours) return;
    this.drawnText = text;
    this.drawnColours = colours;
    if (colours) this.still.innerHTML = highlighted(kind, text);
    else this.still.textContent = text;
  }

  // The kind changed: other colours, other words.
  recast() {
    this.state = null;
    if (this.view) {
      const focused = this.view.hasFocus;
      const { head } = this.view.state.selection.main;
      this.unmount();
      this.state = null;
      if (focused) this.focus(head);
    }
    this.drawStill();
  }

  // The caret goes in, at `caret` or where it was last.
  focus(caret = null) {
    if (CM) this.mount();
    else this.#makeDo();
    if (caret !== null) this.select(caret);
    (this.view ?? this.plain).focus({ preventScroll: true });
  }

  select(anchor, head = anchor) {
    if (this.plain) {
      this.plain.setSelectionRange(anchor, head);
      return;
    }
    const { length } = this.view.state.doc;
    this.view.dispatch({ selection: { anchor: Math.min(anchor, length), head: Math.min(head, length) } });
  }

  // Puts `insert` in place of what stands from `from` to `to`, as if it were typed; the caret goes behind it.
  put(from, to, insert) {
    if (this.view) {
      const changes = { from, to, insert };
      this.view.dispatch({ changes, selection: { anchor: from + insert.length }, userEvent: "input.complete", scrollIntoView: true });
    } else if (this.plain) {
      this.plain.setRangeText(insert, from, to, "end");
      this.plain.dispatchEvent(new Event("input"));
    } else {
      const text = this.host.text();
      this.host.changed(text.slice(0, from) + insert + text.slice(to));
      this.draw({ at: from, removed: to - from, insert });
    }
  }

  // Where the sign at `at` stands in the window.
  boxOf(at) {
    return this.#boxAt(at) ?? this.content.getBoundingClientRect();
  }

  mount() {
    if (this.view) return;
    if (inHand && inHand !== this) inHand.unmount();
    inHand = this;
    this.state ??= this.#fresh();
    this.view = new CM.EditorView({ state: this.state });
    const { plain } = this;
    const before = this.plain ?? this.still;
    const held = document.activeElement === before;
    this.plain = null;
    before.replaceWith(this.view.dom);
    this.view.contentDOM.tabIndex = this.reach;
    if (plain) this.select(plain.selectionStart, plain.selectionEnd);
    if (held) this.view.focus();
  }

  unmount() {
    if (!this.view && !this.plain) return;
    const held = this.focused;
    this.state = this.view?.state ?? null;
    (this.view?.dom ?? this.plain).replaceWith(this.still);
    this.view?.destroy();
    this.view = this.plain = null;
    if (inHand === this) inHand = null;
    this.drawStill();
    if (held) this.host.blurred();
  }

  destroy() {
    this.unmount();
    this.still.remove();
  }

  // A mouse: the editor is there before the press arrives in it, and does with it what an editor does.
  #pressed(event) {
    if (event.button === 0 && event.pointerType === "mouse" && CM) this.mount();
  }

  // A finger: only a tap takes the cell in hand, a swipe scrolls.
  #clicked(event) {
    this.focus(this.#under(event));
  }

  #under(event) {
    const place = document.caretPositionFromPoint?.(event.clientX, event.clientY);
    const spot = place ?? document.caretRangeFromPoint?.(event.clientX, event.clientY);
    const node = spot?.offsetNode ?? spot?.startContainer;
    if (!node || !this.still.contains(node)) return null;
    const range = document.createRange();
    range.setStart(this.still, 0);
    range.setEnd(node, spot.offset ?? spot.startOffset);
    return range.toString().length;
  }

  #entered() {
    this.focus();
  }

  #makeDo() {
    if (this.plain) return;
    if (inHand && inHand !== this) inHand.unmount();
    inHand = this;
    const area = (this.plain = document.createElement("textarea"));
    area.className = "src";
    for (const [name, value] of Object.entries({ spellcheck: "false", autocapitalize: "off", autocorrect: "off", rows: "1" })) {
      area.setAttribute(name, value);
    }
    area.dataset.testid = "cell-source";
    area.setAttribute("aria-label", this.host.label());
    area.placeholder = this.host.placeholder();
    area.value = this.host.text();
    area.setSelectionRange(0, 0);
    const grow = () => (area.rows = area.value.split("\n").length);
    grow();
    area.addEventListener("input", () => {
      grow();
      this.host.changed(area.value);
      this.host.moved(area.selectionStart);
    });
    area.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (this.host.key(event)) event.preventDefault();
      else if (event.key === "Tab" && !event.shiftKey && !event.ctrlKey && !event.altKey && !event.metaKey) {
        event.preventDefault();
        document.execCommand("insertText", false, "    "); // the one way that keeps the area's undo
      }
    });
    area.addEventListener("focus", () => this.host.focused());
    area.addEventListener("blur", () => this.plain === area && this.host.blurred()); // not when CodeMirror takes its place
    let composing = false;
    area.addEventListener("compositionstart", () => (composing = true));
    area.addEventListener("compositionend", () => {
      composing = false;
      if (CM && this.plain === area) this.mount();
    });
    this.still.replaceWith(area);
    load().then(
      () => {
        if (this.plain !== area || composing) return;
        if (this.focused) this.mount();
        else this.unmount();
      },
      () => {},
    );
  }

  #fresh() {
    const { host } = this;
    const kind = host.kind();
    const assist = assistant(CM, host);
    const keys = (event, view) => {
      if (event.isComposing || event.keyCode === 229) return false;
      const taken = assist.key(event, view) || host.key(event);
      if (taken) event.preventDefault();
      return taken;
    };
    const own = ["Mod-Enter", "Escape"]; // they belong to the page
    const plain = CM.defaultKeymap.filter((binding) => !own.includes(binding.key));
    for (const [at, binding] of plain.entries()) if (binding.key === "Enter") plain[at] = { ...binding, shift: undefined };
    return CM.EditorState.create({
      doc: host.text(),
      extensions: [
        CM.EditorState.lineSeparator.of("\n"), // a text is kept as it is, to the last \r
        CM.Prec.highest(CM.EditorView.domEventHandlers({ keydown: keys })),
        assist.extensions,
        CM.history(),
        CM.indentUnit.of("    "),
        CM.EditorState.tabSize.of(4),
        CM.EditorState.languageData.of(() => [kind === "markdown" ? {} : { commentTokens: { line: "#" } }]),
        kind === "python" ? [CM.indentService.of(indentation), CM.EditorView.inputHandler.of(paired)] : [],
        CM.bracketMatching(),
        CM.EditorView.lineWrapping,
        CM.placeholder(host.placeholder()),
        CM.tooltips({ parent: document.querySelector(".nb") ?? document.body, position: "fixed" }),
        highlighter(CM, kind),
        CM.keymap.of([{ key: "Tab", run: tab, shift: CM.indentLess }, ...plain, ...CM.historyKeymap]),
        CM.EditorView.clipboardInputFilter.of((text) => text.replace(/\r\n?/g, "\n")),
        CM.EditorState.transactionFilter.of(safe),
        CM.EditorView.contentAttributes.of({
          "data-testid": "cell-source",
          "aria-label": host.label(),
          "aria-multiline": "true",
          enterkeyhint: "enter",
        }),
        CM.EditorView.domEventHandlers({
          focus: () => void host.focused(),
          blur: () => void host.blurred(),
        }),
        CM.EditorView.updateListener.of((update) => {
          const remote = update.transactions.some((transaction) => transaction.annotation(CM.Transaction.remote));
          if (update.docChanged && !remote) host.changed(update.state.doc.toString());
          if (update.docChanged || update.selectionSet) host.moved(update.state.selection.main.head);
        }),
      ],
    });
  }
}

// What the server would replace is replaced as it comes in, so that both have one text.
function safe(transaction) {
  if (!transaction.docChanged || transaction.annotation(CM.Transaction.remote)) return transaction;
  const found = [];
  transaction.changes.iterChanges((_fromA, _toA, from, _toB, inserted) => {
    const text = inserted.toString();
    for (const { index } of text.matchAll(UNSAFE)) found.push({ from: from + index, to: from + index + 1, insert: "\ufffd" });
  });
  return found.length ? [transaction, { changes: found, sequential: true }] : transaction;
}

function tab(view) {
  const { state } = view;
  if (!state.selection.main.empty) return CM.indentMore(view);
  view.dispatch(
    state.changeByRange((range) => {
      const line = state.doc.lineAt(range.head);
      const insert = " ".repeat(4 - ((range.head - line.from) % 4));
      return { changes: { from: range.head, insert }, range: CM.EditorSelection.cursor(range.head + insert.length) };
    }),
    { userEvent: "input.indent", scrollIntoView: true },
  );
  return true;
}

// Python: one step in behind a colon or an open bracket, one step out behind what ends a block.
function indentation(context, position) {
  const line = context.lineAt(position, -1);
  const before = line.text.slice(0, Math.max(0, position - line.from));
  const here = /^[ \t]*/.exec(before)[0].length;
  const code = before.replace(/("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')/g, "s").replace(/#.*$/, "").trimEnd();
  if (/[:([{]$/.test(code)) return here + 4;
  if (/^\s*(return|pass|raise|break|continue)\b/.test(code) && !/[([{,\\]$/.test(code)) return Math.max(0, here - 4);
  return here;
}

// A bracket or quote brings its other half; typed over it, it is passed; around a selection, it encloses it.
function paired(view, from, to, text) {
  if (view.composing || text.length !== 1) return false;
  const { state } = view;
  const next = state.sliceDoc(to, to + 1);
  if (from === to && text === next && Object.values(PAIRS).includes(text)) {
    view.dispatch({ selection: { anchor: from + 1 }, userEvent: "input.type", scrollIntoView: true });
    return true;
  }
  const other = PAIRS[text];
  if (!other) return false;
  if (from !== to) {
    const inside = state.sliceDoc(from, to);
    view.dispatch({
      changes: { from, to, insert: text + inside + other },
      selection: { anchor: from + 1, head: to + 1 },
      userEvent: "input.type",
    });
    return true;
  }
  const quote = text === other;
  const before = state.sliceDoc(from - 1, from);
  if ((next && !/[\s)\]},:;]/.test(next)) || (quote && /[\w"']/.test(before))) return false;
  view.dispatch({ changes: { from, insert: text + other }, selection: { anchor: from + 1 }, userEvent: "input.type", scrollIntoView: true });
  return true;
}
