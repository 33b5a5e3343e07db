// Who is at the end of a box follows what comes; who scrolls up is left there from that moment on.

export const TAIL = 24; // pixels from the end at which the reader still follows it

// Where following leads: to the end, but never past the top of what came last when that is a display, for a picture or a
// table that is higher than the box is looked at from its top.
function end(box) {
  const bottom = box.scrollHeight - box.clientHeight;
  const last = box.firstElementChild?.lastElementChild;
  if (!last?.matches(".out-display")) return bottom;
  const above = last.getBoundingClientRect().top - box.getBoundingClientRect().top - parseFloat(getComputedStyle(box).paddingTop);
  return Math.max(0, Math.min(bottom, box.scrollTop + above));
}

export const atTail = (box) => box.scrollTop > end(box) - TAIL;

// Whether the reader went up since the box stood at `at`: the browser tells of a scroll only with its next frame, and what
// comes in between must not take the reader back.
export const left = (box, at) => box.scrollTop < at - TAIL && !atTail(box);

// Who looks at the lower part of the last display stays there.
export function toTail(box) {
  const at = end(box);
  if (box.scrollTop < at) box.scrollTop = at;
}
