// Colours for source: one small tokenizer, line by line, for the still text and the editor alike, so that taking a cell in
// hand changes nothing to the eye. It colours; it does not judge.

import { mentions } from "./mentions.js";

const words = (text) => new Set(text.split(" "));

const PYTHON_KEYWORDS = words(
  "and as assert async await break case class continue def del elif else except finally for from global if import in is " +
    "lambda match nonlocal not or pass raise return try type while with yield",
);
const SOFT = words("match case type"); // keywords only at the begin of a statement that goes on
const PYTHON_CONSTANTS = words("True False None NotImplemented Ellipsis self cls __name__");
const PYTHON_BUILTINS = words(
  "abs all any ascii bin bool bytearray bytes callable chr classmethod compile complex dict dir display divmod enumerate " +
    "eval exec filter float format frozenset getattr globals hasattr hash help hex id input int isinstance issubclass iter " +
    "len list locals map max memoryview min next object oct open ord pow print property range repr reversed round set " +
    "setattr slice sorted staticmethod str sum super tuple type vars zip Exception BaseException ValueError TypeError " +
    "KeyError IndexError AttributeError RuntimeError OSError StopIteration KeyboardInterrupt ZeroDivisionError",
);
const SHELL_KEYWORDS = words("if then else elif fi for in do done while until case esac function select time return exit");
const SHELL_BUILTINS = words(
  "cd echo export source alias set unset read printf test eval exec trap wait shift local declare pwd kill sudo env",
);

const PYTHON =
  /(#.*)|([rRbBuUfFtT]{0,2}(?:"""|'''|"|'))|((?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?[jJ]?|0[xXoObB][\da-fA-F_]+)|([\p{L}_][\p{L}\p{N}_]*)|([-+*/%=<>!&|^~@:]+)/gu;
const SHELL = /(^#.*|(?<=\s)#.*)|(["'])|(\$(?:\w+|\{[^}]*\}|[?#@*!$-]))|([A-Za-z_][\w-]*)|(\d+(?![\w-]))|([|&;<>]+)/g;
const MARKDOWN = /(`[^`]+`)|(\*\*[^*]+\*\*|__[^_]+__)|((?<![\w*])\*[^*\s][^*]*\*|(?<!\w)_[^_\s][^_]*_(?!\w))|(!?\[[^\]]*\]\([^)]*\)|<?https?:\/\/\S+)/g;

// Each takes a line, the state it begins in ("" or what is open) and `emit(from, to, class)`; returns the state after it.
const LANGUAGES = { python, shell, markdown, agent: request };

function closing(line, from, quote) {
  for (let at = from; at < line.length; at += 1) {
    if (line[at] === "\\") at += 1;
    else if (line.startsWith(quote, at)) return at + quote.length;
  }
  return -1;
}

function python(line, state, emit) {
  let at = 0;
  if (state) {
    const end = closing(line, 0, state);
    emit(0, end < 0 ? line.length : end, "string");
    if (end < 0) return state;
    at = end;
  } else if (/^\s*[%!]/.test(line)) {
    emit(0, line.length, "meta");
    return "";
  } else {
    const decorator = /^\s*@[\w.]+/.exec(line);
    if (decorator) emit(0, (at = decorator[0].length), "meta");
  }
  let before = "";
  PYTHON.lastIndex = at;
  for (let found; (found = PYTHON.exec(line)); ) {
    const [text, comment, quote, number, name, operator] = found;
    const from = found.index;
    let to = from + text.length;
    if (comment) emit(from, to, "comment");
    else if (quote) {
      const mark = quote.replace(/^[a-zA-Z]+/, "");
      const end = closing(line, to, mark);
      emit(from, end < 0 ? line.length : end, "string");
      if (end < 0) return mark.length === 3 || line.endsWith("\\") ? mark : "";
      to = end;
      PYTHON.lastIndex = to;
    } else if (number) emit(from, to, "number");
    else if (operator) emit(from, to, "operator");
    else if (name) {
      const member = line[from - 1] === ".";
      const soft = SOFT.has(name) && (line.slice(0, from).trim() || !/^\s+[\w"'([{-]/.test(line.slice(to)));
      if (!member && PYTHON_KEYWORDS.has(name) && !soft) emit(from, to, "keyword");
      else if (!member && PYTHON_CONSTANTS.has(name)) emit(from, to, "constant");
      else if (before === "def" || before === "class") emit(from, to, "definition");
      else if (!member && PYTHON_BUILTINS.has(name)) emit(from, to, "builtin");
      else if (line[to] === "(") emit(from, to, "call");
    }
    before = name ?? "";
  }
  return "";
}

function shell(line, state, emit) {
  let at = 0;
  if (state) {
    const end = state === "'" ? line.indexOf("'") + 1 || -1 : closing(line, 0, state);
    emit(0, end < 0 ? line.length : end, "string");
    if (end < 0) return state;
    at = end;
  }
  let command = !state;
  SHELL.lastIndex = at;
  for (let found; (found = SHELL.exec(line)); ) {
    const [text, comment, quote, variable, word, number, operator] = found;
    const from = found.index;
    let to = from + text.length;
    if (comment) emit(from, to, "comment");
    else if (quote) {
      const end = quote === "'" ? line.indexOf("'", to) + 1 || -1 : closing(line, to, quote);
      emit(from, end < 0 ? line.length : end, "string");
      if (end < 0) return quote;
      SHELL.lastIndex = to = end;
    } else if (variable) emit(from, to, "constant");
    else if (number) emit(from, to, "number");
    else if (operator) emit(from, to, "operator");
    else if (word) {
      const alone = !/[\w./-]/.test(line[from - 1] ?? "");
      if (alone && SHELL_KEYWORDS.has(word)) emit(from, to, "keyword");
      else if (alone && SHELL_BUILTINS.has(word)) emit(from, to, "builtin");
      else if (command && alone && line[to] !== "=") emit(from, to, "call");
    }
    command = Boolean(operator) || (command && Boolean(word) && (line[to] === "=" || SHELL_KEYWORDS.has(word)));
  }
  return "";
}

function markdown(line, state, emit) {
  if (/^\s*(```|~~~)/.test(line)) {
    emit(0, line.length, "meta");
    return state ? "" : "```";
  }
  if (state) {
    emit(0, line.length, "string");
    return state;
  }
  if (/^#{1,6}\s/.test(line)) {
    emit(0, line.length, "heading");
    return "";
  }
  const mark = /^\s*([-*+]|\d+[.)]|>)\s/.exec(line);
  if (mark) emit(0, mark[0].length, "operator");
  MARKDOWN.lastIndex = mark ? mark[0].length : 0;
  for (let found; (found = MARKDOWN.exec(line)); ) {
    const [text, code, strong, , link] = found;
    const name = code ? "string" : strong ? "strong" : link ? "link" : "emphasis";
    emit(found.index, found.index + text.length, name);
  }
  return "";
}

