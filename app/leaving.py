"""How the process leaves: what a first signal begins, and what a second one adds.

The first SIGINT or SIGTERM: nothing new is begun, pages are told, and turns get `TURN_SECONDS` to reach a point where
nothing of them has to be done again. Programs in sandboxes go on. A second signal waits for nobody; a second Ctrl-C
ends the sandboxes as well.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import trio

from app.sandboxes import find_sandboxes, shut_down

TURN_SECONDS = 20.0
TOLD_SECONDS = 1.2  # a page hears once a second
AGAIN_SECONDS = 3.0  # on a terminal, where somebody may want to end more than the server


class Leaving:
    """The signals of the process. `install` from the main thread; then `asked` is set by the first one.

    `tell` are called when leaving begins; each returns whether somebody had to be told.
    """

    def __init__(self, data: Path) -> None:
        self.end_sandboxes = False
        self.tell: list[Callable[[], bool]] = []
        self._data = data
        self._first: signal.Signals | None = None
        self._hurry = False
        self._token: trio.lowlevel.TrioToken | None = None
        self._asked = trio.Event()
        self._hurried = trio.Event()

    def install(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._signal)

    def _signal(self, number: int, _: FrameType | None) -> None:
        if self._first is None:
            self._first = signal.Signals(number)
        elif not self._hurry:
            self._hurry = True
            self.end_sandboxes = number == signal.SIGINT
        else:  # a third one ends it as it stands
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        if self._token is None:
            raise KeyboardInterrupt  # still starting: there is nothing to leave in order
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._look)

    def _look(self) -> None:
        self._asked.set()
        if self._hurry:
            self._hurried.set()

    async def serve(self, scope: trio.CancelScope, leave: Callable[[], None], settled: Callable[[], bool]) -> None:
        """Waits for a signal, leaves in order and cancels `scope`. `leave` begins nothing new; `settled` tells that
        stopping now costs no turn anything."""
        self._token = trio.lowlevel.current_trio_token()
        await self._asked.wait()
        leave()
        told = [tell() for tell in self.tell]
        wait = TOLD_SECONDS if any(told) else 0.0
        if (count := len(find_sandboxes(self._data))) or self._first is signal.SIGINT:
            print(f"Leaving. {_going_on(count)}", file=sys.stderr, flush=True)
            if count and self._first is signal.SIGINT and sys.stdin.isatty():
                wait = AGAIN_SECONDS
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cut_short, nursery.cancel_scope)
            await trio.sleep(wait)
            with trio.move_on_after(TURN_SECONDS):
                while not settled():  # noqa: ASYNC110  turns rest in many places, and no event joins them
                    await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
        scope.cancel()

    async def _cut_short(self, scope: trio.CancelScope) -> None:
        await self._hurried.wait()
        scope.cancel()

    def finish(self) -> None:
        """At the very end: ends the sandboxes if that was asked for."""
        if self.end_sandboxes:
            ended = [shut_down(folder) for folder in find_sandboxes(self._data)]
            print(f"Sandboxes ended: {sum(ended)}.", file=sys.stderr, flush=True)


def _going_on(count: int) -> str:
    if not count:
        return "No sandbox is left running."
    what = (
        "One sandbox goes on with what runs in it" if count == 1 else f"{count} sandboxes go on with what runs in them"
    )
    return f"{what}. Ctrl-C again ends that as well; so does `nightbook stop --sandboxes` at any time."
