// A run of terminal text as a DOM node. What a style is says `engine/terminal.py`; how it looks, `ui/outputs.css`: colours
// are handed over as they are, and the style sheet keeps them readable in both themes.

const DRAWN = /^[\s\u2580-\u259f]+$/; // blocks and blanks are pictures: their colours stay as they are
const looks = new Map();

function look(style) {
  let known = looks.get(style);
  if (known) return known;
  const words = style.split(" ");
  const classes = [];
  let { fg, bg, link, css } = { fg: "", bg: "", link: "", css: "" };
  for (const word of words) {
    if (word.startsWith("link:")) link = word.slice(5);
    else if (word.startsWith("fg")) fg = word.slice(2);
    else if (word.startsWith("bg")) bg = word.slice(2);
    else classes.push(word);
  }
  if (classes.includes("inverse") && (fg || bg)) {
    [fg, bg] = [bg, fg];
    classes.splice(classes.indexOf("inverse"), 1);
    if (!bg) classes.push("on-ink");
  }
  for (const [kind, colour] of [["fg", fg], ["bg", bg]]) {
    if (!colour) continue;
    classes.push(kind);
    if (colour[0] === "#") css += `--${kind}:${colour};`;
    else classes.push(kind + colour);
  }
  known = { classes: classes.join(" "), css, link: /^https?:\/\//i.test(link) ? link : "" };
  if (looks.size > 5000) looks.clear();
  looks.set(style, known);
  return known;
}

export function styled(text, style) {
  if (!style) return document.createTextNode(text);
  const { classes, css, link } = look(style);
  const node = document.createElement(link ? "a" : "span");
  if (link) Object.assign(node, { href: link, target: "_blank", rel: "noopener noreferrer" });
  if (classes) node.className = css && DRAWN.test(text) ? `${classes} drawn` : classes;
  if (css) node.style.cssText = css;
  node.textContent = text;
  return node;
}
