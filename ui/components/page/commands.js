// What the person asks for, sent by plain HTTP, one at a time and in order, and asked again under the same id until it is
// answered: nothing here depends on the page's socket. What is not answered survives a reload of the tab.

const PATIENCE = 8000; // milliseconds before a request counts as lost on the way
const PAUSES = [250, 250, 250, 250, 250, 250, 500, 1000, 2000];

// After a link was cut without a word, the browser goes on to use the connections it kept open, six at most, and each
// swallows one request. So the first attempts are given up soon; after them a slow network is the likelier reason.
const POOL = 6;
const HASTE = 1200; // milliseconds
const SLOW = 8; // bytes a millisecond that even a bad network manages

function patience(command, failures) {
  return (failures < POOL ? HASTE : PATIENCE) + JSON.stringify(command).length / SLOW;
}

const LAST_WORDS = 60 * 1024; // bytes that a browser still sends for a page that goes: 64 KiB for all together

export function freshId() {
  if (crypto.randomUUID) return crypto.randomUUID();
  const random = crypto.getRandomValues(new Uint8Array(16)); // not a secure context
  return Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Resolves to the decoded answer; rejects with {detail, status} when the server says no, {detail, status: 0} when lost.
export async function call(path, body, control = new AbortController(), limit = PATIENCE) {
  const timer = setTimeout(() => control.abort(), limit);
  let response;
  try {
    response = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      credentials: "same-origin",
      signal: control.signal,
    });
  } catch {
    throw { status: 0, detail: "The server does not answer." };
  } finally {
    clearTimeout(timer);
  }
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  throw { status: response.status, detail: answer.detail || answer.title || `The server answered ${response.status}.` };
}

export class Commands {
  // `failed(command, detail)`: the server said no. `waiting(count)`: how many are not answered after a first failure.
  constructor(notebook, { failed, waiting }) {
    this.place = `/api/v1/notebooks/${encodeURIComponent(notebook)}`;
    this.path = `${this.place}/commands`;
    this.key = `nightbook.commands.${notebook}`;
    this.failed = failed;
    this.waiting = waiting;
    this.queue = this.#load();
    this.busy = false;
    this.failures = 0;
    this.wake = null;
    addEventListener("online", () => this.kick());
  }

  start() {
    if (this.queue.length) this.#run();
  }

  send(kind, fields = {}) {
    const command = { id: freshId(), kind, ...fields };
    this.queue.push(command);
    this.#save();
    this.#run();
    return command.id;
  }

  has(id) {
    return this.queue.some((command) => command.id === id);
  }

  // The page may be gone in a moment: what waits goes out now, beside the queue. The queue stays as it is, here and in the
  // tab's storage: the same id is the same command.
  hurry() {
    let room = LAST_WORDS;
    for (const command of this.queue) {
      const body = new Blob([JSON.stringify(command)], { type: "application/json" });
      if ((room -= body.size) < 0) return;
      fetch(this.path, { method: "POST", body, keepalive: true, credentials: "same-origin" }).catch(() => {});
    }
  }

  // The link is back: do not sit out the pause, nor a request that went down with the link.
  kick() {
    this.failures = 0;
    this.wake?.();
    if (this.control && performance.now() - this.askedAt > 1000) this.control.abort();
  }

  async #run() {
    if (this.busy) return;
    this.busy = true;
    while (this.queue.length) {
      const command = this.queue[0];
      try {
        this.control = new AbortController();
        this.askedAt = performance.now();
        await call(this.path, command, this.control, patience(command, this.failures));
        this.failures = 0;
      } catch (problem) {
        if (problem.status === 0 || problem.status >= 500 || problem.status === 429) {
          await this.#pause();
          continue;
        }
        this.failures = 0;
        this.failed(command, problem.detail);
      }
      this.queue.shift();
      this.#save();
      this.waiting(this.failures ? this.queue.length : 0);
    }
    this.busy = false;
  }

  #pause() {
    const wait = PAUSES[Math.min(this.failures, PAUSES.length - 1)];
    this.failures += 1;
    this.waiting(this.queue.length);
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, wait);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  // A typed line may be a password: it is never written anywhere.
  #save() {
    const kept = this.queue.filter((command) => command.kind !== "input");
    remember(this.key, kept.length ? kept : null);
  }

  #load() {
    const kept = recall(this.key);
    return Array.isArray(kept) ? kept : [];
  }
}

// The tab's own storage; it may be full or forbidden, and then there is none.
export function remember(key, value) {
  try {
    if (value === null) sessionStorage.removeItem(key);
    else sessionStorage.setItem(key, JSON.stringify(value));
  } catch {
    // Nothing to be done: the value lives in the page only.
  }
}

export function recall(key) {
  try {
    return JSON.parse(sessionStorage.getItem(key));
  } catch {
    return null;
  }
}
