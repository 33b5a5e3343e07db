// What a stream of program output looks like on one line of a terminal: `\r`, `\b`, tabs and the moves within a line are
// carried out, colours and other escape sequences are taken out. Pure: text in, finished lines and the open line out.

const OPEN_LIMIT = 8192; // characters of an unfinished line that can still be rewritten; what is before is settled
const PENDING_LIMIT = 4096; // an escape sequence longer than this is none

const PLAIN = /^[^\x00-\x08\x0b-\x1f\x7f\x80-\x9f]*$/;
const TOKEN =
  /\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-OQ-WYZ\\`-~]|[\x00-\x08\x0a-\x1f\x7f-\x9f]|[^\x00-\x08\x0a-\x1f\x7f-\x9f]+/g;
const UNFINISHED = /\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)$/;

export class Terminal {
  #line = "";
  #column = 0;
  #pending = "";

  // Takes text; gives {done, open}: `done` ends all lines that are finished now (the open line of before included),
  // `open` is the line the cursor stands in.
  feed(text) {
    text = this.#pending + text;
    this.#pending = "";
    if (text.includes("\r\n")) text = text.replaceAll("\r\n", "\n");
    if (this.#column === this.#line.length && PLAIN.test(text)) return this.#plain(text);
    const unfinished = UNFINISHED.exec(text);
    if (unfinished && unfinished[0].length < PENDING_LIMIT) {
      this.#pending = unfinished[0];
      text = text.slice(0, unfinished.index);
    }
    let done = "";
    for (const [token] of text.matchAll(TOKEN)) {
      const code = token.charCodeAt(0);
      if (code === 10) {
        done += this.#line + "\n";
        this.#line = "";
        this.#column = 0;
      } else if (code === 27) {
        this.#escape(token);
      } else if (code === 13) {
        this.#column = 0;
      } else if (code === 8) {
        this.#column = Math.max(0, this.#column - 1);
      } else if (code >= 32 && code !== 127 && !(code >= 128 && code < 160)) {
        this.#write(token);
        done += this.#settle();
      } else if (code === 9) {
        this.#write(token);
      }
    }
    return { done, open: this.#line };
  }

  #plain(text) {
    const end = text.lastIndexOf("\n") + 1;
    let done = "";
    if (end > 0) {
      done = this.#line + text.slice(0, end);
      this.#line = text.slice(end);
    } else {
      this.#line += text;
    }
    this.#column = this.#line.length;
    done += this.#settle();
    return { done, open: this.#line };
  }

  // The front of a very long line is settled, as a terminal's earlier rows are; a pair of surrogates is not torn.
  #settle() {
    if (this.#line.length <= OPEN_LIMIT || this.#column < this.#line.length) return "";
    let cut = this.#line.length - OPEN_LIMIT / 2;
    if (isLow(this.#line, cut)) cut -= 1;
    const front = this.#line.slice(0, cut);
    this.#line = this.#line.slice(cut);
    this.#column = this.#line.length;
    return front;
  }

  #write(run) {
    const line = this.#line;
    if (this.#column === line.length) {
      this.#line = line + run;
    } else {
      let before = line.slice(0, this.#column);
      let after = line.slice(this.#column + run.length);
      if (isLow(line, this.#column)) before = before.slice(0, -1) + " ";
      if (isLow(line, this.#column + run.length)) after = " " + after.slice(1);
      this.#line = before + run + after;
    }
    this.#column += run.length;
  }

  #escape(token) {
    if (token.charCodeAt(1) !== 0x5b) return;
    const final = token[token.length - 1];
    const argument = parseInt(token.slice(2), 10);
    const count = Math.min(argument || 1, 1000);
    if (final === "K") this.#erase(argument || 0);
    else if (final === "C") this.#to(this.#column + count);
    else if (final === "D") this.#column = Math.max(0, this.#column - count);
    else if (final === "G") this.#to(count - 1);
  }

  #erase(how) {
    const line = this.#line;
    if (how === 0) this.#line = line.slice(0, this.#column);
    else if (how === 1) this.#line = " ".repeat(Math.min(this.#column + 1, line.length)) + line.slice(this.#column + 1);
    else this.#line = " ".repeat(this.#column);
  }

  #to(column) {
    if (column > this.#line.length) this.#line = this.#line.padEnd(column);
    this.#column = column;
  }
}

function isLow(text, at) {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code < 0xe000;
}
