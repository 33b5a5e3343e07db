"""A feed that a test writes by hand: the interface of `engine.feed.Feed`, frames from a list instead of a journal."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from engine.feed import Left, NotebookRow, Reset, UnknownNotebook
from engine.frames import Frame, draft
from engine.history import Absence, absence
from engine.notebook import Notebook, apply, fold
from engine.store.carets import Caret

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class ScriptedSubscription:
    """A viewer's place; counts itself with the feed until closed."""

    def __init__(self, feed: ScriptedFeed, notebook_id: str, seq: int) -> None:
        self._feed, self._id, self.seq = feed, notebook_id, seq
        self.engine = "here"
        self.people = feed.people
        self.crowd = 1
        self.carets: list[Caret] = []
        self.seen = 0
        feed.subscriptions.add(self)

    @property
    def head(self) -> int:
        return len(self._feed.journals[self._id])

    async def snapshot(self) -> Notebook:
        self.seq = self.head
        return self._feed.notebook(self._id)

    async def next(self, timeout: float, limit_bytes: int = 262144) -> list[Frame]:
        if self.seq > self.head or self._feed.reset:
            self._feed.reset = False
            raise Reset
        if self.seq == self.head:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._feed.changed.wait(), timeout)
        found: list[Frame] = []
        size = 0
        for frame in self._feed.journals[self._id][self.seq :]:
            size += len(frame.text)
            if found and size > limit_bytes:
                break
            found.append(frame)
        self._feed.asked.append(limit_bytes)
        if found:
            self.seq = found[-1].seq
        return found

    def look(self, looking: bool) -> None:
        pass

    def place(self, cell_id: str | None, at: int | None) -> None:
        self._feed.places.append((self._id, cell_id, at))

    def close(self) -> None:
        self._feed.subscriptions.discard(self)


class ScriptedPool:
    """As much of a database as the page of settings reads and writes: the team's choice, and what was used."""

    def __init__(self) -> None:
        self.model: str | None = None

    async def fetch(self, statement: str, *args: Any) -> list[dict[str, Any]]:
        if "FROM usage" in statement:
            return [{"tokens": 12_345, "cost": 0.25}]
        if statement.startswith("SELECT"):
            return [{"value": self.model}] if self.model is not None else []
        self.model = args[0] if args else None
        return []


class ScriptedFeed:
    """Journals in memory. `write` appends a frame and wakes whoever waits."""

    def __init__(self, clock: Callable[[], datetime] = lambda: BEGIN) -> None:
        self.clock = clock
        self.journals: dict[str, list[Frame]] = {}
        self.subscriptions: set[ScriptedSubscription] = set()
        self.changed = asyncio.Event()
        self.state = "live"
        self.reset = False
        self.failing = 0  # how many of the next attaches fail
        self.asked: list[int] = []
        self.inbox: list[str] = []  # who looks at the inbox
        self.places: list[tuple[str, str | None, int | None]] = []  # where people said they type
        self.people: list[str] = []
        self.web_id = "web-1"
        self.away: Left | None = None  # what everybody is told who comes back
        self.pool = ScriptedPool()

    async def left(self, notebook_id: str, member: str) -> Left | None:
        return self.away

    async def absence(self, notebook_id: str, member: str, seq: int) -> Absence:
        return absence(self.journals[notebook_id][seq:], member)

    def write(self, notebook_id: str, kind: str, /, **fields: Any) -> Frame:
        journal = self.journals.setdefault(notebook_id, [])
        at = self.clock() + timedelta(seconds=fields.pop("at_seconds", 0))
        heads = {name: fields.pop(name, None) for name in ("cell_id", "run_id", "by", "command_id")}
        made = draft(kind, **heads, **fields)
        frame = Frame(len(journal) + 1, at, kind, text=made.body, **heads)
        journal.append(frame)
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()
        return frame

    def notebook(self, notebook_id: str) -> Notebook:
        return fold(Notebook(notebook_id), self.journals[notebook_id])

    async def attach(self, notebook_id: str, *, after: int | None, member: str, operator: bool) -> ScriptedSubscription:
        if self.failing:
            self.failing -= 1
            raise ConnectionError("the database is away")
        if notebook_id not in self.journals:
            raise UnknownNotebook(notebook_id)
        return ScriptedSubscription(self, notebook_id, after or 0)

    async def notebooks(self, archived: bool = False) -> list[NotebookRow]:
        rows = []
        for notebook_id in self.journals:
            notebook = self.notebook(notebook_id)
            if notebook.archived == archived:
                state, waiting, cells = notebook.state, notebook.waiting, len(notebook.cells)
                rows.append(NotebookRow(notebook_id, notebook.title, state, waiting, cells, archived, BEGIN, 7.0))
        return rows

    async def present_anywhere(self) -> dict[str, list[str]]:
        return dict.fromkeys(self.journals, self.people) if self.people else {}

    # Asks, as rows and verdicts in the journals.

    async def asks(self) -> list[Any]:
        return [row for row in self.all_asks() if row.ask.verdict is None]

    async def ask(self, ask_id: str) -> Any:
        return next((row.ask for row in self.all_asks() if row.ask.id == ask_id), None)

    def all_asks(self) -> list[Any]:
        rows = []
        for notebook_id in self.journals:
            notebook = self.notebook(notebook_id)
            for cell in notebook.cells.values():
                for item in cell.story.items:
                    if item["t"] == "ask":
                        rows.append(SimpleNamespace(ask=_ask(notebook_id, cell.id, item), title=notebook.title))
        return rows

    async def asks_changed(self, seen: int, timeout: float) -> int:
        return await self.home_changed(seen, timeout)

    def at_inbox(self, member: str, *, operator: bool) -> Callable[[], None]:
        self.inbox.append(member)
        return lambda: self.inbox.remove(member)

    async def home_changed(self, seen: int, timeout: float) -> int:
        version = sum(map(len, self.journals.values()))
        if version == seen:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), timeout)
        return sum(map(len, self.journals.values()))


def _ask(notebook_id: str, cell_id: str, item: dict[str, Any]) -> Any:
    waited = (datetime.now(UTC) - datetime.fromisoformat(item["at"])).total_seconds()
    decided = item.get("decided_at")
    return SimpleNamespace(
        id=item["ask"],
        notebook_id=notebook_id,
        cell_id=cell_id,
        body=item,
        parked=bool(item.get("parked")),
        left=item["seconds"] - waited,
        decided_at=None if decided is None else datetime.fromisoformat(decided),
        **{name: item.get(name) for name in ("verdict", "reason", "scope", "message", "by")},
    )


def frames_of(*scripts: tuple[str, dict[str, Any]]) -> list[Frame]:
    """Frames with numbers from 1, from (kind, fields) pairs."""
    feed = ScriptedFeed()
    return [feed.write("n", kind, **fields) for kind, fields in scripts]


def steps(frames: list[Frame]) -> list[tuple[Notebook, Frame, Notebook]]:
    """Each frame with the fold before and after it."""
    notebook, found = Notebook("n"), []
    for frame in frames:
        newer = apply(notebook, frame)
        found.append((notebook, frame, newer))
        notebook = newer
    return found
