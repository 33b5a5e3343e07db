"""The list of notebooks, kept up to date while someone looks at it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

from nicegui import ui
from nicegui.client import Client

from engine.feed import Feed, NotebookRow
from ui.components.home import HomeView
from ui.pages.sockets import only_newest
from ui.viewer import BEAT, RETRY, page_event

PACE = 0.5  # seconds between two lists
FEWER = 5  # a list of thousands comes this many times less often

log = logging.getLogger(__name__)


def register(feed: Feed) -> None:
    """Registers `/`."""

    @ui.page("/", title="Nightbook", language="en-US")
    def home_page(client: Client) -> None:
        view = HomeView()
        watcher = HomeWatcher(feed, view.run_method)
        view.on("hello", lambda event: watcher.hello(page_event(event.args)))
        client.on_connect(only_newest)
        client.on_disconnect(lambda: None if client.has_socket_connection else watcher.park())
        client.on_delete(watcher.park)


class HomeWatcher:
    """Sends the list to one page: at once, and whenever it changed. One task, while the page's link is up."""

    def __init__(self, feed: Feed, send: Callable[..., object]) -> None:
        self._feed = feed
        self._send = send
        self._task: asyncio.Task[None] | None = None

    @property
    def watching(self) -> bool:
        """Whether a task works for the page."""
        return self._task is not None

    def hello(self, said: dict[str, Any]) -> None:
        """The page is there (again), and says which list it wants."""
        self.park()
        self._task = asyncio.create_task(self._run(said.get("stream"), bool(said.get("archived"))), name="home watcher")

    def park(self) -> None:
        """The page's link is gone."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self, stream: Any, archived: bool) -> None:
        seen, shown = 0, ""
        while self._task is asyncio.current_task():
            try:
                seen = await self._feed.home_changed(seen, 0.0 if not shown else BEAT)
                rows = [_row(row) for row in await self._feed.notebooks(archived)]
            except Exception:
                log.exception("the list of notebooks cannot be read, trying again")
                self._send("beat", stream, "store-away")
                await asyncio.sleep(RETRY)
                continue
            now = json.dumps([row | {"ago": None} for row in rows], ensure_ascii=False)
            if now != shown:
                self._send("list", stream, rows)
                shown = now
            else:
                self._send("beat", stream, "store-away" if self._feed.state == "offline" else "here")
            await asyncio.sleep(PACE * (FEWER if len(rows) > 200 else 1))


def _row(row: NotebookRow) -> dict[str, Any]:
    """What the page shows of a notebook. Seconds since the change, never a clock time; `changed` only tells changes."""
    return {
        "id": row.id,
        "title": row.title,
        "state": row.state,
        "waiting": row.waiting,
        "archived": row.archived,
        "changed": row.changed_at.isoformat(),
        "ago": max(0, int(row.changed_seconds)),
    }