// A request: Markdown, and what it names.
function request(line, state, emit) {
  const found = line.includes("@") ? mentions(line) : [];
  if (!found.length) return markdown(line, state, emit);
  const parts = found.map(({ from, to }) => ({ from, to, name: "mention" }));
  const after = markdown(line, state, (from, to, name) => {
    if (!found.some((mention) => from < mention.to && mention.from < to)) parts.push({ from, to, name });
  });
  for (const { from, to, name } of parts.sort((one, other) => one.from - other.from)) emit(from, to, name);
  return after;
}

const LONGEST = 5000; // characters of a line: past them it is data, not a line that someone reads
const MOST = 64 * 1024; // characters of a source that are coloured while it stands still

const TOO_MUCH = 512 * 1024; // characters past which a text cannot be saved, and would hold up the whole page to lay out

// The state after `line`; `emit(from, to, class)` gets its coloured parts, in order.
export function tokens(kind, line, state, emit) {
  const language = LANGUAGES[kind];
  return language && line.length <= LONGEST ? language(line, state, emit) : state;
}

const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };
const escaped = (text) => text.replace(/[&<>]/g, (sign) => ESCAPES[sign]);

// The whole text as HTML of spans; its text content is `text`.
export function highlighted(kind, text) {
  if (text.length > TOO_MUCH) return `${escaped(text.slice(0, MOST))}\n… the rest is there in the editor`;
  if (text.length > MOST) return escaped(text);
  let state = "";
  return text
    .split("\n")
    .map((line) => {
      let html = "";
      let at = 0;
      state = tokens(kind, line, state, (from, to, name) => {
        if (from > at) html += escaped(line.slice(at, from));
        if (to > from) html += `<span class="t-${name}">${escaped(line.slice(from, to))}</span>`;
        at = to;
      });
      return html + escaped(line.slice(at));
    })
    .join("\n");
}

// The same as decorations of CodeMirror, for the lines in sight.
export function highlighter(CM, kind) {
  const marks = {};
  const mark = (name) => (marks[name] ??= CM.Decoration.mark({ class: `t-${name}` }));
  return CM.ViewPlugin.fromClass(
    class {
      constructor(view) {
        this.states = [""]; // in which each line begins, as far as known
        this.decorations = this.build(view);
      }
      update(update) {
        if (!update.docChanged && !update.viewportChanged) return;
        if (update.docChanged) {
          let first = Infinity;
          update.changes.iterChangedRanges((from) => (first = Math.min(first, from)));
          this.states.length = Math.min(this.states.length, update.startState.doc.lineAt(first).number);
        }
        this.decorations = this.build(update.view);
      }
      build(view) {
        const { doc } = view.state;
        const builder = new CM.RangeSetBuilder();
        for (const { from, to } of view.visibleRanges) {
          const last = doc.lineAt(to).number;
          const begin = doc.lineAt(from).number;
          for (let number = Math.min(begin, this.states.length); number <= last; number += 1) {
            const line = doc.line(number);
            const shown = number >= begin;
            this.states[number] = tokens(kind, line.text, this.states[number - 1], (start, end, name) => {
              if (shown && end > start) builder.add(line.from + start, line.from + end, mark(name));
            });
          }
        }
        return builder.finish();
      }
    },
    { decorations: (plugin) => plugin.decorations },
  );
}
