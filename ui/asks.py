"""What waits for a person in all notebooks, told to one page: the inbox in full, every other page in short."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ui import trouble
from ui.viewer import BEAT, RETRY

if TYPE_CHECKING:
    from engine.feed import AskRow, Feed

PACE = 0.3  # seconds between two lists

log = logging.getLogger(__name__)


class AsksWatcher:
    """Sends the asks that wait to one page: at once, and whenever one comes or goes. One task, while the link is up.

    `send("asked", asks, closed)` calls the page: `asks` with `left`, the seconds until each denies itself; `closed`
    tells how those ended that this page was shown before. With `inbox` the page gets all of an ask, hears a beat every
    second, and counts as a place where `member` can answer.
    """

    def __init__(self, feed: Feed, send: Callable[..., object], *, member: str, inbox: bool = False) -> None:
        self._feed = feed
        self._send = send
        self._member = member
        self._inbox = inbox
        self._task: asyncio.Task[None] | None = None

    @property
    def watching(self) -> bool:
        """Whether a task works for the page."""
        return self._task is not None

    def hello(self) -> None:
        """The page is there (again)."""
        self.park()
        self._task = asyncio.create_task(self._run(), name="asks watcher")

    def park(self) -> None:
        """The page's link is gone."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        leave = self._feed.at_inbox(self._member, operator=True) if self._inbox else None
        try:
            await self._watch()
        finally:
            if leave is not None:
                leave()

    async def _watch(self) -> None:
        seen = 0
        shown: dict[str, bool] | None = None  # ask -> parked
        while self._task is asyncio.current_task():
            try:
                before, seen = seen, await self._feed.asks_changed(seen, 0.0 if shown is None else BEAT)
                if seen != before or shown is None:
                    rows = await self._feed.asks()
                    now = {row.ask.id: row.ask.parked for row in rows}
                    if now != shown:
                        gone = [ask for ask in shown or {} if ask not in now] if self._inbox else []
                        closed = [await self._closed(ask_id) for ask_id in gone]
                        self._send("asked", [self._view(row) for row in rows], closed)
                        shown = now
            except Exception as error:
                trouble.tell(log, "the asks cannot be read, trying again", error)
                self._beat("store-away")
                shown = None
                await asyncio.sleep(RETRY)
                continue
            self._beat("store-away" if self._feed.state == "offline" else "here")
            await asyncio.sleep(PACE)

    def _beat(self, engine: str) -> None:
        if self._inbox:
            self._send("beat", engine)

    async def _closed(self, ask_id: str) -> dict[str, Any]:
        ask = await self._feed.ask(ask_id)
        if ask is None or ask.verdict is None:  # out of time; the word of the engine is still to come
            return {"ask": ask_id, "verdict": "deny", "reason": "timeout"}
        at = None if ask.decided_at is None else ask.decided_at.isoformat()
        told = {name: getattr(ask, name) for name in ("verdict", "reason", "scope", "message", "by")}
        return {"ask": ask_id, "decided_at": at, **told}

    def _view(self, row: AskRow) -> dict[str, Any]:
        ask = row.ask
        whole = ask.body if self._inbox else {"title": ask.body.get("title", "")}
        return {
            **whole,
            "ask": ask.id,
            "notebook_id": ask.notebook_id,
            "notebook": row.title,
            "cell_id": ask.cell_id,
            "parked": ask.parked,
            "left": round(max(0.0, ask.left), 1),
        }
