// Who is at the end of a box follows what comes; who scrolls up is left there from that moment on.

export const TAIL = 24; // pixels from the end at which the reader still follows it

export const atTail = (box) => box.scrollHeight - box.scrollTop - box.clientHeight < TAIL;

// Whether the reader went up since the box stood at `at`: the browser tells of a scroll only with its next frame, and what
// comes in between must not take the reader back.
export const left = (box, at) => box.scrollTop < at - TAIL && !atTail(box);
