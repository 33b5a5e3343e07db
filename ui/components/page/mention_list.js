// The list that `@` opens, as in chat tools: cells by place and first words, files, and a way to bring a new file in. One is
// open at a time, beside the caret of the field that it is for; it takes no focus, the field keeps it.

import { cellMention, fileMention, firstWords } from "./mentions.js";

const ASKED = /(?<![\p{L}\p{N}_@/])@(?:cell:|file:)?([^\s@]{0,80})$/u;
const EACH = 40; // cells, and files, in the list; typing on narrows it
const GAP = 6; // pixels between caret and list, and at the edges of the window

let open = null; // the list that is shown

// Whether `at` is within a fenced block: what stands there is code, and `@` a sign of it.
function fenced(text) {
  return (text.match(/^\s*(```|~~~)/gm) ?? []).length % 2 === 1;
}

// What can be named by what was typed behind the `@`: {kind, insert, name, about, number}.
export function candidates(asked, { own, cells, files }) {
  const wanted = asked.toLowerCase();
  const ids = cells.map((cell) => cell.id);
  const at = ids.indexOf(own);
  const found = cells
    .map((cell, index) => ({ cell, place: index + 1, words: firstWords(cell), far: index < at ? at - index : at < 0 ? index : cells.length + index }))
    .filter(({ cell, place, words }) => {
      if (cell.id === own) return false;
      const names = [String(place), `cell${place}`, cell.count ? String(cell.count) : "", cell.id.toLowerCase()];
      return !wanted || names.some((name) => name.startsWith(wanted)) || words.toLowerCase().includes(wanted);
    })
    .sort((one, other) => one.far - other.far)
    .slice(0, EACH)
    .map(({ cell, place, words }) => ({
      kind: "cell",
      insert: cellMention(cell.id, ids),
      name: `Cell ${place}`,
      about: words || "empty",
      sign: cell.count ? `[${cell.count}]` : "",
    }));
  const paths = files
    .filter((file) => !file.deleted && !file.skipped && file.path.toLowerCase().includes(wanted))
    .sort((one, other) => other.at - one.at)
    .slice(0, EACH)
    .map((file) => ({ kind: "file", insert: fileMention(file.path), name: file.path, about: "", sign: "" }));
  return [...found, ...paths];
}

// `host`: field() the node that has the focus, text(), caret() in UTF-16 units or null, box(at) -> {left, top, bottom} in the
// window, put(from, to, insert), known() -> {own, cells, files}, upload().
export class MentionList {
  constructor(host) {
    this.host = host;
    this.root = null;
    this.items = [];
    this.chosen = 0;
    this.dismissed = null; // where an `@` stands that Esc has left alone
  }

  get shown() {
    return this.root !== null;
  }

  // After the text or the caret has changed.
  update() {
    const text = this.host.text();
    const at = this.host.caret();
    const before = at === null ? "" : text.slice(Math.max(0, at - 200), at);
    const found = at === null || fenced(text.slice(0, at)) ? null : ASKED.exec(before);
    if (!found) {
      this.dismissed = null;
      return this.close();
    }
    const from = at - found[0].length;
    if (this.dismissed === from) return this.close();
    const asked = found[1];
    const items = candidates(asked, this.host.known());
    if (!asked || "upload a file".startsWith(asked.toLowerCase())) items.push({ kind: "upload", name: "Attach a new file…", about: "", sign: "" });
    if (!items.length || (items.length === 1 && items[0].insert === found[0])) return this.close(); // it stands there already
    const key = `${from} ${asked}`;
    if (this.key_ !== key) this.chosen = 0;
    Object.assign(this, { items, key_: key, from, to: at });
    this.chosen = Math.min(this.chosen, items.length - 1);
    this.#draw();
  }

  // A key of the field; true when it was for the list.
  key(event) {
    if (!this.shown || event.isComposing || event.ctrlKey || event.altKey || event.metaKey) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      this.chosen = (this.chosen + step + this.items.length) % this.items.length;
      this.#mark();
    } else if ((event.key === "Enter" || event.key === "Tab") && !event.shiftKey) this.take(this.chosen);
    else if (event.key === "Escape") {
      this.dismissed = this.from;
      this.close();
    } else return false;
    return true;
  }

  take(at) {
    const item = this.items[at];
    const { from, to } = this;
    this.close();
    if (item.kind === "upload") {
      this.host.put(from, to, "");
      this.host.upload();
    } else {
      const space = /^\s/.test(this.host.text().slice(to)) ? "" : " ";
      this.host.put(from, to, item.insert + space);
    }
  }

  close() {
    if (!this.root) return;
    this.root.remove();
    this.root = null;
    if (open === this) open = null;
    removeEventListener("scroll", this.onMove, true);
    removeEventListener("resize", this.onMove);
    for (const name of ["aria-controls", "aria-activedescendant"]) this.field?.removeAttribute(name);
  }

  #draw() {
    if (open && open !== this) open.close();
    open = this;
    if (!this.root) {
      this.root = document.createElement("div");
      this.root.className = "mentions";
      this.root.id = "nb-mentions";
      this.root.dataset.testid = "mention-list";
      this.root.setAttribute("role", "listbox");
      this.root.setAttribute("aria-label", "Cells and files to name");
      this.root.addEventListener("mousedown", (event) => event.preventDefault()); // the caret stays in the field
      (document.querySelector(".nb") ?? document.body).append(this.root);
      this.onMove = (event) => event.target !== this.root && this.#place();
      addEventListener("scroll", this.onMove, true);
      addEventListener("resize", this.onMove);
    }
    this.root.replaceChildren(...this.items.map((item, at) => this.#option(item, at)));
    this.#mark();
    this.#place();
  }

  #option(item, at) {
    const node = document.createElement("div");
    node.id = `nb-mention-${at}`;
    node.dataset.kind = item.kind;
    node.setAttribute("role", "option");
    const name = document.createElement("b");
    name.textContent = item.name;
    const about = document.createElement("span");
    about.textContent = item.about;
    const sign = document.createElement("i");
    sign.textContent = item.sign;
    node.append(name, about, sign);
    node.addEventListener("click", () => this.take(at));
    return node;
  }

  #mark() {
    const { children } = this.root;
    for (let at = 0; at < children.length; at += 1) children[at].setAttribute("aria-selected", String(at === this.chosen));
    children[this.chosen].scrollIntoView({ block: "nearest" });
    this.field = this.host.field();
    this.field?.setAttribute("aria-controls", "nb-mentions");
    this.field?.setAttribute("aria-activedescendant", `nb-mention-${this.chosen}`);
  }

  #place() {
    const box = this.root && this.host.box(this.from);
    if (!box) return;
    const view = window.visualViewport; // what a phone's keyboard leaves
    const [top, height, width] = [view?.offsetTop ?? 0, view?.height ?? innerHeight, view?.width ?? innerWidth];
    const { style } = this.root;
    const below = top + height - box.bottom - 2 * GAP;
    const above = box.top - top - 2 * GAP;
    const under = below >= Math.min(this.root.scrollHeight, 180) || below >= above;
    style.maxHeight = `${Math.max(90, Math.min(320, under ? below : above))}px`;
    style.left = `${Math.max(GAP, Math.min(box.left, width - this.root.offsetWidth - GAP))}px`;
    style.top = `${under ? box.bottom + GAP : Math.max(top + GAP, box.top - GAP - this.root.offsetHeight)}px`;
  }
}
