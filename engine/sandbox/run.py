"""One run as the shim sees it: its records in order, and one ending."""

import os
import time
from collections.abc import Callable
from typing import Any

from engine.sandbox.displays import Displays
from engine.sandbox.loop import Loop, Timer
from engine.sandbox.output import Shaper, Whole

# After a stop: interrupt twice, ask to terminate, kill. "Stopped" is true within 2 s.
STOP_STEPS = ((0.0, "interrupt"), (0.35, "interrupt"), (0.7, "terminate"), (1.5, "kill"))


class Run:
    """Created when the run is accepted. `record` keeps a record; `ended` is told to the owner once, with the outcome.

    Nothing is recorded for a run after its `ended`.
    """

    def __init__(
        self, run: str, kind: str, code: str, *, loop: Loop, record: Callable[[dict[str, Any]], object],
        ended: Callable[["Run", str, str | None, int | None], None], workspace: str, raw: str,
        stdin: bool = True, cell: str | None = None,
    ) -> None:  # fmt: skip
        self.id = run
        self.cell = cell  # where the code stands, for tracebacks
        self.kind = kind
        self.code = code
        self.stdin = stdin  # whether there is anybody to ask for input
        self.stopping = False
        self.over = False
        self.inputs: set[str] = set()
        self._loop = loop
        self._keep = record
        self._tell = ended
        self._shaper = Shaper(self._shaped, Whole(workspace, raw, run))
        self._displays = Displays(self._displayed)
        self._clearing = False  # what is shown next takes the place of all there is
        self._cleared = True  # nothing was recorded since the output was empty
        self._timer: Timer | None = None
        self._steps: list[Timer] = []
        self._began: float | None = None

    def begin(self) -> None:
        """Its code is being started."""
        self._began = time.monotonic()
        self._keep({"t": "started", "run": self.id})

    def output(self, stream: str, data: bytes) -> None:
        if not self.over and data:
            self._clear_first()
            self._shaper.feed(stream, data)
            self._schedule()

    def display(self, **fields: Any) -> None:
        """A MIME bundle; recorded now or, in a flood of them, the newest now and then."""
        if not self.over:
            if not fields.get("update"):
                self._clear_first()
            self._displays.show(fields)
            self._schedule()

    def clear(self, wait: bool) -> None:
        """Empty the output; with `wait` only when something else is shown, so that nothing flickers."""
        if not self.over:
            self._clearing = True
            if not wait:
                self._clear_first()

    def _clear_first(self) -> None:
        if not self._clearing:
            return
        self._clearing = False
        self._shaper.discard()
        self._displays.clear()
        if not self._cleared:
            self._keep({"t": "clear", "run": self.id})
            self._cleared = True

    def record(self, kind: str, **fields: Any) -> None:
        """Anything but output: what was printed before comes first."""
        if not self.over:
            self._shaper.flush()
            self._schedule()
            self._cleared = False
            self._keep({"t": kind, "run": self.id, **fields})

    def end(self, status: str, reason: str | None = None, code: int | None = None) -> None:
        """The one ending. A run that was stopped ends `cancelled`, whatever its program made of it."""
        if self.over:
            return
        whole = self._shaper.finish()
        self._displays.finish()
        self.over = True
        for timer in (self._timer, *self._steps):
            if timer is not None:
                timer.cancel()
        if self.stopping and status != "cancelled":
            status, reason = "cancelled", "stopped"
        ms = round((time.monotonic() - self._began) * 1000) if self._began is not None else 0
        self._tell(self, status, reason, code)
        self._keep(
            {"t": "ended", "run": self.id, "status": status, "reason": reason, "exit": code, "ms": ms, "whole": whole}
        )

    def stop(self, owner: object) -> None:
        """Begin to stop it: call `owner.interrupt()`, `terminate()`, `kill()` in time, until the run has ended."""
        if self.stopping or self.over:
            return
        self.stopping = True
        for seconds, step in STOP_STEPS:
            self._steps.append(self._loop.after(seconds, getattr(owner, step)))

    def calm(self) -> None:
        """Its program has given in: no further steps."""
        for timer in self._steps:
            timer.cancel()

    def _shaped(self, stream: str, text: str, left_out: int) -> None:
        record: dict[str, Any] = {"t": "out", "run": self.id, "stream": stream, "text": text}
        if left_out:
            record["left_out"] = left_out
        self._cleared = False
        self._keep(record)

    def _displayed(self, fields: dict[str, Any]) -> None:
        self.record("data", **fields)

    def _pump(self) -> None:
        self._timer = None
        if not self.over:
            self._shaper.pump()
            self._displays.pump()
            self._schedule()

    def _schedule(self) -> None:
        due = min((at for at in (self._shaper.due, self._displays.due) if at is not None), default=None)
        if self._timer is not None and self._timer.call is not None:
            if due is not None and self._timer.when <= due:
                return  # it comes early enough and looks again
            self._timer.cancel()
        self._timer = self._loop.at(due, self._pump) if due is not None else None


def unfit(code: str) -> str | None:
    """Why this text cannot be run at all, or None."""
    if "\0" in code:
        return f"the code contains a NUL character (at {code.index(chr(0))}), which no program can be given"
    try:
        code.encode()
    except UnicodeEncodeError as problem:
        return f"the code contains a lone surrogate (U+{ord(code[problem.start]):04X} at {problem.start})"
    return None


def memory_file(name: str, content: bytes) -> int:
    """A file without a folder, for text that is too long for an argument."""
    fd = os.memfd_create(name, 0)
    os.set_inheritable(fd, True)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
