// The output of one cell: stretches of text, displays and tracebacks in the order they came, within bounds. The whole of
// what is kept stands here; the DOM holds what lies near the reader's eyes (`lines.js`).
//
// Past a bound the middle goes, as in the fold: what came first and what came last stays, and a line says what is gone.

import { Display } from "./displays.js";
import { Lines } from "./lines.js";
import { Traceback } from "./traceback.js";
import { size } from "./words.js";

const KEEP_FRONT = 64 * 1024; // characters
const KEEP = 5 * 1024 * 1024; // characters of text one cell keeps on the page
const KEEP_LINES = 200_000;
const FIRST_DISPLAYS = 16;
const LAST_DISPLAYS = 64;
const MARGIN = 1500; // pixels drawn beyond what is seen
const SOME = 600; // pixels drawn where nothing is seen

const resized = new ResizeObserver((entries) => {
  for (const { target } of entries) measured.get(target)?.resized();
});
const measured = new WeakMap(); // root -> the output whose width was taken
const scrolling = new Set(); // outputs that have more than stands in the DOM
let due = false;
function redraw() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    for (const output of scrolling) {
      if (output.root.isConnected) output.draw();
      else scrolling.delete(output);
    }
  });
}
addEventListener("scroll", redraw, { passive: true, capture: true });
addEventListener("resize", redraw, { passive: true });

export class Output {
  // `host` is the cell's side: `whole()` the address of all that the run printed, or null; `place(cellId)` the number of
  // a cell, or null; `visit(cellId, line)` goes there.
  constructor(host) {
    this.host = host;
    this.root = document.createElement("div");
    this.root.className = "out-text";
    this.root.addEventListener("copy", (event) => this.#copy(event));
    this.clear();
  }

  get empty() {
    return this.parts.length === 0;
  }

  clear() {
    this.root.replaceChildren();
    this.parts = []; // Lines, Display, Traceback or Gap, each with a root
    this.displays = new Map(); // display id -> the parts that show it
    this.last = null; // the part that text of a stream continues
    this.gap = null; // the line that tells what this page let go
    this.shown = 0; // displays among the parts
    this.printed = 0; // characters that came, and bytes that were left out on the way
    this.cut = false; // whether text of it does not stand here
  }

  append(item) {
    if (item.left_out || item.displays_left_out) this.#add(new Gap(this.host.whole(), item.left_out, item.displays_left_out));
    this.printed += (item.text?.length ?? 0) + (item.left_out ?? 0);
    this.cut ||= item.left_out > 0;
    if (item.text === undefined) this.#display(item);
    else if (item.stream === "traceback") this.#text(item, Traceback);
    else this.#text(item, Lines);
  }

  // A display that was shown before changes in its place.
  update(item) {
    for (const part of this.displays.get(item.display) ?? []) part.replace(item);
  }

  // The newest of it in one line, for where there is no room for more.
  newest() {
    return (this.last?.newest?.() || "New output").slice(0, 200);
  }

  // All the text that is kept, as a terminal would leave it.
  text() {
    return this.parts.map((part) => part.text()).join("");
  }

  // Brings the DOM up to date with what came, and with where the reader is.
  draw() {
    const metrics = this.#metrics();
    if (!metrics) return;
    const view = this.#view();
    let more = false;
    for (const part of this.parts) {
      if (!part.root.parentNode) this.#place(part);
      if (!(part instanceof Lines)) continue;
      const { top } = part.root.getBoundingClientRect();
      part.draw(view.top - top - MARGIN, view.bottom - top + MARGIN, metrics);
      more ||= !part.whole;
    }
    if (more) scrolling.add(this);
    else scrolling.delete(this);
  }

  #text(item, Kind) {
    if (!(this.last instanceof Kind)) this.#add(Kind === Lines ? new Lines() : new Traceback(this.host));
    this.last.feed(item.stream, item.text);
    if (this.last.empty) return;
    this.#trim();
  }

