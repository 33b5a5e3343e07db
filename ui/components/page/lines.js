// One stretch of text in a cell's output: all of it as blocks of runs, and in the DOM only the blocks near what the reader
// sees. What is above and below stands as two empty boxes of the height it would have, so that scrolling is natural.
//
// Reading the DOM back gives every line in it once, in order: the line break that ends a block stands behind the block's
// element, where it takes no room.

import { styled } from "./styles.js";
import { Terminal } from "./terminal.js";

const BLOCK_LINES = 100;
const BLOCK_LENGTH = 16 * 1024;

let made = 0;

class Block {
  number = (made += 1); // in the order of their text
  runs = [];
  lines = 0;
  length = 0;
  height = null; // measured, while nothing changed
  node = null;
  drawn = 0; // runs that stand in the node

  get full() {
    return this.lines >= BLOCK_LINES || this.length >= BLOCK_LENGTH;
  }

  add(text, style) {
    const last = this.runs[this.runs.length - 1];
    if (last && last[1] === style && this.drawn < this.runs.length) last[0] += text;
    else this.runs.push([text, style]);
    this.length += text.length;
    this.height = null;
  }

  get ends() {
    return this.runs.length > 0 && this.runs[this.runs.length - 1][0].endsWith("\n");
  }

  text() {
    return this.runs.map((run) => run[0]).join("");
  }

  estimate({ line, columns }) {
    return this.height ?? Math.max(1, this.lines, Math.ceil(this.length / columns)) * line;
  }

  // Fills the element with what it lacks. A block that is full ends behind its element.
  draw() {
    const closed = this.full && this.ends;
    for (; this.drawn < this.runs.length; this.drawn += 1) {
      let [text, style] = this.runs[this.drawn];
      if (closed && this.drawn === this.runs.length - 1) text = text.slice(0, -1);
      if (text) this.node.append(styled(text, style));
    }
    if (closed && !this.behind) {
      const end = this.node.lastChild; // drawn before the block was full
      if (end?.textContent.endsWith("\n")) end.textContent = end.textContent.slice(0, -1);
      this.behind = document.createTextNode("\n");
      this.node.after(this.behind);
    }
  }

  show(before) {
    this.node = document.createElement("div");
    this.node.className = "out-block";
    this.node.dataset.number = this.number;
    this.drawn = 0;
    before.before(this.node);
    this.draw();
  }

  hide() {
    this.behind?.remove();
    this.node?.remove();
    this.node = this.behind = null;
    this.drawn = 0;
  }
}

export class Lines {
  constructor() {
    this.root = document.createElement("div");
    this.root.className = "out-lines";
    this.above = spacer();
    this.below = spacer();
    this.tail = new Block(); // the rows that can still change
    this.tail.node = document.createElement("div");
    this.tail.node.className = "out-block";
    this.root.append(this.above, this.below);
    this.blocks = [];
    this.length = 0; // characters of the blocks
    this.lines = 0;
    this.terminal = new Terminal();
    this.from = this.upto = 0; // blocks in the DOM
    this.changed = false;
  }

  get empty() {
    return !this.blocks.length && !this.tail.length;
  }

  feed(stream, text) {
    this.terminal.feed(text, stream === "stderr" ? "err" : "");
    for (const [settled, style] of this.terminal.take()) this.#settle(settled, style);
    const runs = this.terminal.open();
    this.tail = Object.assign(this.tail, { runs, height: null, lines: this.terminal.openLines });
    this.tail.length = runs.reduce((sum, run) => sum + run[0].length, 0);
    this.changed = true;
  }

  // Something else follows: nothing can change any more.
  end() {
    if (!this.terminal) return;
    for (const [text, style] of this.tail.runs) this.#settle(text, style);
    this.tail = Object.assign(this.tail, { runs: [], length: 0, lines: 0, height: 0 });
    this.terminal = null;
    this.changed = true;
  }

