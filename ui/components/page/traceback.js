// A traceback to read: what went wrong and the frame where it did stand there, the frames on the way fold. A frame of a
// notebook's cell names the cell and its line, and leads there: the kernel marks it with a link `nightbook:cell/ID`.

import { styled } from "./styles.js";
import { Terminal } from "./terminal.js";

const FRAME = /^(?:Cell|File) \S/;
const CELL = /^link:nightbook:cell\/([\w-]{1,64})$/;
const LINE = /^,? line (\d+)/;

export class Traceback {
  constructor(host) {
    this.host = host;
    this.root = document.createElement("div");
    this.root.className = "out-traceback";
    this.terminal = new Terminal();
    this.runs = [];
    this.length = 0;
    this.lines = 0;
  }

  get empty() {
    return this.length === 0;
  }

  feed(_, text) {
    this.length += text.length;
    this.terminal.feed(text);
    this.runs.push(...this.terminal.take());
    this.#draw();
  }

  text() {
    return this.#rows().map((row) => row.map((run) => run[0]).join("")).join("\n");
  }

  // What went wrong, in a line.
  newest() {
    return this.root.querySelector(".out-trace-message")?.textContent.split("\n")[0] ?? "";
  }

  #rows() {
    const rows = [[]];
    for (const [text, style] of [...this.runs, ...this.terminal.open()]) {
      text.split("\n").forEach((piece, at) => {
        if (at) rows.push([]);
        if (piece) rows[rows.length - 1].push([piece, style]);
      });
    }
    return rows;
  }

  #draw() {
    const rows = this.#rows();
    if (rows.length > 1 && !rows[rows.length - 1].length) rows.pop();
    const words = rows.map((row) => row.map((run) => run[0]).join(""));
    const frames = words.flatMap((line, at) => (FRAME.test(line) ? [at] : []));
    const end = this.#message(words, frames);
    const open = this.root.querySelector("details")?.open ?? false;
    this.root.replaceChildren();
    const box = (from, upto, kind) => {
      if (from >= upto) return null;
      const node = document.createElement("div");
      node.className = kind;
      rows.slice(from, upto).forEach((row, at) => {
        if (at) node.append("\n");
        this.#row(node, row);
      });
      return node;
    };
    const put = (node) => {
      if (!node) return;
      if (this.root.childNodes.length) this.root.append("\n");
      this.root.append(node);
    };
    const last = frames[frames.length - 1] ?? end;
    const first = frames[0] ?? end;
    put(box(0, first, "out-trace-head"));
    if (frames.length > 1) {
      const details = document.createElement("details");
      const summary = document.createElement("summary");
      details.open = open;
      details.append(summary, box(first, last, "out-trace-frames"));
      // A mark of the page, not text of the program: reading the output back gives what was printed.
      summary.dataset.words = frames.length === 2 ? "1 earlier frame" : `${frames.length - 1} earlier frames`;
      summary.setAttribute("aria-label", summary.dataset.words);
      put(details);
    }
    put(box(last, end, "out-trace-last"));
    put(box(end, rows.length, "out-trace-message"));
  }

  // Where the last words begin: behind the last frame, the first line at the margin that is followed by no frame.
  #message(words, frames) {
    if (!frames.length) {
      const at = words.findLastIndex((line) => /^[\w.]+(?:Error|Exception|Interrupt|Warning|Exit|Iteration)?\b.*:|^\w+Interrupt/.test(line));
      return at < 0 ? words.length : at;
    }
    const behind = words.findIndex((line, at) => at > frames[frames.length - 1] && /^[A-Za-z_]/.test(line) && !FRAME.test(line));
    return behind < 0 ? words.length : behind;
  }

  #row(node, row) {
    for (let at = 0; at < row.length; at += 1) {
      const [text, style] = row[at];
      const link = style.split(" ").map((word) => CELL.exec(word)).find(Boolean);
      if (!link) {
        node.append(styled(text, style));
        continue;
      }
      // The words of the link may be several runs; the line's number stands behind them.
      let label = text;
      while (at + 1 < row.length && row[at + 1][1].includes(link[0])) label += row[(at += 1)][0];
      const number = LINE.exec(row[at + 1]?.[0] ?? "");
      const place = this.host.place(link[1]);
      const words = document.createElement(place === null ? "span" : "button");
      words.className = "out-trace-cell";
      words.textContent = place === null ? label : `Cell ${place}`;
      if (place !== null) {
        words.type = "button";
        words.title = "Go there";
        words.addEventListener("click", () => this.host.visit(link[1], number ? +number[1] : 1));
      }
      node.append(words);
    }
  }
}