  #display(item) {
    const part = new Display(item);
    this.#add(part);
    this.shown += 1;
    if (item.display) this.displays.set(item.display, [...(this.displays.get(item.display) ?? []), part]);
    if (this.shown > FIRST_DISPLAYS + LAST_DISPLAYS) this.#dropDisplay();
  }

  #add(part) {
    this.last?.end?.();
    if (this.last?.empty) this.#remove(this.last);
    this.parts.push(part);
    this.last = part;
  }

  #place(part) {
    const behind = this.parts.slice(this.parts.indexOf(part) + 1).find((other) => other.root.parentNode);
    this.root.insertBefore(part.root, behind?.root ?? null);
    if (!(part instanceof Lines)) part.root.after("\n");
    if (part instanceof Display && !part.drawn) part.draw();
  }

  #remove(part) {
    this.parts.splice(this.parts.indexOf(part), 1);
    if (part.root.nextSibling?.nodeType === Node.TEXT_NODE) part.root.nextSibling.remove();
    part.root.remove();
    part.close?.();
  }

  // Past the bound the oldest text behind the front goes.
  #trim() {
    let [length, lines] = [0, 0];
    for (const part of this.parts) [length, lines] = [length + (part.length ?? 0), lines + (part.lines ?? 0)];
    while (length > KEEP || lines > KEEP_LINES) {
      let front = 0;
      let at = this.gap ? this.parts.indexOf(this.gap) + 1 : 0;
      let blocks = 0;
      for (; !this.gap && at < this.parts.length; at += 1, blocks = 0) {
        const part = this.parts[at];
        for (; part instanceof Lines && blocks < part.blocks.length && front < KEEP_FRONT; blocks += 1) front += part.blocks[blocks].length;
        if (front >= KEEP_FRONT) break;
      }
      while (at < this.parts.length && !(this.parts[at] instanceof Lines && this.parts[at].blocks.length > blocks)) [at, blocks] = [at + 1, 0];
      const part = this.parts[at];
      if (!part || (part === this.last && part.blocks.length - blocks < 2)) return;
      if (blocks) {
        this.parts.splice(at, 0, part.split(blocks));
        at += 1;
      }
      this.#gapAt(at);
      const before = part.lines;
      const gone = part.drop();
      [length, lines] = [length - gone, lines - (before - part.lines)];
      this.gap.add(gone, 0);
      this.cut = true;
      if (part.empty && part !== this.last) this.#remove(part);
    }
  }

  // The oldest display behind the first ones goes.
  #dropDisplay() {
    let seen = 0;
    const at = this.parts.findIndex((part) => part instanceof Display && (seen += 1) > FIRST_DISPLAYS);
    const part = this.parts[at];
    this.#gapAt(at);
    this.gap.add(0, 1);
    this.#remove(part);
    this.shown -= 1;
    const others = (this.displays.get(part.id) ?? []).filter((other) => other !== part);
    if (others.length) this.displays.set(part.id, others);
    else this.displays.delete(part.id);
  }

  #gapAt(at) {
    if (this.gap) return;
    this.gap = new Gap(this.host.whole(), 0, 0);
    this.parts.splice(at, 0, this.gap);
  }

  // What the reader sees of this output, or would see once there: top and bottom, in the window's pixels.
  #view() {
    const box = (this.root.parentElement ?? this.root).getBoundingClientRect();
    const top = Math.max(box.top, 0);
    const bottom = Math.min(box.bottom, innerHeight);
    if (bottom > top) return { top, bottom };
    return box.top >= innerHeight ? { top: box.top, bottom: box.top + SOME } : { top: box.bottom - SOME, bottom: box.bottom };
  }

  #metrics() {
    if (!this.measured) {
      const { clientWidth } = this.root;
      if (!clientWidth) return { line: 20, columns: 100 };
      const style = getComputedStyle(this.root);
      const ruler = document.createElement("canvas").getContext("2d");
      ruler.font = style.font;
      const columns = Math.max(10, Math.floor(clientWidth / (ruler.measureText("0").width || 8)));
      if (!measured.has(this.root)) resized.observe(this.root);
      measured.set(this.root, this);
      this.measured = { line: parseFloat(style.lineHeight) || 20, columns, width: clientWidth };
    }
    return this.measured;
  }

  // The width may be another one.
  resized() {
    if (!this.measured || this.measured.width === this.root.clientWidth) return;
    this.measured = null;
    for (const part of this.parts) part.forget?.();
    redraw();
  }

  // Who selects the whole output copies the whole of it, also what is not in the DOM.
  #copy(event) {
    if (!scrolling.has(this)) return;
    const range = document.getSelection()?.rangeCount ? document.getSelection().getRangeAt(0) : null;
    const nodes = this.root.querySelectorAll(".out-block, .out-display");
    if (!range || !nodes.length || !range.intersectsNode(nodes[0]) || !range.intersectsNode(nodes[nodes.length - 1])) return;
    const inside = document.createRange();
    inside.selectNodeContents(this.root);
    if (range.compareBoundaryPoints(Range.START_TO_START, inside) > 0 || range.compareBoundaryPoints(Range.END_TO_END, inside) < 0) return;
    event.clipboardData.setData("text/plain", this.text());
    event.preventDefault();
  }
}

// A line that tells what is not here.
class Gap {
  constructor(address, bytes = 0, displays = 0) {
    this.bytes = this.displays = 0;
    this.root = document.createElement("div");
    this.root.className = "out-gap";
    this.root.append("");
    if (address) {
      const link = document.createElement("a");
      Object.assign(link, { href: address, target: "_blank", rel: "noopener", textContent: "Open the whole output" });
      this.root.append(" · ", link);
    }
    this.add(bytes, displays);
  }

  add(bytes = 0, displays = 0) {
    this.bytes += bytes;
    this.displays += displays;
    const what = [];
    if (this.bytes) what.push(size(this.bytes));
    if (this.displays) what.push(`${this.displays.toLocaleString("en-US")} display${this.displays === 1 ? "" : "s"}`);
    this.root.firstChild.data = `… ${what.join(" and ")} not shown here`;
  }

  text() {
    return `${this.root.textContent}\n`;
  }
}
