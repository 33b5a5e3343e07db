// One display in an output: the value of a cell, or what `display()` showed. The server has chosen the best of its kinds
// (`ui/ops.py`); here each kind has its way of being drawn, and what cannot be drawn says so instead of breaking the page.

import { framed, plotted } from "./frame.js";
import { formula } from "./math.js";
import { markdown } from "./markdown.js";
import { styled } from "./styles.js";
import { table } from "./table.js";
import { Terminal } from "./terminal.js";
import { tree } from "./tree.js";
import { size } from "./words.js";

const TEXT_SHOWN = 256 * 1024; // characters of plain text that a display draws
const JSON_LIMIT = 8 * 1024 * 1024; // bytes

export class Display {
  constructor(item) {
    this.id = item.display ?? null;
    this.root = document.createElement("div");
    this.root.className = "out-display";
    this.item = item;
    this.drawn = false;
  }

  replace(item) {
    this.item = item;
    if (this.drawn) this.draw();
  }

  // Called when its place is in the page: in a flood most displays never get there.
  draw() {
    const { item } = this;
    this.drawn = true;
    this.turn = (this.turn ?? 0) + 1; // what is still being loaded for an earlier value comes too late
    const turn = this.turn;
    this.plain = typeof item.plain === "string" ? item.plain : "";
    this.root.dataset.mime = item.mime ?? "";
    const put = (node) => turn === this.turn && replace(this.root, node, () => turn === this.turn);
    try {
      const drawn = draw(item, put);
      if (drawn) put(drawn);
    } catch (problem) {
      put(failed(item, problem));
    }
  }

  text() {
    return `${this.root.textContent}\n`;
  }

  // What it is, in a line.
  newest() {
    const { mime = "", value, size: sides } = this.item;
    if (mime.startsWith("image/")) return sides ? `Image, ${sides[0]} × ${sides[1]}` : "Image";
    if (mime === "application/vnd.nightbook.table+json" && Array.isArray(value?.shape)) return `Table, ${value.shape.join(" × ")}`;
    if (mime === "text/plain" && typeof value === "string") return value.trim().split("\n", 1)[0];
    const name = NAMES[mime] ?? "";
    return name && name[0].toUpperCase() + name.slice(1);
  }
}

// What takes the place of a value that was shown before comes without a blank between: a frame begins as high as the last
// one was, and an image waits until it can be painted.
function replace(root, node, current) {
  const before = root.firstElementChild;
  if (before?.matches(".out-frame") && node.matches(".out-frame")) node.style.height = before.style.height;
  if (!before?.matches("img") || !node.matches("img")) return root.replaceChildren(node);
  node.loading = "eager";
  const put = (what) => current() && root.replaceChildren(what);
  node.decode().then(() => put(node), () => put(broken(node.dataset.mime)));
}

function draw(item, put) {
  const { mime, value } = item;
  if (!mime) return note(`(${(item.kinds ?? []).join(", ") || "nothing"}: not shown here)`);
  if (mime.startsWith("image/")) return image(item);
  if (!value?.blob) return KINDS[mime](value, item);
  const waiting = note(`Loading ${size(value.bytes)} …`);
  load(mime, value).then(
    (loaded) => put(KINDS[mime](loaded, item)),
    (problem) => put(failed(item, problem)),
  ).catch((problem) => put(failed(item, problem)));
  return waiting;
}

async function load(mime, { blob, bytes }) {
  if (!/^[0-9a-f]{64}$/.test(blob)) throw new Error("its reference is broken");
  if (bytes > JSON_LIMIT && mime.endsWith("json")) throw new Error(`${size(bytes)} are too many to draw`);
  const answer = await fetch(`/api/v1/blobs/${blob}`);
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  return mime.endsWith("json") ? answer.json() : answer.text();
}

