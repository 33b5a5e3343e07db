// Markdown as DOM nodes: headings, lists, quotes, tables, code, formulas, emphasis, links. Built with DOM calls only, so
// what was written can never become markup; a link goes to the web, to mail or to a place on this server, else it is text.

import { formula } from "./math.js";

const SAFE_LINK = /^(https?:\/\/|mailto:|\/(?!\/)|#)/i;
const INLINE = /(`+)(.+?)\1|\$\$([^$]+?)\$\$|\$(?![\s$])([^$\n]*?[^\s$\\])\$(?!\d)|\\([$*_`\\[\]])|\*\*(.+?)\*\*|__(.+?)__|\*([^*\s](?:[^*]*[^*\s])?)\*|\[([^\]]+)\]\(([^)\s]+)\)/;

export function markdown(source) {
  const root = document.createDocumentFragment();
  const lines = source.split("\n");
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const fence = /^ {0,3}(```+|~~~+)/.exec(line);
    const heading = /^(#{1,6})\s+(.*?)\s*#*$/.exec(line);
    if (fence) {
      const end = lines.findIndex((other, number) => number > at && other.trim().startsWith(fence[1]));
      const upto = end < 0 ? lines.length : end;
      const pre = element("pre");
      pre.textContent = lines.slice(at + 1, upto).join("\n");
      root.append(pre);
      at = upto + 1;
    } else if (/^\s*\$\$/.test(line) && mathEnd(lines, at) >= 0) {
      const end = mathEnd(lines, at);
      root.append(formula(lines.slice(at, end + 1).join("\n").trim().slice(2, -2).trim(), true));
      at = end + 1;
    } else if (line.includes("|") && DIVIDER.test(lines[at + 1] ?? "")) {
      const from = at;
      for (at += 2; at < lines.length && lines[at].includes("|") && lines[at].trim(); ) at += 1;
      root.append(tableOf(lines[from], lines[from + 1], lines.slice(from + 2, at)));
    } else if (heading) {
      root.append(filled(`h${heading[1].length}`, heading[2]));
      at += 1;
    } else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
      root.append(element("hr"));
      at += 1;
    } else if (item(line)) {
      const list = element(item(line).ordered ? "ol" : "ul");
      while (at < lines.length && item(lines[at])) {
        list.append(filled("li", item(lines[at]).text));
        at += 1;
      }
      root.append(list);
    } else if (/^\s*>/.test(line)) {
      const from = at;
      while (at < lines.length && /^\s*>/.test(lines[at])) at += 1;
      const quote = element("blockquote");
      quote.append(filled("p", lines.slice(from, at).map((other) => other.replace(/^\s*>\s?/, "")).join("\n")));
      root.append(quote);
    } else if (line.trim() === "") {
      at += 1;
    } else {
      const from = at;
      do at += 1;
      while (at < lines.length && lines[at].trim() !== "" && !/^(#{1,6}\s|\s*>|\s*\$\$| {0,3}(```|~~~))/.test(lines[at]) && !item(lines[at]));
      root.append(filled("p", lines.slice(from, at).join("\n")));
    }
  }
  return root;
}

// Where a formula that begins in line `at` with $$ ends; -1 when it does not.
function mathEnd(lines, at) {
  if (/\$\$.*\$\$\s*$/.test(lines[at])) return at;
  for (let end = at + 1; end < lines.length && lines[end].trim() !== ""; end += 1) if (/\$\$\s*$/.test(lines[end])) return end;
  return -1;
}

const DIVIDER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

function tableOf(head, divider, body) {
  const cells = (line) => line.trim().replace(/^\||(?<!\\)\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
  const sides = cells(divider).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : ""));
  const row = (line, tag) => {
    const tr = element("tr");
    const found = cells(line);
    sides.forEach((side, at) => {
      const cell = filled(tag, found[at] ?? "");
      if (side) cell.style.textAlign = side;
      tr.append(cell);
    });
    return tr;
  };
  const [thead, tbody, grid, scroll] = ["thead", "tbody", "table", "div"].map(element);
  thead.append(row(head, "th"));
  tbody.append(...body.map((line) => row(line, "td")));
  grid.append(thead, tbody);
  scroll.className = "prose-table";
  scroll.append(grid);
  return scroll;
}

function item(line) {
  const match = /^\s*(?:([-*+])|(\d{1,9})[.)])\s+(.*)$/.exec(line);
  return match && { ordered: match[2] !== undefined, text: match[3] };
}

function element(tag) {
  return document.createElement(tag);
}

function filled(tag, text) {
  const node = element(tag);
  inline(node, text);
  return node;
}

function inline(node, text) {
  let match;
  while ((match = INLINE.exec(text))) {
    node.append(text.slice(0, match.index));
    const [all, , code, block, math, escaped, bold, strong, emphasis, label, target] = match;
    if (block !== undefined || math !== undefined) {
      node.append(formula((block ?? math).trim(), block !== undefined));
    } else if (escaped !== undefined) {
      node.append(escaped);
    } else if (code !== undefined) {
      const inner = element("code");
      inner.textContent = code;
      node.append(inner);
    } else if (label !== undefined) {
      node.append(SAFE_LINK.test(target) ? link(label, target) : all);
    } else {
      node.append(filled(emphasis === undefined ? "strong" : "em", bold ?? strong ?? emphasis));
    }
    text = text.slice(match.index + all.length);
  }
  node.append(text);
}

function link(label, target) {
  const anchor = filled("a", label);
  anchor.href = target;
  anchor.rel = "noopener noreferrer";
  if (/^https?:/i.test(target)) anchor.target = "_blank";
  return anchor;
}