  #settle(text, style) {
    let at = 0;
    while (at < text.length) {
      let block = this.blocks[this.blocks.length - 1];
      if (!block || block.full) this.blocks.push((block = new Block()));
      let end = at;
      let lines = block.lines;
      while (end < text.length && lines < BLOCK_LINES && block.length + end - at < BLOCK_LENGTH) {
        const line = text.indexOf("\n", end);
        end = line < 0 ? text.length : line + 1;
        if (line >= 0) lines += 1;
      }
      if (end - at > 2 * BLOCK_LENGTH) { // one line longer than a block
        end = whole(text, at + BLOCK_LENGTH);
        lines = block.lines;
      }
      block.add(text.slice(at, end), style);
      this.lines += lines - block.lines;
      this.length += end - at;
      block.lines = lines;
      at = end;
    }
  }

  // Takes the first block away and returns how many characters went with it.
  drop() {
    const [gone] = this.blocks.splice(0, 1);
    gone.hide();
    this.from = Math.max(0, this.from - 1);
    this.upto = Math.max(0, this.upto - 1);
    this.length -= gone.length;
    this.lines -= gone.lines;
    this.changed = true;
    return gone.length;
  }

  // The first `count` blocks as a stretch of their own.
  split(count) {
    const front = new Lines();
    front.end();
    this.#range(0, 0);
    front.blocks = this.blocks.splice(0, count);
    for (const block of front.blocks) {
      front.length += block.length;
      front.lines += block.lines;
    }
    this.length -= front.length;
    this.lines -= front.lines;
    front.changed = this.changed = true;
    return front;
  }

  // Whether all of it stands in the DOM as it is now.
  get whole() {
    const tail = !this.tail.length || this.tail.node.parentNode !== null;
    return tail && !this.changed && this.upto - this.from === this.blocks.length;
  }

  text() {
    return this.blocks.map((block) => block.text()).join("") + this.tail.text();
  }

  // Its last line.
  newest() {
    const text = this.tail.length ? this.tail.text() : (this.blocks.at(-1)?.text() ?? "");
    return text.trimEnd().split("\n").at(-1).trim();
  }

  // Brings what lies between `from` and `upto` (pixels below the top of this stretch) into the DOM.
  draw(from, upto, metrics) {
    let at = 0;
    let first = 0;
    let last = 0;
    const { blocks } = this;
    for (let number = 0; number < blocks.length; number += 1) {
      const height = blocks[number].estimate(metrics);
      if (at + height < from) first = number + 1;
      if (at < upto) last = number + 1;
      at += height;
    }
    if (last < first) last = first;
    const chosen = selected(this.root, blocks);
    if (chosen) [first, last] = [Math.min(first, chosen[0]), Math.max(last, chosen[1])];
    this.#range(first, last);
    for (let number = first; number < last; number += 1) {
      if (blocks[number].drawn < blocks[number].runs.length || (blocks[number].full && !blocks[number].behind)) blocks[number].draw();
    }
    const near = last === blocks.length && at < upto;
    if (!near || !this.tail.length) this.tail.node.remove();
    else if (this.changed || !this.tail.node.parentNode) {
      const rows = this.tail.runs.map(([text, style]) => styled(text, style));
      this.tail.node.replaceChildren(...rows);
      this.below.before(this.tail.node);
    }
    if (near) this.changed = false;
    this.measure(metrics);
  }

  measure(metrics) {
    const { blocks, tail } = this;
    let [above, below] = [0, 0];
    for (let at = this.from; at < this.upto; at += 1) {
      const block = blocks[at];
      if (block.height === null && block.full) block.height = block.node.getBoundingClientRect().height || null;
    }
    for (let at = 0; at < this.from; at += 1) above += blocks[at].estimate(metrics);
    for (let at = this.upto; at < blocks.length; at += 1) below += blocks[at].estimate(metrics);
    if (tail.length && !tail.node.parentNode) below += tail.estimate(metrics);
    set(this.above, above);
    set(this.below, below);
  }

  // The text lies otherwise now: nothing measured holds.
  forget() {
    for (const block of this.blocks) block.height = null;
  }

  #range(first, last) {
    const { blocks } = this;
    for (let at = this.from; at < this.upto; at += 1) if (at < first || at >= last) blocks[at].hide();
    let next = null;
    for (let at = first; at < last && !next; at += 1) next = blocks[at].node;
    for (let at = first; at < last; at += 1) {
      if (blocks[at].node) {
        next = null;
        continue;
      }
      // Before the first block that stands already, or behind all of them.
      next = null;
      for (let later = at + 1; later < last && !next; later += 1) next = blocks[later].node;
      blocks[at].show(next ?? (this.tail.node.parentNode ? this.tail.node : this.below));
    }
    [this.from, this.upto] = [first, last];
  }
}

function spacer() {
  const node = document.createElement("div");
  node.className = "out-room";
  return node;
}

function set(node, height) {
  const value = height > 0 ? `${height}px` : "";
  if (node.style.height !== value) node.style.height = value;
}

// The blocks that a selection reaches over stay, so that it can be drawn out and copied.
function selected(root, blocks) {
  const selection = document.getSelection();
  if (!selection || selection.isCollapsed || !selection.rangeCount || !root.contains(selection.anchorNode)) return null;
  const range = selection.getRangeAt(0);
  let [first, last] = [Infinity, -1];
  blocks.forEach((block, at) => {
    if (block.node && range.intersectsNode(block.node)) [first, last] = [Math.min(first, at), at + 1];
  });
  return last < 0 ? null : [first, last];
}

// The nearest place at or before `at` that does not tear a pair of surrogates.
export function whole(text, at) {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code < 0xe000 ? at - 1 : at;
}
