"""The newest frames of one watched notebook, and who waits for more: what the feed holds between journal and viewers.

One timer a notebook, none a frame: however many viewers wait, what comes costs a lookup each, and they are woken in
rounds, group by group, at a pace that leaves the process time for others. Runs in the web half's loop.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from engine.frames import Frame
from engine.notebook import Notebook, apply
from engine.store import reading

if TYPE_CHECKING:
    from engine.subscription import Subscription

PACE_SECONDS = 0.0002  # for each viewer of a notebook, between two times that all are woken: a thousand, five a second
GROUP = 25  # of them are woken in one go, so that what else wants the processor need not wait for all


class Hot:
    """`first` is the seq before the oldest frame kept, `wanted` the newest one that was heard of."""

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook
        self.first = notebook.seq
        self.frames: list[Frame] = []
        self.bytes = 0
        self.wanted = notebook.seq
        self.viewers: set[Subscription] = set()
        self.left_at = time.monotonic()
        self.away = False
        self.people: list[str] = []
        self.recent = bool(notebook.runs)  # something ran while it was watched
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[None]] = set()
        self._round: list[asyncio.Future[None]] = []  # who is still to be woken in this one
        self._due = float("-inf")  # when the next round may begin
        self._stirred = False  # whether there is something to wake for since this one began
        self._waking: asyncio.TimerHandle | None = None

    def push(self, frames: list[Frame]) -> None:
        """Takes what follows; what it has already is left out. With nothing new, viewers are woken all the same."""
        for frame in frames:
            if frame.seq != self.notebook.seq + 1:
                continue
            self.frames.append(frame)
            self.bytes += len(frame.text) + reading.FRAME_BYTES
            self.notebook = apply(self.notebook, frame)
            self.recent = self.recent or frame.kind == "run"
        self._stirred = True
        if self._waking is None and self._due <= self._loop.time():
            self._wake()
        elif self._waking is None:
            self._waking = self._loop.call_at(self._due, self._wake)

    def trim(self, frames: int, size: int) -> None:
        """Lets go of the oldest, until so many frames and bytes are left."""
        gone = 0
        while gone < len(self.frames) and (len(self.frames) - gone > frames or self.bytes > size):
            self.bytes -= len(self.frames[gone].text) + reading.FRAME_BYTES
            self.first = self.frames[gone].seq
            gone += 1
        del self.frames[:gone]

    def after(self, seq: int, limit_bytes: int) -> list[Frame]:
        """Frames after `seq` (which must not be before `first`), up to about `limit_bytes`, at least one."""
        found: list[Frame] = []
        size = 0
        for at in range(seq - self.first, len(self.frames)):
            frame = self.frames[at]
            size += len(frame.text) + reading.FRAME_BYTES
            if found and size > limit_bytes:
                break
            found.append(frame)
        return found

    def wait(self) -> asyncio.Future[None]:
        """What is done when something changes. Whoever waits no longer gives it to `forget`."""
        waiter = self._loop.create_future()
        self._waiting.add(waiter)
        return waiter

    def forget(self, waiter: asyncio.Future[None]) -> None:
        """Nobody waits for this any more."""
        self._waiting.discard(waiter)

    def _wake(self) -> None:
        now = self._loop.time()
        if not self._round:
            self._stirred, self._due = False, now + PACE_SECONDS * len(self.viewers)
            self._round, self._waiting = list(self._waiting), set()
        group, self._round = self._round[:GROUP], self._round[GROUP:]
        for waiter in group:
            if not waiter.done():
                waiter.set_result(None)
        self._waking = None
        if self._round:
            self._waking = self._loop.call_at(now + PACE_SECONDS * GROUP, self._wake)
        elif self._stirred:
            self._waking = self._loop.call_at(self._due, self._wake)
