"""The list of notebooks, kept up to date while someone looks at it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from fastapi import Request
from nicegui import ui
from nicegui.client import Client

from engine.feed import Feed, NotebookRow
from ui import trouble
from ui.asks import AsksWatcher
from ui.components.home import HomeView
from ui.pages.sockets import only_newest
from ui.viewer import BEAT, RETRY, page_event

PACE = 0.5  # seconds between two lists
PEOPLE = 5.0  # seconds after which who is where is read again, though no notebook changed
FEWER = 5  # a list of thousands comes this many times less often

log = logging.getLogger(__name__)


def register(feed: Feed) -> None:
    """Registers `/`."""

    @ui.page("/", title="Nightbook", language="en-US")
    def home_page(request: Request, client: Client) -> None:
        member = request.scope.get("nightbook.member", "owner")
        view = HomeView(member)
        watcher = HomeWatcher(feed, view.run_method)
        asks = AsksWatcher(feed, view.run_method, member=member)
        view.on("hello", lambda event: watcher.hello(page_event(event.args)))
        view.on("watch", lambda _: asks.hello())
        client.on_connect(only_newest)
        client.on_disconnect(lambda: None if client.has_socket_connection else watcher.park())
        client.on_disconnect(lambda: None if client.has_socket_connection else asks.park())
        client.on_delete(watcher.park)
        client.on_delete(asks.park)


class HomeWatcher:
    """Sends the list to one page: whole at once, then what changes. One task, while the page's link is up."""

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
        seen, looked = 0, float("-inf")
        known: dict[str, dict[str, Any]] | None = None
        clock = asyncio.get_running_loop().time
        while self._task is asyncio.current_task():
            try:
                version = await self._feed.home_changed(seen, 0.0 if known is None else BEAT)
                if known is not None and version == seen and clock() - looked < PEOPLE:
                    self._send("beat", stream, "store-away" if self._feed.state == "offline" else "here")
                    continue
                rows = await self._rows(archived)
            except Exception as error:
                trouble.tell(log, "the list of notebooks cannot be read, trying again", error)
                self._send("beat", stream, "store-away")
                await asyncio.sleep(RETRY)
                continue
            seen, looked = version, clock()
            if known is None:
                self._send("list", stream, list(rows.values()))
            else:
                changed, gone = differences(known, rows)
                if changed or gone:
                    self._send("changes", stream, changed, gone)
            known = rows
            await asyncio.sleep(PACE * (FEWER if len(rows) > 200 else 1))

    async def _rows(self, archived: bool) -> dict[str, dict[str, Any]]:
        people = await self._feed.present_anywhere()
        return {row.id: _row(row, people.get(row.id, [])) for row in await self._feed.notebooks(archived)}


def differences(
    known: dict[str, dict[str, Any]], rows: dict[str, dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows that are new or changed, and the ids of those that are gone. That time passes is no change."""
    changed = [row for key, row in rows.items() if key not in known or known[key] | {"ago": row["ago"]} != row]
    return changed, [key for key in known if key not in rows]


def _row(row: NotebookRow, people: list[str]) -> dict[str, Any]:
    """What the page shows of a notebook. Seconds since the change, never a clock time; `changed` only tells changes."""
    return {
        "id": row.id,
        "title": row.title,
        "state": row.state,
        "waiting": row.waiting,
        "people": list(people),
        "changed": row.changed_at.isoformat(),
        "ago": max(0, int(row.changed_seconds)),
    }
