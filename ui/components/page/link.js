// The page's link to the server: says hello, hears heartbeats, notices a link that is cut without a word, and gets a new
// one as soon as there is one to be had.
//
// NiceGUI's socket finds a dead link by its ping only after half a minute, and reloads the page when a connection takes
// too long or a message was lost. Here the viewer's protocol makes up for lost messages, so neither is needed.

import { adopt } from "./adopt.js";

const SILENCE = 3000; // milliseconds without any message: the server beats every second
const FIRST_PATIENCE = 600; // for a connection attempt, at least; a slow network has shown that it needs more
const LAST_PATIENCE = 10000;
const OPENING = 5000; // for the connection that NiceGUI began itself
const REFUSED = 250; // pause after a refusal, at first
const REFUSED_LONG = 700;
const STRANGER = "Implicit handshake failed"; // in nicegui/nicegui.py: the server does not know this page

export class Link {
  // `connected()` is called on each new connection, `changed(up)` when the link goes down or up; `elements()` are those
  // of the framework's page. After a `silence` (ms) the link counts as cut: infinite for a page that is told nothing.
  constructor({ connected, changed = () => {}, elements, silence = SILENCE }) {
    Object.assign(this, { connected, changed, elements, silence });
    this.up = false;
    this.heardAt = this.triedAt = performance.now();
    this.nextTry = this.triedAt + OPENING;
    this.needs = 0; // what the slowest of the good connections took
    this.failures = 0;
  }

  start() {
    this.socket = window.socket;
    const manager = this.socket.io;
    manager.timeout(false); // else NiceGUI reloads the page, into nothing if the server is away
    manager.reconnection(false); // attempts are made here, with patience that fits the network
    this.onConnect = () => {
      this.needs = Math.max(this.needs, performance.now() - this.triedAt);
      this.failures = 0;
      this.heard();
      this.#set(true);
      this.connected();
    };
    this.onDisconnect = () => {
      this.nextTry = performance.now();
      this.#set(false);
    };
    this.onRefused = (error) => {
      if (error.message === STRANGER) this.#adopt();
      const pause = Math.min(REFUSED_LONG, REFUSED * this.#growth());
      this.nextTry = Math.min(this.nextTry, performance.now() + pause);
    };
    this.onOnline = () => {
      this.failures = 0;
      if (!this.up) this.#connect();
    };
    this.socket.on("connect", this.onConnect);
    this.socket.on("disconnect", this.onDisconnect);
    this.socket.off("connect_error"); // NiceGUI would reload the page, into nothing if the server has gone again
    this.socket.on("connect_error", this.onRefused);
    addEventListener("online", this.onOnline);
    this.timer = setInterval(() => this.#watch(), 200);
    if (this.socket.connected) this.onConnect();
  }

  stop() {
    clearInterval(this.timer);
    removeEventListener("online", this.onOnline);
    this.socket?.off("connect", this.onConnect);
    this.socket?.off("disconnect", this.onDisconnect);
    this.socket?.off("connect_error", this.onRefused);
  }

  heard() {
    this.heardAt = performance.now();
  }

  #growth() {
    return 1.15 ** Math.max(0, this.failures - 8);
  }

  #set(up) {
    if (this.up === up) return;
    this.up = up;
    this.changed(up);
  }

  #watch() {
    const now = performance.now();
    if (this.up ? now - this.heardAt > this.silence : now > this.nextTry) this.#connect();
  }

  async #adopt() {
    if (this.adopting) return;
    this.adopting = true;
    try {
      await adopt(this.socket.io.opts.query, this.elements());
      this.failures = 0;
      this.nextTry = performance.now();
    } catch (problem) {
      console.info("the page is not taken over yet", problem);
    }
    this.adopting = false;
  }

  #connect() {
    if (this.adopting) return; // as who it was, it would be refused again
    this.#set(false);
    this.failures += 1;
    // Without this number the server does not look for lost messages in its history, which is empty, and does not reload.
    delete this.socket.io.opts.query.next_message_id;
    this.socket.disconnect().connect();
    const patience = Math.max(FIRST_PATIENCE, 3 * this.needs) * this.#growth();
    this.triedAt = performance.now();
    this.nextTry = this.triedAt + Math.min(LAST_PATIENCE, patience);
  }
}
