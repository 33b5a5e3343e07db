// The output of one cell as text in the DOM: blocks of a few hundred lines, so that adding a line lays out one block and
// never all of them. Reading the text back (copying, textContent) gives every line once, in order: the line break that
// ends a block stands behind it, where it takes no room.

import { Terminal } from "./terminal.js";

const BLOCK_LINES = 200;
const BLOCK_LENGTH = 32 * 1024;
const KEEP_FRONT = 64 * 1024; // characters
const KEEP = 5 * 1024 * 1024; // characters of text one cell keeps on the page

export class Output {
  // `whole()` gives the address of all that the run printed, or null.
  constructor(whole = () => null) {
    this.whole = whole;
    this.root = document.createElement("div");
    this.root.className = "out-text";
    this.clear();
  }

  get empty() {
    return this.root.childNodes.length === 0;
  }

  clear() {
    this.root.replaceChildren();
    this.blocks = []; // {node, length}: text blocks, oldest first
    this.total = 0; // characters of finished text
    this.dropped = 0;
    this.gap = null;
    this.displays = new Map();
    this.block = this.span = this.openNode = this.last = this.terminal = this.stream = null;
  }

  append(item) {
    if (item.left_out) this.#gap(item.left_out);
    if (item.text !== undefined) this.#text(item.stream, item.text);
    else this.#display(item);
  }

  update(item) {
    const known = this.displays.get(item.display);
    if (!known) return;
    const fresh = drawDisplay(item);
    known.replaceWith(fresh);
    this.displays.set(item.display, fresh);
  }

  #text(stream, text) {
    if (this.stream !== stream) {
      this.#endSegment();
      this.stream = stream;
      this.terminal = new Terminal();
    }
    const { done, open } = this.terminal.feed(text);
    if (!done && !open && !this.span) return;
    if (!this.span) this.#span();
    this.openNode.data = "";
    this.#lines(done);
    if (open) this.openNode.data = open;
    this.#trim();
  }

  #lines(done) {
    let at = 0;
    while (at < done.length) {
      if (this.#full) {
        this.#endBlock();
        this.#span();
      }
      const block = this.block;
      let end = at;
      while (end < done.length && block.lines < BLOCK_LINES && block.length + end - at < BLOCK_LENGTH) {
        const line = done.indexOf("\n", end);
        end = line < 0 ? done.length : line + 1;
        if (line >= 0) block.lines += 1;
      }
      if (end - at > 2 * BLOCK_LENGTH) end = whole(done, at + BLOCK_LENGTH); // one line longer than a block
      this.last = document.createTextNode(done.slice(at, end));
      this.span.insertBefore(this.last, this.openNode);
      this.#grow(end - at);
      at = end;
    }
  }

  get #full() {
    return this.block !== null && (this.block.lines >= BLOCK_LINES || this.block.length >= BLOCK_LENGTH);
  }

  #grow(length) {
    this.total += length;
    this.block.length += length;
  }

  // A span for the stream, in the open block or in a new one.
  #span() {
    if (this.#full) this.#endBlock();
    if (!this.block) {
      const node = document.createElement("div");
      node.className = "out-block";
      this.block = { node, length: 0, lines: 0 };
      this.blocks.push(this.block);
      this.root.append(node);
    }
    this.span = document.createElement("span");
    this.span.className = `out-${this.stream}`;
    this.openNode = document.createTextNode("");
    this.span.append(this.openNode);
    this.block.node.append(this.span);
  }

  // Another stream follows: what stands in the open line is final now.
  #endSegment() {
    if (this.openNode?.data) {
      this.last = this.openNode;
      this.#grow(this.openNode.data.length);
    }
    this.span = this.openNode = this.terminal = this.stream = null;
  }

  // The block is final. The line break at its end moves behind it.
  #endBlock() {
    if (this.last?.data.endsWith("\n")) {
      this.last.data = this.last.data.slice(0, -1);
      this.root.append("\n");
    }
    this.block = this.span = this.openNode = this.last = null;
  }

  // Past the bound the oldest blocks behind the front go, and a line says how much.
  #trim() {
    while (this.total > KEEP) {
      let front = 0;
      let at = 0;
      while (at < this.blocks.length && front < KEEP_FRONT) front += this.blocks[at++].length;
      if (at >= this.blocks.length - 1) return;
      const [gone] = this.blocks.splice(at, 1);
      this.total -= gone.length;
      this.dropped += gone.length;
      if (!this.gap) {
        this.gap = gapLine(0, this.whole());
        gone.node.before(this.gap, "\n");
      }
      this.gap.firstChild.data = gapText(this.dropped);
      const behind = gone.node.nextSibling;
      if (behind && behind.nodeType === Node.TEXT_NODE) behind.remove();
      gone.node.remove();
    }
  }

  #gap(bytes) {
    this.#endSegment();
    this.#endBlock();
    this.root.append(gapLine(bytes, this.whole()), "\n");
  }

  #display(item) {
    this.#endSegment();
    this.#endBlock();
    const node = drawDisplay(item);
    if (item.display) this.displays.set(item.display, node);
    this.root.append(node, "\n");
  }
}

// The nearest place at or before `at` that does not tear a pair of surrogates.
export function whole(text, at) {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code < 0xe000 ? at - 1 : at;
}

function gapText(bytes) {
  const kilobytes = Math.max(1, Math.round(bytes / 1000));
  const size = kilobytes < 1000 ? `${kilobytes} KB` : `${(kilobytes / 1000).toFixed(1)} MB`;
  return `… ${size} not shown here`;
}

function gapLine(bytes, address) {
  const node = document.createElement("div");
  node.className = "out-gap";
  node.append(gapText(bytes));
  if (address) {
    const link = document.createElement("a");
    Object.assign(link, { href: address, target: "_blank", rel: "noopener", textContent: "Open the whole output" });
    node.append(" · ", link);
  }
  return node;
}

function drawDisplay(item) {
  const node = document.createElement("div");
  node.className = "out-display";
  for (const mime of ["image/png", "image/jpeg"]) {
    const image = item.data[mime];
    if (image === undefined) continue;
    const source = imageSource(mime, image);
    if (!source) continue;
    const img = document.createElement("img");
    img.src = source;
    img.alt = typeof item.data["text/plain"] === "string" ? item.data["text/plain"].slice(0, 200) : "image output";
    node.append(img);
    return node;
  }
  const text = item.data["text/plain"];
  node.textContent = typeof text === "string" ? text : `(${item.kinds.join(", ") || "nothing"}: not shown yet)`;
  return node;
}

function imageSource(mime, value) {
  if (typeof value === "string") return `data:${mime};base64,${value.replace(/\s+/g, "")}`;
  if (value && /^[0-9a-f]{64}$/.test(value.sha256 ?? "")) return `/api/v1/blobs/${value.sha256}`;
  return null;
}
