"""When a notebook's folder is looked through for what programs changed: at the end of each cell, every minute while one
runs, and once after a wake that may have missed an end. What a turn's call writes, the call itself has kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import trio

from engine.decide import ACTIVE
from engine.files import KEEP_SECONDS, Cause, Files
from engine.frames import Draft
from engine.notebook import Notebook, Run


class Keeper:
    """Keeps the files of one notebook. `running` is the code that runs now; `done` is called when nothing is left."""

    def __init__(self, files: Files, running: Callable[[], Run | None], done: Callable[[], None]) -> None:
        self._files = files
        self._running = running
        self._done = done
        self._ended: Cause | None = None
        self._event = trio.Event()
        self._keeping = False

    @property
    def busy(self) -> bool:
        """Whether something is still to be kept: the engine must not sleep over it."""
        return self._ended is not None or self._keeping

    def after(self, before: Notebook, drafts: Iterable[Draft]) -> None:
        """Told of each step, with the notebook it was made on: the end of a cell's run is a reason to look."""
        for item in drafts:
            if item.kind == "run" and item.fields.get("event") == "ended":
                run = before.runs.get(item.run_id or "")
                if run is not None and run.state in ACTIVE and not run.is_turn and run.parent is None:
                    self.look(cause_of(run))

    def look(self, cause: Cause) -> None:
        """Has the folder looked through, soon."""
        self._ended = cause
        self._event.set()

    async def run(self) -> None:
        """Serves until cancelled."""
        while True:
            with trio.move_on_after(KEEP_SECONDS):
                await self._event.wait()
            cause, self._ended, self._event = self._ended, None, trio.Event()
            self._keeping = True
            try:
                if cause is not None:
                    await self._files.keep(cause, ends=True)
                elif (run := self._running()) is not None:
                    await self._files.keep(cause_of(run), ends=False)
            finally:
                self._keeping = False
            if cause is not None:
                self._done()


def cause_of(run: Run) -> Cause:
    """A run as the cause of the versions that it made."""
    return Cause(by=run.by, cell_id=run.cell_id, run_id=run.id)
