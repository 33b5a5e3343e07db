// How high a cell's output stands while it comes, so that nothing the reader looks at jumps.
//
// Output grows freely where that moves nothing in sight: outside the window, at the page's tail, in a tab nobody looks at,
// and in the moment after the person's own press. Who presses run gets room in that moment: as much as the output had, or
// a few lines where the source says that it prints. Otherwise the output keeps its height and follows its own tail, with its
// newest line in the foot while nothing of it can be seen; it opens at the next occasion, or when the person asks.

const OWN = 400; // milliseconds after a press in which movement is what the person asked for
const QUICK = 250; // milliseconds after which a run is worth making room for
const BUDGET = 0.012; // what growing may move in sight during one run, as browsers score layout shift
const LEAST = 40; // pixels under which nothing of an output can be read
export const LINES = 6; // for the one cell that is run
export const FEW = 3; // for each of many

let acted = -Infinity; // when the person last pressed something
const holding = new Set(); // rooms that wait for an occasion

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

function pressed() {
  acted = performance.now();
  if (holding.size) occasion();
}

// Whether a cell that never printed can be expected to: shell commands do, and Python that prints or ends in an expression.
export function expected(kind, source) {
  if (kind !== "python") return kind === "shell";
  if (/\b(print|display|tqdm|trange|input)\b/.test(source)) return true;
  const last = source.trimEnd().split("\n").at(-1);
  return last !== "" && !/^\s*(#|import |from |def |class |del |assert |pass\b|[\w., [\]'"]+\s*([-+*/%&|^@]|\*\*|\/\/)?=(?!=))/.test(last);
}

export class Room {
  // `out`: the box of the output, `cell`: its cell's element, `host.active()`: whether it runs, `host.held(height, natural)` is
  // told the pixels it is held at (null: it is as high as its content) and those it would have.
  constructor(out, cell, host) {
    Object.assign(this, { out, cell, host });
    this.height = null; // pixels that the box is held at
    this.spent = 0; // of the budget, in this run
  }

  // The person asked for a run: `lines` of room, unless the output has its height from before.
  reserve(lines) {
    this.spent = 0;
    setTimeout(() => {
      if (!this.host.active() || performance.now() - acted > OWN) return;
      this.#hold(Math.max(this.out.offsetHeight, lines ? lines * 20 + 21 : 0));
    }, QUICK);
  }

  // A run begins, what was printed before goes: its room stays.
  begin() {
    this.spent = 0;
    if (this.height === null && this.out.offsetHeight) this.#hold(this.out.offsetHeight);
  }

  // Before and after output is drawn. `free`: it may grow, for the reader is at the page's tail, or it is more than text.
  before(shown) {
    this.was = this.height ?? (shown ? this.out.offsetHeight : 0);
  }

  drawn(free) {
    const natural = this.#natural();
    if (free) this.#release();
    else if (natural > this.was + 1) {
      if (this.#free(natural - this.was)) this.#release();
      else this.#hold(this.was);
    }
    this.host.held(this.height, natural);
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
    this.host.held(null, this.out.offsetHeight);
  }

  close() {
    holding.delete(this);
  }

  #hold(height) {
    if (!height && !this.host.active()) return;
    this.height = height;
    this.out.style.height = `${height}px`;
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

  // The height that the content would have.
  #natural() {
    const { out, height } = this;
    if (height === null) return out.offsetHeight;
    if (!out.firstElementChild?.childElementCount) return 0;
    const { scrollTop } = out;
    out.style.height = "";
    out.classList.remove("closed");
    const natural = out.offsetHeight;
    out.style.height = `${height}px`;
    out.classList.toggle("closed", height < LEAST);
    out.scrollTop = scrollTop;
    return natural;
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
