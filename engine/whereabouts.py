"""Where people type: what the pages of this web process say goes into rows, what others say comes out of them.

A few times a second at most. A page says its place again every five seconds; one that has not for ten is forgotten, so
that nobody stays in a cell who lost their network or closed the lid. A row holds for 15 s. Lives in the feed's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from engine.store import carets
from engine.store.carets import Caret
from engine.store.steps import UNREACHABLE

if TYPE_CHECKING:
    from engine.store.pools import Db

log = logging.getLogger(__name__)

PACE_SECONDS = 0.3
AGAIN_SECONDS = 5.0
SILENT_SECONDS = 10.0


class Whereabouts:
    """`watched()` gives the notebooks that are of interest; `moved(notebook_id)` is called when people moved there."""

    def __init__(self, web: str, watched: Callable[[], Iterable[str]], moved: Callable[[str], None]) -> None:
        self._web = web
        self._watched = watched
        self._moved = moved
        self._own: dict[str, Caret] = {}
        self._heard: dict[str, float] = {}  # page -> when it said so last
        self._unsaid: set[str] = set()
        self._gone: set[str] = set()
        self._stale: set[str] = set()
        self._known: dict[str, list[Caret]] = {}
        self._wake = asyncio.Event()

    def at(self, notebook_id: str) -> list[Caret]:
        """Where people are in a notebook, on all pages of all web processes."""
        return self._known.get(notebook_id, [])

    def place(self, caret: Caret) -> None:
        """A page of this process is there now, or still."""
        self._heard[caret.page] = time.monotonic()
        if self._own.get(caret.page) != caret:
            self._own[caret.page] = caret
            self._unsaid.add(caret.page)
            self._gone.discard(caret.page)
            self._wake.set()

    def leave(self, page: str) -> None:
        """The page is gone, or nowhere in the text."""
        self._heard.pop(page, None)
        if self._own.pop(page, None) is not None:
            self._unsaid.discard(page)
            self._gone.add(page)
            self._wake.set()

    def hint(self, notebook_id: str) -> None:
        """Somebody moved in a notebook."""
        if notebook_id in self._watched():
            self._stale.add(notebook_id)
            self._wake.set()

    async def run(self, pool: Db) -> None:
        """Writes and reads, for ever."""
        again = asyncio.get_running_loop().time()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            now = asyncio.get_running_loop().time()
            if now - again >= AGAIN_SECONDS:
                again = now
                silent = time.monotonic() - SILENT_SECONDS
                for page in [page for page, at in self._heard.items() if at < silent]:
                    self.leave(page)
                self._unsaid |= set(self._own)
                self._stale |= set(self._known) & set(self._watched())
            try:
                await self._turn(pool)
            except UNREACHABLE as error:
                log.warning("database away: %s", error)
            await asyncio.sleep(PACE_SECONDS)

    async def _turn(self, pool: Db) -> None:
        gone, self._gone = self._gone, set()
        unsaid, self._unsaid = self._unsaid, set()
        stale, self._stale = self._stale, set()
        if gone:
            await carets.hide(pool, list(gone))
        if unsaid:
            await carets.show(pool, self._web, [self._own[page] for page in unsaid if page in self._own])
        if not stale:
            return
        for notebook_id, found in (await carets.shown(pool, list(stale))).items():
            if self._known.get(notebook_id, []) != found:
                self._known[notebook_id] = found
                self._moved(notebook_id)
        for notebook_id in set(self._known) - set(self._watched()):
            del self._known[notebook_id]
