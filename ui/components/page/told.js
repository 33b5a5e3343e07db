// Telling a person who looks elsewhere that a question came: a notification of the browser, asked for once, by a click.
// The page itself shows it, so it works as long as one of its tabs is open; each question is told once over all tabs.

const KEY = "nightbook.tell"; // "yes" once a person asked for it in this browser

export function tells() {
  return "Notification" in window && Notification.permission === "granted" && chosen();
}

function chosen() {
  try {
    return localStorage.getItem(KEY) === "yes";
  } catch {
    return false;
  }
}

function choose(yes) {
  try {
    if (yes) localStorage.setItem(KEY, "yes");
    else localStorage.removeItem(KEY);
  } catch {
    // Storage is forbidden: nothing is kept, and nothing told.
  }
}

// "on", "off", "forbidden" (by the browser's own settings) or "unable".
export function state() {
  if (!("Notification" in window)) return "unable";
  if (Notification.permission === "denied") return "forbidden";
  return tells() ? "on" : "off";
}

// Only ever called by a click.
export async function tellMe(yes) {
  if (yes && "Notification" in window && Notification.permission === "default") await Notification.requestPermission();
  choose(yes);
  return state();
}

export class Told {
  // `here`: the notebook that this page shows, or null. Its questions need no telling while it is in view.
  constructor(here = null) {
    this.here = here;
    this.known = null; // asks that were there before, or told already
  }

  heard(asks) {
    const fresh = this.known && asks.filter((ask) => !this.known.has(ask.ask));
    this.known = new Set(asks.map((ask) => ask.ask));
    if (!fresh || !tells() || !away()) return;
    for (const ask of fresh) this.#tell(ask);
  }

  #tell(ask) {
    // The tag makes the browser show one of several tabs' notifications.
    const note = new Notification(`${ask.notebook || "A notebook"} asks you`, { body: ask.title, tag: `nightbook ${ask.ask}` });
    note.onclick = () => {
      window.focus();
      if (this.here !== ask.notebook_id) window.location.href = `/n/${encodeURIComponent(ask.notebook_id)}#ask-${encodeURIComponent(ask.ask)}`;
      note.close();
    };
  }
}

function away() {
  return document.visibilityState === "hidden" || !document.hasFocus();
}
