// Tells once when something comes near the reader's eyes. What nobody can see or use yet (tools, colours) waits for it: at
// 300 cells it is most of what opening a page costs.

const MARGIN = "1500px 0px"; // beyond the window, so that what is drawn late is drawn out of sight

const waiting = new WeakMap(); // element -> what to call
const observer = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      const then = waiting.get(target);
      forget(target);
      then?.();
    }
  },
  { rootMargin: MARGIN },
);

export function whenNear(node, then) {
  waiting.set(node, then);
  observer.observe(node);
}

export function forget(node) {
  waiting.delete(node);
  observer.unobserve(node);
}
