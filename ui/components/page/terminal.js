// What a stream of program output looks like on a terminal. The same as `engine/terminal.py`, which says what is carried
// out and what a style is; both run the cases of `tests/terminal_cases.json`. Pure: text in, styled runs out.
//
// A row is kept as runs while it only grows, which is what nearly all rows do, and as single cells once it is rewritten.

export const HEIGHT = 40; // rows that can still be rewritten
const WIDEST = 1000;
const OPEN_LIMIT = 8192; // characters of an unfinished line that can still be rewritten; what is before is settled
const PENDING_LIMIT = 4096;

const TOKEN =
  /\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-OQ-WYZ\\`-~]|[\x00-\x08\x0a-\x1f\x7f-\x9f]|[^\x00-\x08\x0a-\x1f\x7f-\x9f]+/g;
const UNFINISHED = /\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)$/;
const LINK = /^\x1b\]8;[^;]*;([^]*?)(?:\x07|\x1b\\)$/;
const PLAIN = /^[^\x00-\x08\x0b-\x1f\x7f-\x9f]*$/;
const NARROW = /^[\x20-\x7e]*$/;
const SCREEN = /^\?(?:47|1047|1049)$/;

const ZERO = [0x300, 0x36f, 0x1ab0, 0x1aff, 0x1dc0, 0x1dff, 0x200b, 0x200f, 0x20d0, 0x20ff, 0xfe00, 0xfe0f, 0xe0100, 0xe01ef];
const WIDE = [
  0x1100, 0x115f, 0x2e80, 0x303e, 0x3041, 0xa4cf, 0xac00, 0xd7a3, 0xf900, 0xfaff, 0xfe30, 0xfe6f, 0xff00, 0xff60, 0xffe0,
  0xffe6, 0x1f300, 0x1f64f, 0x1f680, 0x1f6ff, 0x1f900, 0x1f9ff, 0x20000, 0x3fffd,
];
const FLAGS = ["bold", "faint", "italic", "underline", "strike", "inverse", "hidden"];
const ON = { 1: "bold", 2: "faint", 3: "italic", 4: "underline", 7: "inverse", 8: "hidden", 9: "strike", 21: "underline" };
const OFF = { 22: ["bold", "faint"], 23: ["italic"], 24: ["underline"], 27: ["inverse"], 28: ["hidden"], 29: ["strike"] };

function within(code, ranges) {
  for (let at = 0; at < ranges.length; at += 2) if (code >= ranges[at] && code <= ranges[at + 1]) return true;
  return false;
}

// Columns that `char` takes when it begins in `column`.
function width(char, column) {
  if (char === "\t") return 8 - (column % 8);
  const code = char.codePointAt(0);
  if (code < 0x300) return 1;
  if (within(code, ZERO)) return 0;
  return within(code, WIDE) ? 2 : 1;
}

const hex = (value) => Math.min(value, 255).toString(16).padStart(2, "0");

function indexed(number) {
  if (number < 16) return String(number);
  if (number >= 232) return "#" + hex(8 + 10 * (number - 232)).repeat(3);
  const levels = [0, 95, 135, 175, 215, 255];
  const at = number - 16;
  return "#" + [Math.floor(at / 36), Math.floor(at / 6) % 6, at % 6].map((part) => hex(levels[part])).join("");
}

class Pen {
  flags = new Set();
  fg = "";
  bg = "";
  link = "";

  style(base) {
    const words = base ? [base] : [];
    if (this.flags.size) words.push(...FLAGS.filter((flag) => this.flags.has(flag)));
    if (this.fg) words.push("fg" + this.fg);
    if (this.bg) words.push("bg" + this.bg);
    if (this.link) words.push("link:" + this.link);
    return words.join(" ");
  }

  select(parameters) {
    const codes = parameters.split(/[;:]/).map((code) => (/^\d+$/.test(code) ? +code : 0));
    let at = 0;
    while (at < codes.length) {
      const code = codes[at++];
      if (code === 0) {
        this.flags.clear();
        this.fg = this.bg = "";
      } else if (ON[code]) this.flags.add(ON[code]);
      else if (OFF[code]) OFF[code].forEach((flag) => this.flags.delete(flag));
      else if (code === 38 || code === 48) {
        let colour = "";
        if (codes[at] === 5 && at + 1 < codes.length) {
          colour = indexed(Math.min(codes[at + 1], 255));
          at += 2;
        } else if (codes[at] === 2 && at + 3 < codes.length) {
          colour = "#" + codes.slice(at + 1, at + 4).map(hex).join("");
          at += 4;
        } else at = codes.length;
        if (colour) this[code === 38 ? "fg" : "bg"] = colour;
      } else if (code === 39) this.fg = "";
      else if (code === 49) this.bg = "";
      else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) this.fg = String(code < 90 ? code - 30 : code - 82);
      else if ((code >= 40 && code <= 47) || (code >= 100 && code <= 107)) this.bg = String(code < 100 ? code - 40 : code - 92);
    }
  }
}

class Row {
  runs = []; // [text, style], while the row only grew
  cells = null; // [character with its marks or "", style], since it was rewritten
  columns = 0;

  append(text, style) {
    const last = this.runs[this.runs.length - 1];
    if (last && last[1] === style) last[0] += text;
    else this.runs.push([text, style]);
    if (NARROW.test(text)) this.columns += text.length;
    else for (const char of text) this.columns += width(char, this.columns);
  }

  explode() {
    if (this.cells) return this.cells;
    const cells = (this.cells = []);
    for (const [text, style] of this.runs) {
      for (const char of text) {
        const columns = width(char, cells.length);
        if (columns === 0) mark(cells, cells.length - 1, char);
        else {
          cells.push([char, style]);
          for (let more = 1; more < columns; more += 1) cells.push(["", style]);
        }
      }
    }
    return cells;
  }

  get length() {
    return this.cells ? this.cells.length : this.columns;
  }

  // The row as runs, also of a row that was rewritten.
  read() {
    if (!this.cells) return this.runs;
    const runs = [];
    for (const [char, style] of this.cells) {
      const last = runs[runs.length - 1];
      if (last && last[1] === style) last[0] += char;
      else runs.push([char, style]);
    }
    return runs;
  }
}

// Where the character begins that covers column `at`.
function head(cells, at) {
  at = Math.min(at, cells.length - 1);
  while (at > 0 && cells[at][0] === "") at -= 1;
  return at;
}

function mark(cells, at, char) {
  at = head(cells, at);
  if (at >= 0) cells[at] = [cells[at][0] + char, cells[at][1]];
}

// What reaches over the edges of these columns becomes blanks.
function free(cells, start, end) {
  for (const edge of [start, end]) {
    if (edge >= cells.length || cells[edge][0] !== "") continue;
    for (let at = head(cells, edge); at < cells.length && (at <= edge || cells[at][0] === ""); at += 1) cells[at] = [" ", ""];
  }
}

const blanks = (count) => Array.from({ length: Math.max(0, count) }, () => [" ", ""]);

export class Terminal {
  #rows = [new Row()];
  #row = 0;
  #column = 0;
  #saved = [0, 0];
  #pen = new Pen();
  #pending = "";
  #main = null; // what the alternate screen hides
  #settled = []; // runs that nothing can change any more, since they were taken last

  // Takes text of a stream; `base` is the stream's word in the style.
  feed(text, base = "") {
    text = this.#pending + text;
    this.#pending = "";
    if (text.includes("\r\n")) text = text.replaceAll("\r\n", "\n");
    const unfinished = UNFINISHED.exec(text.slice(-PENDING_LIMIT));
    if (unfinished) {
      this.#pending = unfinished[0];
      text = text.slice(0, text.length - unfinished[0].length);
    }
    let style = this.#pen.style(base);
    if (text.length > 1000 && PLAIN.test(text)) text = this.#plain(text, style);
    for (const [token] of text.matchAll(TOKEN)) {
      const code = token.charCodeAt(0);
      if (code === 10) this.#lineFeed();
      else if (code === 27) {
        this.#escape(token);
        style = this.#pen.style(base);
      } else if (code === 13) this.#column = 0;
      else if (code === 8) this.#column = Math.max(0, this.#column - 1);
      else if (code === 9 || (code >= 32 && !(code >= 127 && code < 160))) this.#write(token, style);
    }
  }

  // Many plain lines at once: all that the screen has no room for is final. Returns the rest.
  #plain(text, style) {
    if (this.#main || this.#row !== this.#rows.length - 1 || this.#column !== this.#rows[this.#row].length) return text;
    let cut = text.length;
    for (let rows = 0; rows < HEIGHT; rows += 1) {
      cut = text.lastIndexOf("\n", cut - 1);
      if (cut <= 0) return text;
    }
    this.#rows.forEach((row, at) => this.#settled.push(...(at ? [["\n", ""]] : []), ...row.read()));
    this.#settled.push([text.slice(0, cut + 1), style]);
    this.#rows = [new Row()];
    this.#row = this.#column = 0;
    return text.slice(cut + 1);
  }

  // The runs that became final since this was asked last, line breaks among them.
  take() {
    const settled = this.#settled;
    this.#settled = [];
    return settled;
  }

  // The rows that can still change, as runs; the last one has no line break.
  open() {
    const runs = [];
    this.#rows.forEach((row, at) => {
      if (at) runs.push(["\n", ""]);
      runs.push(...row.read());
    });
    return runs;
  }

  get openLines() {
    return this.#rows.length;
  }

  #current() {
    while (this.#rows.length <= this.#row) this.#rows.push(new Row());
    return this.#rows[this.#row];
  }

  #lineFeed() {
    this.#row += 1;
    this.#column = 0;
    this.#current();
    if (this.#rows.length <= HEIGHT) return;
    const gone = this.#rows.shift();
    this.#row -= 1;
    if (!this.#main) this.#settled.push(...gone.read(), ["\n", ""]);
  }

  #write(text, style) {
    const row = this.#current();
    const missing = this.#column - row.length;
    if (missing > 0) {
      if (row.cells) row.cells.push(...blanks(missing));
      else row.append(" ".repeat(missing), "");
    }
    if (!row.cells && row.columns === this.#column) {
      row.append(text, style);
      this.#column = row.columns;
      this.#shorten(row);
      return;
    }
    const cells = row.explode();
    for (const char of text) {
      const columns = width(char, this.#column);
      if (columns === 0) {
        mark(cells, this.#column - 1, char);
        continue;
      }
      const end = this.#column + columns;
      free(cells, this.#column, end);
      cells[this.#column] = [char, style];
      for (let at = this.#column + 1; at < end; at += 1) cells[at] = ["", style];
      this.#column = end;
    }
  }

  // The front of a very long line is settled, as a terminal's earlier rows are.
  #shorten(row) {
    if (row.columns <= OPEN_LIMIT || this.#row !== this.#rows.length - 1 || this.#main) return;
    for (const above of this.#rows.slice(0, -1)) this.#settled.push(...above.read(), ["\n", ""]);
    this.#rows = [row];
    this.#row = 0;
    const last = row.runs.pop();
    let cut = Math.max(0, last[0].length - OPEN_LIMIT / 2);
    if (cut && isLow(last[0], cut)) cut -= 1;
    this.#settled.push(...row.runs);
    if (cut) this.#settled.push([last[0].slice(0, cut), last[1]]);
    row.runs = [];
    row.columns = 0;
    row.append(last[0].slice(cut), last[1]);
    this.#column = row.columns;
  }

  #escape(token) {
    const link = LINK.exec(token);
    if (link) this.#pen.link = /\s/.test(link[1]) ? "" : link[1];
    else if (token[1] === "[") this.#control(token.slice(2, -1), token[token.length - 1]);
    else if (token === "\x1bM") this.#row = Math.max(0, this.#row - 1);
    else if (token === "\x1b7") this.#saved = [this.#row, this.#column];
    else if (token === "\x1b8") [this.#row, this.#column] = this.#saved;
  }

  #control(parameters, final) {
    if (final === "m" && !/^[?><=]/.test(parameters)) {
      this.#pen.select(parameters);
      return;
    }
    if (parameters[0] === "?") {
      if (SCREEN.test(parameters) && (final === "h" || final === "l")) this.#alternate(final === "h");
      return;
    }
    const numbers = parameters.split(";").map((number) => (/^\d+$/.test(number) ? +number : 0));
    const given = numbers[0];
    const count = Math.min(given || 1, WIDEST);
    const column = this.#column;
    if (final === "A" || final === "F") this.#row = Math.max(0, this.#row - count);
    else if (final === "B" || final === "E") this.#row = Math.min(HEIGHT - 1, this.#row + count);
    else if (final === "C") this.#column = Math.min(column + count, WIDEST);
    else if (final === "D") this.#column = Math.max(0, column - count);
    else if (final === "G" || final === "`") this.#column = count - 1;
    else if (final === "d") this.#row = Math.min(HEIGHT, count) - 1;
    else if (final === "H" || final === "f") {
      this.#row = Math.min(HEIGHT, count) - 1;
      this.#column = Math.min(numbers[1] || 1, WIDEST) - 1;
    } else if (final === "J") this.#eraseScreen(given);
    else if (final === "K") this.#eraseLine(given);
    else if (final === "L") {
      if (this.#row < this.#rows.length) {
        this.#rows.splice(this.#row, 0, ...Array.from({ length: Math.min(count, HEIGHT) }, () => new Row()));
        this.#rows.length = Math.min(this.#rows.length, HEIGHT);
      }
    } else if (final === "M") {
      this.#rows.splice(this.#row, count);
      this.#current();
    } else if (final === "P") {
      const cells = this.#current().explode();
      free(cells, column, column + count);
      cells.splice(column, count);
    } else if (final === "X") {
      const cells = this.#current().explode();
      const end = Math.min(cells.length, column + count);
      free(cells, column, end);
      for (let at = column; at < end; at += 1) cells[at] = [" ", ""];
    } else if (final === "@") {
      const cells = this.#current().explode();
      free(cells, column, column);
      if (column < cells.length) cells.splice(column, 0, ...blanks(count));
    } else if (final === "s") this.#saved = [this.#row, column];
    else if (final === "u") [this.#row, this.#column] = this.#saved;
    if (final === "E" || final === "F") this.#column = 0;
  }

  #eraseLine(how) {
    const row = this.#current();
    if (how === 0) {
      if (this.#column >= row.length) return;
      const cells = row.explode();
      free(cells, this.#column, this.#column);
      cells.length = Math.min(cells.length, this.#column);
    } else if (how === 1) {
      const cells = row.explode();
      const end = Math.min(this.#column + 1, cells.length);
      free(cells, end, end);
      for (let at = 0; at < end; at += 1) cells[at] = [" ", ""];
    } else {
      Object.assign(row, { runs: [], cells: null, columns: 0 });
    }
  }

  #eraseScreen(how) {
    if (how === 0) {
      this.#eraseLine(0);
      this.#rows.length = Math.min(this.#rows.length, this.#row + 1);
    } else if (how === 1) {
      this.#eraseLine(1);
      for (let at = 0; at < this.#row; at += 1) this.#rows[at] = new Row();
    } else {
      this.#rows = [new Row()];
    }
  }

  #alternate(on) {
    if (on && !this.#main) {
      this.#main = [this.#rows, this.#row, this.#column];
      [this.#rows, this.#row, this.#column] = [[new Row()], 0, 0];
    } else if (!on && this.#main) {
      [this.#rows, this.#row, this.#column] = this.#main;
      this.#main = null;
    }
  }
}

function isLow(text, at) {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code < 0xe000;
}
