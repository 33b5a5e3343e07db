// How high a cell's output stands while it comes, so that nothing the reader looks at jumps.
//
// Output grows freely where that moves nothing in sight: outside the window, at the page's tail, in a tab nobody looks at,
// and in the moment after the person's own press. Who presses run gets room in that moment: as much as the output had, or
// what the source lets expect, a few lines or a figure. Otherwise the output keeps its height and follows its own tail, with
// its newest line in the foot while nothing of it can be seen; it opens at the next occasion, or when the person asks.
//
// The same holds for what becomes higher by itself: a frame that tells its height, an image that comes, a plot. What stands
// there when the page is opened takes the height it has.

const OWN = 400; // milliseconds after a press in which movement is what the person asked for
const QUICK = 250; // milliseconds after which a run is worth making room for
const BUDGET = 0.012; // what growing may move in sight during one run, as browsers score layout shift
const LEAST = 40; // pixels under which nothing of an output can be read
const LINES = 6; // for the one cell that is run
const FEW = 3; // for each of many
const FIGURE = 501; // pixels of a figure as matplotlib draws it, and the box around it
const PLOT = 441; // of a plotly figure
const ROWS = 230; // of the first rows of a table

let acted = -Infinity; // when the person last pressed something
const holding = new Set(); // rooms that wait for an occasion
const rooms = new WeakMap(); // content -> its room
const contents = new ResizeObserver((entries) => {
  for (const { target } of entries) rooms.get(target)?.resized();
});

function occasion() {
  requestAnimationFrame(() => holding.forEach((room) => room.settle()));
}
addEventListener("pointerup", pressed, { passive: true, capture: true });
addEventListener("keydown", (event) => {
  const types = event.target.closest?.("input, textarea, [contenteditable=true]") && event.key !== "Escape";
  if (!types || (event.key === "Enter" && (event.ctrlKey || event.metaKey || event.shiftKey))) pressed();
}, { passive: true, capture: true });
addEventListener("scroll", () => holding.size && occasion(), { passive: true });
document.addEventListener("visibilitychange", () => document.hidden && holding.forEach((room) => room.settle()));

// A press of this page's own, also where keys otherwise write text.
export function pressed() {
  acted = performance.now();
  if (holding.size) occasion();
}

