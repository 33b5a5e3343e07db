// Moving a cell by its grip, with a mouse, a pen or a finger: a line shows where it will stand; Escape lets it be.

const EDGE = 60; // pixels from the edge of the window where the page goes along

// Called with the pointerdown on the grip. `cells()` gives the cells' elements in order; `placed(index)` is told where:
// before the cell that stands at `index` now.
export function drag(event, own, cells, placed) {
  if (event.button !== 0) return;
  event.preventDefault();
  const grip = event.currentTarget;
  grip.setPointerCapture(event.pointerId);
  const page = own.parentElement;
  const line = document.createElement("div");
  line.className = "drop";
  let index = null;
  let scrolling = 0;
  let last = event;

  const moved = (now) => {
    last = now;
    const all = cells();
    index = all.findIndex((node) => {
      const { top, height } = node.getBoundingClientRect();
      return now.clientY < top + height / 2;
    });
    if (index < 0) index = all.length;
    const top = page.getBoundingClientRect().top;
    const edge = index < all.length ? all[index].getBoundingClientRect().top : all.at(-1).getBoundingClientRect().bottom + 14;
    line.style.top = `${edge - top - 9}px`;
    if (!line.isConnected) {
      page.append(line);
      own.classList.add("dragged");
    }
    const speed = now.clientY < EDGE + 50 ? -12 : now.clientY > innerHeight - EDGE ? 12 : 0;
    if (speed && !scrolling) scroll();
    else if (!speed) scrolling = 0;
    function scroll() {
      scrolling = requestAnimationFrame(() => {
        if (!scrolling) return;
        window.scrollBy(0, last.clientY < innerHeight / 2 ? -12 : 12);
        scrolling = 0;
        moved(last);
      });
    }
  };
  const over = (keep) => {
    cancelAnimationFrame(scrolling);
    line.remove();
    own.classList.remove("dragged");
    grip.removeEventListener("pointermove", moved);
    grip.removeEventListener("pointerup", up);
    grip.removeEventListener("pointercancel", cancel);
    document.removeEventListener("keydown", key, true);
    if (keep && index !== null) placed(index);
  };
  const up = () => over(true);
  const cancel = () => over(false);
  const key = (pressed) => {
    if (pressed.key !== "Escape") return;
    pressed.preventDefault();
    pressed.stopPropagation();
    over(false);
  };
  grip.addEventListener("pointermove", moved);
  grip.addEventListener("pointerup", up);
  grip.addEventListener("pointercancel", cancel);
  document.addEventListener("keydown", key, true);
}
