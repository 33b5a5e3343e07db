// Draws what the viewer sends, in order, in slices that leave the page free to react, and says what it has drawn.
//
// Messages are numbered within a stream. One that is missing, or that does not follow what is drawn, is never guessed at:
// the page says hello again with the number it has, and goes on from there.

const SLICE = 8; // milliseconds of drawing before the page gets its turn
const SLICE_CELLS = 24; // new cells in one slice: the framework draws them after it

export class Painter {
  // `apply(op)` draws one operation; `settled()` is awaited after each slice; `hello(stream, seq)` and
  // `drawn(stream, n, seq, live)` tell.
  constructor({ apply, settled, hello, drawn }) {
    Object.assign(this, { apply, settled, hello, drawn });
    this.stream = 0;
    this.seq = null; // what the page shows; null before the first whole snapshot and within one
    this.queue = [];
    this.busy = false;
    this.channel = new MessageChannel();
    this.channel.port1.onmessage = () => this.resume?.();
  }

  // A new stream, once the message at hand is drawn.
  restart() {
    this.queue = [{ restart: true }];
    this.#run();
  }

  push(message) {
    if (message.stream !== this.stream || this.queue.some((waiting) => waiting.restart)) return;
    this.queue.push(message);
    this.#run();
  }

  // A heartbeat tells how many messages there were. True when all of them are drawn.
  beat(stream, count) {
    if (stream !== this.stream || this.busy || this.queue.length) return false;
    if (count > this.expected) this.restart();
    return count === this.expected && this.seq !== null;
  }

  async #run() {
    if (this.busy) return;
    this.busy = true;
    while (this.queue.length) {
      const message = this.queue.shift();
      if (message.restart) {
        this.stream = Date.now();
        this.expected = 0;
        this.hello(this.stream, this.seq);
      } else if (message.n >= this.expected) {
        await this.#draw(message);
      }
    }
    this.busy = false;
  }

  async #draw(message) {
    const starts = message.ops[0]?.op === "reset";
    if (message.n !== this.expected || (!starts && message.prev !== this.seq)) {
      this.queue = [{ restart: true }];
      return;
    }
    if (starts) this.seq = null;
    let from = performance.now();
    let cells = 0;
    for (const op of message.ops) {
      try {
        this.apply(op);
      } catch (problem) {
        console.error("drawing failed", op.op, problem); // one bad piece of output must not stop the page
      }
      cells += op.op === "add";
      if (performance.now() - from > SLICE || cells > SLICE_CELLS) {
        await this.settled();
        await this.#turn();
        from = performance.now();
        cells = 0;
      }
    }
    if (message.seq !== null) this.seq = message.seq;
    await this.settled(message.seq !== null);
    this.expected = message.n + 1;
    this.drawn(message.stream, message.n, this.seq, message.live);
  }

  // Lets the page handle what waits for it; unlike a timer or a frame this is prompt in a tab nobody looks at, too.
  #turn() {
    return new Promise((resolve) => {
      this.resume = resolve;
      this.channel.port2.postMessage(null);
    });
  }
}