// How many pixels a cell that never showed anything can be expected to need; of `many` that are run, or the one.
export function expected(kind, source, many) {
  const lines = (many ? FEW : LINES) * 20 + 21;
  if (kind !== "python") return kind === "shell" ? lines : 0;
  if (/\bpx\.\w|\bgo\.Figure\b/.test(source)) return PLOT;
  if (/\bplt\.\w|\bsns\.\w|\bsubplots\(|\.(plot|hist|imshow|boxplot)\(/.test(source)) return FIGURE;
  const last = source.trimEnd().split("\n").at(-1);
  if (/^[\w.[\]'"]+\.(head|tail|sample|describe)\(.*\)$/.test(last)) return ROWS;
  if (/\b(print|display|tqdm|trange|input)\b/.test(source)) return lines;
  const silent = /^\s*(#|import |from |def |class |del |assert |pass\b|[\w., [\]'"]+\s*([-+*/%&|^@]|\*\*|\/\/)?=(?!=))/;
  return last !== "" && !silent.test(last) ? lines : 0;
}

export class Room {
  // `out`: the box of the output, `content`: what lies in it, `cell`: its cell's element, `host.active()`: whether it runs,
  // `host.held(height, natural)` is told the pixels it is held at (null: it is as high as its content) and those it would
  // have, `host.grew()` that the content became higher or lower by itself.
  constructor(out, content, cell, host) {
    Object.assign(this, { out, content, cell, host });
    this.height = null; // pixels that the box is held at
    this.spent = 0; // of the budget, in this run
    this.stood = 0; // pixels it was high when it was last looked at
    this.width = innerWidth; // of the window, then
    this.came = false; // whether something came while the page stood
    this.asked = false; // whether the person asked to see the whole of it
    rooms.set(content, this);
    contents.observe(content);
    content.addEventListener("grew", () => this.resized()); // told before the browser sees it
  }

  // The person asked for a run: so many pixels of room, unless the output has its height from before.
  reserve(pixels) {
    this.spent = 0;
    setTimeout(() => {
      if (!this.host.active() || performance.now() - acted > OWN) return;
      this.#hold(Math.max(this.out.offsetHeight, pixels));
    }, QUICK);
  }

  // A run begins, what was printed before goes: its room stays.
  begin() {
    this.spent = 0;
    this.asked = false;
    if (this.height === null && this.out.offsetHeight) this.#hold(this.out.offsetHeight);
  }

  // Output was drawn. `free`: it may grow, for the reader is at the page's tail; `opening`: it came with the page.
  drawn(free, opening) {
    this.came ||= !opening;
    this.#take(free || opening);
    if (!this.host.active()) this.settle();
  }

  // Its content was given another size, by the window (then it has it) or by itself.
  resized() {
    const own = this.width === innerWidth && this.out.contains(this.content);
    this.width = innerWidth;
    this.#take(!own || !this.came || this.asked);
    if (own) this.host.grew();
  }

  // An occasion, or the end of the run: the room becomes as high as its content, if that moves nothing in sight.
  settle() {
    if (this.height === null) return;
    const natural = this.#natural();
    const by = natural - this.height;
    if (by < 0 && this.host.active()) return; // more may come
    if (Math.abs(by) < 1 || this.#free(Math.abs(by))) this.show();
  }

  // The person sees the whole of it.
  show() {
    this.#release();
    this.stood = this.out.offsetHeight;
    this.host.held(null, this.stood);
  }

  // Because they asked for that.
  unfold() {
    this.asked = true;
    this.show();
  }

  close() {
    holding.delete(this);
    contents.unobserve(this.content);
  }

  #hold(height) {
    if (!height && !this.host.active()) return;
    this.height = this.stood = height;
    this.came = true;
    this.out.style.height = `${height}px`;
    this.#frame(getComputedStyle(this.out));
    this.out.classList.toggle("closed", height < LEAST);
    holding.add(this);
    this.host.held(height, height);
  }

  // What the person works at stays where it is.
  #release() {
    holding.delete(this);
    if (this.height === null) return;
    const at = document.activeElement?.closest(".cell");
    const below = at && this.cell.compareDocumentPosition(at) & Node.DOCUMENT_POSITION_FOLLOWING;
    const top = below ? at.getBoundingClientRect().top : 0;
    this.height = null;
    this.out.style.height = "";
    this.out.classList.remove("closed");
    if (below && top > 0 && top < innerHeight) window.scrollBy({ top: at.getBoundingClientRect().top - top, behavior: "instant" });
  }

  // The content has another height than it had: the box takes that, or keeps what it stood at.
  #take(free) {
    const natural = this.#natural();
    const by = Math.abs(natural - this.stood);
    if (free) this.#release();
    else if (this.height === null) by > 1 && !this.#free(by) && this.#hold(this.stood);
    else if (natural > this.height + 1 && this.#free(natural - this.height)) this.#release();
    this.stood = this.height ?? natural;
    this.host.held(this.height, natural);
  }

  // The height that the box would have, read without giving it that: each change of it lays the whole page out again.
  #natural() {
    const { out, content, height } = this;
    if (height === null) return out.offsetHeight;
    const inner = content.childElementCount ? content.offsetHeight : 0;
    if (!inner) return 0;
    const style = getComputedStyle(out);
    this.#frame(style);
    const bar = Math.max(0, out.offsetHeight - out.clientHeight - this.border); // to scroll sideways
    return Math.min(inner + this.border + this.padding + bar, parseFloat(style.maxHeight) || Infinity);
  }

  // What stands around the content, unless the box is closed: then it keeps what it had.
  #frame(style) {
    if (this.out.classList.contains("closed")) return;
    this.border = parseFloat(style.borderTopWidth) + parseFloat(style.borderBottomWidth);
    this.padding = parseFloat(style.paddingTop) + parseFloat(style.paddingBottom);
  }

  // Whether what stands below may move by so many pixels.
  #free(by) {
    if (document.hidden || performance.now() - acted < OWN) return true;
    const box = this.cell.getBoundingClientRect();
    if (box.bottom <= 0 || box.top >= innerHeight) return true;
    const foot = this.cell.querySelector(".foot").getBoundingClientRect().top;
    const end = this.cell.parentElement.lastElementChild.getBoundingClientRect().bottom;
    const moved = Math.min(end + by, innerHeight) - Math.max(foot - by, 0);
    if (moved <= 0 || foot - by >= innerHeight) return true;
    const cost = ((moved * box.width) / (innerHeight * innerWidth)) * (Math.min(by, innerHeight) / Math.max(innerWidth, innerHeight));
    if (this.spent + cost > BUDGET) return false;
    this.spent += cost;
    return true;
  }
}