const KINDS = {
  "application/vnd.nightbook.table+json": (value) => table(value),
  "application/vnd.plotly.v1+json": (value, item) => plotted(value, (why) => failed(item, new Error(why))),
  "application/json": (value) => tree(value),
  "text/html": (value) => framed(joined(value)),
  "text/markdown": (value) => {
    const node = document.createElement("div");
    node.className = "prose";
    node.append(markdown(joined(value)));
    return node;
  },
  "text/latex": (value) => {
    const source = joined(value).trim();
    const inner = /^\$\$([^]*)\$\$$/.exec(source) ?? /^\$([^]*)\$$/.exec(source);
    return formula(inner ? inner[1] : source, true);
  },
  "text/plain": (value) => plain(joined(value)),
};

const joined = (value) => (Array.isArray(value) ? value.join("") : String(value));

// Plain text may carry colours, as IPython's pretty printing of some libraries does.
function plain(text) {
  const node = document.createElement("div");
  node.className = "out-plain";
  const terminal = new Terminal();
  terminal.feed(text.slice(0, TEXT_SHOWN));
  node.append(...[...terminal.take(), ...terminal.open()].map(([run, style]) => styled(run, style)));
  if (text.length > TEXT_SHOWN) node.append(note(`… ${size(text.length - TEXT_SHOWN)} more`));
  return node;
}

function note(words) {
  const node = document.createElement("div");
  node.className = "out-note";
  node.textContent = words;
  return node;
}

// What could not be drawn: why, and its plain text.
function failed(item, problem) {
  const node = document.createElement("div");
  node.append(note(`This ${NAMES[item.mime] ?? "output"} cannot be drawn: ${problem.message}`));
  if (item.plain) node.append(plain(item.plain));
  return node;
}

const NAMES = {
  "application/vnd.nightbook.table+json": "table",
  "application/vnd.plotly.v1+json": "plot",
  "application/json": "JSON",
  "text/html": "HTML",
  "text/latex": "formula",
};

const LARGEST_SIDE = 16_000; // pixels: browsers draw nothing of what is much larger
const LARGEST_AREA = 60_000_000;

// An <img> runs no script of an SVG and asks no other host. Its room is kept before it is there.
function image(item) {
  const { mime, value, size: sides } = item;
  const address = source(mime, value);
  if (!address) return note(`(${mime}: not an image)`);
  const [width, height] = sides ?? [0, 0];
  if (width > LARGEST_SIDE || height > LARGEST_SIDE || width * height > LARGEST_AREA) {
    const node = note(`An image of ${width} × ${height} pixels, too large to draw here. `);
    if (value.blob) {
      const link = document.createElement("a");
      Object.assign(link, { href: address, download: `image.${mime.slice(6).split("+")[0]}`, textContent: "Download it" });
      node.append(link);
    }
    return node;
  }
  const img = document.createElement("img");
  img.alt = item.plain ? item.plain.slice(0, 200) : "image output";
  img.loading = "lazy";
  img.decoding = "async";
  if (width && height) Object.assign(img, { width, height });
  else arriving(img);
  if (mime === "image/svg+xml") img.className = "svg";
  img.dataset.mime = mime;
  img.addEventListener("error", () => img.replaceWith(broken(mime)), { once: true });
  img.src = address;
  return img;
}

// An image of unknown size takes its room once it is there, and says so in that moment (`room.js`).
function arriving(img) {
  Object.assign(img, { loading: "eager", hidden: true });
  img.addEventListener("load", () => {
    img.hidden = false;
    img.dispatchEvent(new Event("grew", { bubbles: true }));
  }, { once: true });
}

function broken(mime) {
  return note(`This image (${mime}) is broken or was not found.`);
}

function source(mime, value) {
  if (value && /^[0-9a-f]{64}$/.test(value.blob ?? "")) return `/api/v1/blobs/${value.blob}`;
  const text = typeof value === "string" ? value : Array.isArray(value) ? value.join("") : null;
  if (text === null) return null;
  if (mime === "image/svg+xml") return `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  return `data:${mime};base64,${text.replace(/\s+/g, "")}`;
}
