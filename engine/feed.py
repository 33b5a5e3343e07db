"""The feed: frames to viewers. A bounded hot buffer per watched notebook, the journal behind it.

A viewer is a cursor, never a queue: it asks for what comes after the last frame it has. So nobody waits for a slow
one, and one that falls behind the buffer reads the journal. Lives in the web half's loop; knows hints, rows and the
fold, but no page and no request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import asyncpg

from engine import names
from engine.frames import Frame
from engine.history import Absence, absence
from engine.hot import Hot
from engine.ids import new_id
from engine.store import asking, asks, questions, reading, visits
from engine.store.asks import INBOX, Ask, AskRow
from engine.store.listen import listen
from engine.store.pools import open_pool
from engine.store.reading import NotebookRow, UnknownNotebook
from engine.store.steps import UNREACHABLE
from engine.store.visits import Left
from engine.subscription import Reset, Subscription
from engine.whereabouts import Whereabouts

__all__ = [
    "UNREACHABLE", "AskRow", "Feed", "FeedConfig", "Left", "NotebookRow", "Reset", "Subscription", "UnknownNotebook",
]  # fmt: skip

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 10.0  # then who asked is told that the database does not answer
PRESENCE_SECONDS = 5.0
QUESTION_SECONDS = 1.5  # for an answer of the kernel; then what is known without it
PRESENCE_PAUSE_SECONDS = 0.1  # many who come at once are told of together
FULL_SECONDS = 5.0  # so long it holds that a worker found the disk full; workers try every 2 s
VISIT_SECONDS = 20.0  # between two notes of where those are who look on


@dataclass(frozen=True, slots=True)
class FeedConfig:
    """Bounds of the hot buffers, in frames and bytes, and how long one stays after its last viewer left, in seconds."""

    frames: int = 5000
    bytes: int = 16 * 1024 * 1024
    total_bytes: int = 256 * 1024 * 1024
    replay_seconds: float = 300.0
    poll_seconds: float = 5.0


class Feed:
    """All that the web half reads. `start` in its loop, `stop` at the end."""

    def __init__(self, dsn: str, config: FeedConfig | None = None) -> None:
        self._dsn = dsn
        self._config = config or FeedConfig()
        self._channels: dict[str, Hot] = {}
        self._opening: dict[str, asyncio.Task[Hot]] = {}
        self._dirty: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._visits: dict[tuple[str, str], int] = {}  # (notebook, member) -> seen; to be kept
        self._visits_at = time.monotonic()
        self._home_version = 1
        self._home_changed = asyncio.Event()
        self._asks_version = 1
        self._asks_changed = asyncio.Event()
        self._asks_open = 0
        self._at_inbox: dict[object, tuple[str, bool]] = {}
        self._presence_changed = asyncio.Event()
        self.web_id = f"web-{new_id()}"
        self.whereabouts = Whereabouts(self.web_id, lambda: self._channels, self._stir)
        self._asked: dict[int, asyncio.Future[None]] = {}
        self.pool: asyncpg.Pool[Any]
        self._cut_off = False
        self._full_until = float("-inf")
        self.leaving = False

    @property
    def state(self) -> str:
        """ "offline" while the database is away, "full" while it has no room for what engines write, else "live"."""
        if self._cut_off:
            return "offline"
        return "full" if time.monotonic() < self._full_until else "live"

    def leave(self) -> bool:
        """The server is about to end, and says so to who looks; from any thread. Returns whether anybody does."""
        self.leaving = True
        return any(channel.viewers for channel in list(self._channels.values()))

    async def start(self) -> None:
        """Connects and begins to listen. Raises asyncpg's errors or OSError when the database cannot be reached."""
        self.pool = await open_pool(self._dsn, "nightbook web", 8, PATIENCE_SECONDS)
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(
                listen(
                    self._dsn,
                    {
                        "nightbook_frames": self._hint,
                        "nightbook_asks": lambda _: self._asks_moved(),
                        "nightbook_carets": self.whereabouts.hint,
                        "nightbook_answers": self._answered,
                        "nightbook_full": lambda _: self._full(),
                    },
                    connected=self._connected,
                    away=self._cut,
                )
            ),
            loop.create_task(self._pull()),
            loop.create_task(self._tend()),
            loop.create_task(self._show_presence()),
            loop.create_task(self.whereabouts.run(self.pool)),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(*UNREACHABLE):
            async with asyncio.timeout(2):
                await asking.show_presence(self.pool, self.web_id, [])
                self._visits_at = float("-inf")
                await self._keep_visits()
        self.pool.terminate()

    def statistics(self) -> dict[str, int]:
        """Watched notebooks, viewers, frames and bytes in the hot buffers."""
        channels = self._channels.values()
        return {
            "notebooks": len(self._channels),
            "viewers": sum(len(channel.viewers) for channel in channels),
            "frames": sum(len(channel.frames) for channel in channels),
            "bytes": sum(channel.bytes for channel in channels),
        }

    # Viewers

    async def attach(self, notebook_id: str, *, after: int | None, member: str, operator: bool) -> Subscription:
        """A viewer that has everything up to `after` (null: it will take a snapshot). Raises `UnknownNotebook`.

        A cursor beyond the head makes the first `next` raise `Reset`.
        """
        channel = self._channels.get(notebook_id)
        if channel is None:
            if notebook_id not in self._opening:
                self._opening[notebook_id] = asyncio.create_task(self._open(notebook_id))
            channel = await asyncio.shield(self._opening[notebook_id])
        subscription = Subscription(self, channel, 0 if after is None else after, member, operator)
        if after is not None and after > channel.notebook.seq:
            # A hint may be on its way: ask the journal before calling the cursor one from the future.
            head = await reading.head(self.pool, notebook_id)
            subscription.reset_wanted = after > head
            self._notice(notebook_id, head)
        channel.viewers.add(subscription)
        if operator:
            self.presence_changed()
        self.whereabouts.hint(notebook_id)
        return subscription

    async def _open(self, notebook_id: str) -> Hot:
        try:
            # Registered only when loaded: hints that came meanwhile are made good by reading the head again.
            channel = Hot(await reading.load_notebook(self.pool, notebook_id))
            self._channels[notebook_id] = channel
            head = await reading.head(self.pool, notebook_id)
            if head > channel.notebook.seq:
                self._notice(notebook_id, head)
            with contextlib.suppress(*UNREACHABLE):
                await self._look_after([notebook_id])
            return channel
        finally:
            self._opening.pop(notebook_id, None)

    async def read(self, notebook_id: str, after: int, limit_bytes: int) -> list[Frame]:
        """Frames from the journal, at most about `limit_bytes`, at least one when there is one."""
        return await reading.frames(self.pool, notebook_id, after, size=limit_bytes)

    async def expect_cell(self, notebook_id: str, cell_id: str) -> None:
        """Raises `UnknownNotebook` or `asking.UnknownCell`; asks the database only about cells not seen here."""
        channel = self._channels.get(notebook_id)
        if channel is None or cell_id not in channel.notebook.cells:
            await asking.expect_cell(self.pool, notebook_id, cell_id)

    # Who was where

    def visited(self, viewer: Subscription) -> None:
        """Notes how far a viewer saw; kept with the next beat."""
        if viewer.seen:
            key = (viewer.notebook_id, viewer.member)
            self._visits[key] = max(self._visits.get(key, 0), viewer.seen)

    async def left(self, notebook_id: str, member: str) -> Left | None:
        """Where `member` was last in the notebook."""
        return await visits.left(self.pool, notebook_id, member)

    async def absence(self, notebook_id: str, member: str, seq: int) -> Absence:
        """What happened after `seq`, for who comes back."""
        return absence(await visits.since(self.pool, notebook_id, seq), member)

    async def _keep_visits(self) -> None:
        now = time.monotonic()
        if now - self._visits_at >= VISIT_SECONDS:
            self._visits_at = now
            for channel in self._channels.values():
                for viewer in channel.viewers:
                    if viewer.looking:
                        self.visited(viewer)
        kept, self._visits = self._visits, {}
        if kept:
            try:
                await visits.keep(self.pool, [(*key, seen) for key, seen in kept.items()])
            except UNREACHABLE:
                self._visits = {**kept, **self._visits}
                raise

    def _stir(self, notebook_id: str) -> None:
        """Something besides frames has changed: viewers look, without waiting for their time."""
        channel = self._channels.get(notebook_id)
        if channel is not None:
            channel.push([])

    # What is known of a name

    async def inquire(self, notebook_id: str, kind: str, source: str, at: int) -> dict[str, Any]:
        """Completions (`kind` complete) or docs (inspect) at code point `at` of a Python source, within 1.5 s.

        `known_by` says who answered: the kernel, or the notebook's own words while the kernel is `busy` or `asleep`
        (`why`). No sandbox is started for this. Raises `UnknownNotebook`.
        """
        subscription = await self.attach(notebook_id, after=None, member="", operator=False)
        try:
            notebook = await subscription.snapshot()
        finally:
            subscription.close()
        asleep = notebook.sandbox.state != "awake" or notebook.sandbox.kernel != "ready"
        busy = any(run.state != "queued" and not run.is_turn for run in notebook.runs.values())
        if not asleep and not busy:
            answer = await self._ask_kernel(notebook_id, kind, source, at)
            if answer:
                return answer | {"known_by": "kernel", "why": None}
            busy = True
        static = names.completions(notebook, source, at) if kind == "complete" else {"text": ""}
        return static | {"known_by": "notebook", "why": "busy" if busy else "asleep"}

    async def _ask_kernel(self, notebook_id: str, kind: str, source: str, at: int) -> dict[str, Any]:
        """The answer; empty when there was none in time."""
        question_id = await questions.ask(self.pool, notebook_id, kind, source, at)
        answered = self._asked[question_id] = asyncio.get_running_loop().create_future()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(QUESTION_SECONDS):
                    await answered
        finally:
            del self._asked[question_id]
        return await questions.take_answer(self.pool, question_id)

    def _answered(self, question_id: str) -> None:
        answered = self._asked.get(int(question_id))
        if answered is not None and not answered.done():
            answered.set_result(None)

    # The list of notebooks

    async def notebooks(self, archived: bool = False) -> list[NotebookRow]:
        """All notebooks, last changed first."""
        return await reading.notebooks(self.pool, archived)

    async def present_anywhere(self) -> dict[str, list[str]]:
        """Who is where, in all notebooks that anybody looks at."""
        return await asking.present_anywhere(self.pool)

    async def home_changed(self, seen: int, timeout: float) -> int:
        """Waits up to `timeout` seconds until some notebook changed after version `seen`; returns the version now."""
        if seen >= self._home_version:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._home_changed.wait()
        return self._home_version

    # The asks of all notebooks

    async def asks(self) -> list[AskRow]:
        """What people can still answer, in all notebooks; the most urgent first."""
        return await asks.all_open(self.pool)

    async def ask(self, ask_id: str) -> Ask | None:
        """One of them, also when it is decided."""
        return await asks.find(self.pool, ask_id)

    async def asks_count(self) -> int:
        """How many asks people can still answer."""
        return await asks.count_open(self.pool)

    async def asks_changed(self, seen: int, timeout: float) -> int:
        """Waits up to `timeout` seconds until some ask came, was parked, decided or ran out after version `seen`.

        Returns the version now; 0 is before all.
        """
        if seen >= self._asks_version:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._asks_changed.wait()
        return self._asks_version

    def at_inbox(self, member: str, *, operator: bool) -> Callable[[], None]:
        """Says that a member is shown what all notebooks ask, until the function given back is called."""
        place = object()
        self._at_inbox[place] = (member, operator)
        self.presence_changed()

        def leave() -> None:
            if self._at_inbox.pop(place, None) is not None:
                self.presence_changed()

        return leave

    def _asks_moved(self) -> None:
        self._asks_version += 1
        changed, self._asks_changed = self._asks_changed, asyncio.Event()
        changed.set()

    # Hints and reading

    def _hint(self, payload: str) -> None:
        self._home_moved()
        if payload == "*":
            self._look_everywhere()
            return
        for part in payload.split(" "):
            notebook_id, _, head = part.partition(":")
            if notebook_id in self._channels:
                self._notice(notebook_id, int(head))

    def _home_moved(self) -> None:
        self._home_version += 1
        changed, self._home_changed = self._home_changed, asyncio.Event()
        changed.set()

    def _notice(self, notebook_id: str, head: int) -> None:
        channel = self._channels.get(notebook_id)
        if channel is not None and head > channel.wanted:
            channel.wanted = head
        if channel is not None and channel.wanted > channel.notebook.seq:
            self._dirty[notebook_id] = channel.wanted
            self._wake.set()

    def _look_everywhere(self) -> None:
        for notebook_id, channel in self._channels.items():
            self._dirty[notebook_id] = channel.wanted
        self._wake.set()

    def _connected(self) -> None:
        self._cut_off = False
        self._look_everywhere()
        self._home_moved()
        self._asks_moved()

    def _cut(self) -> None:
        self._cut_off = True

    def _full(self) -> None:
        self._full_until = time.monotonic() + FULL_SECONDS

    async def _pull(self) -> None:
        """Reads what was hinted at, for many notebooks at once, and wakes their viewers."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            dirty, self._dirty = self._dirty, {}
            wanted = [(key, self._channels[key].notebook.seq) for key in dirty if key in self._channels]
            if not wanted:
                continue
            try:
                found = await reading.frames_of_many(self.pool, wanted)
            except UNREACHABLE as error:
                log.warning("database away: %s", error)
                self._dirty = {**dirty, **self._dirty}
                await asyncio.sleep(0.5)
                self._wake.set()
                continue
            for notebook_id, frames in found.items():
                channel = self._channels.get(notebook_id)
                if channel is None:
                    continue
                channel.push(frames)
                channel.trim(self._config.frames, self._config.bytes)
                if channel.notebook.seq < channel.wanted:  # there is more than one read gave
                    self._dirty[notebook_id] = channel.wanted
                    self._wake.set()

    # Upkeep

    async def _tend(self) -> None:
        """Every few seconds: stand behind lost hints, let go of what nobody watches, notice asks that ran out."""
        while True:
            await asyncio.sleep(min(PRESENCE_SECONDS, self._config.poll_seconds))
            try:
                self._let_go()
                if self._channels:
                    await self._look_after(list(self._channels))
                if (count := await asks.count_open(self.pool)) != self._asks_open:
                    self._asks_open = count
                    self._asks_moved()
            except UNREACHABLE as error:
                log.warning("database away: %s", error)

    async def _show_presence(self) -> None:
        """Who looks at what, told every few seconds, and at once when somebody comes or goes."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PRESENCE_SECONDS):
                    await self._presence_changed.wait()
            self._presence_changed.clear()
            try:
                await asking.show_presence(self.pool, self.web_id, self._presence())
                await self._keep_visits()
            except UNREACHABLE as error:
                log.warning("database away: %s", error)
            await asyncio.sleep(PRESENCE_PAUSE_SECONDS)

    def presence_changed(self) -> None:
        """Somebody who may decide came or went."""
        self._presence_changed.set()

    async def _look_after(self, ids: list[str]) -> None:
        for notebook_id, head in (await reading.heads(self.pool, ids)).items():
            self._notice(notebook_id, head)
        away = await reading.engines_away(self.pool, ids)
        people = await asking.present(self.pool, ids)
        for notebook_id in ids:
            if (channel := self._channels.get(notebook_id)) is not None:
                channel.away = notebook_id in away
                channel.people = [member for member, _ in people.get(notebook_id, [])]

    def _presence(self) -> list[tuple[str, str, bool]]:
        rows: dict[tuple[str, str], bool] = {}
        for notebook_id, channel in self._channels.items():
            for viewer in channel.viewers:
                key = (notebook_id, viewer.member)
                rows[key] = rows.get(key, False) or viewer.operator
        for member, can_decide in self._at_inbox.values():
            rows[INBOX, member] = rows.get((INBOX, member), False) or can_decide
        return [(place, member, can_decide) for (place, member), can_decide in rows.items()]

    def _let_go(self) -> None:
        """Drops notebooks without viewers after a while, sooner when the buffers together are too large."""
        now = time.monotonic()
        unwatched = sorted(
            (key for key, channel in self._channels.items() if not channel.viewers),
            key=lambda key: self._channels[key].left_at,
        )
        total = sum(channel.bytes for channel in self._channels.values())
        for key in unwatched:
            channel = self._channels[key]
            # A run that is not over, or just ended, is what people come back for: it stays hot for longer.
            idle = now - channel.left_at
            allowed = self._config.replay_seconds if channel.recent else min(30.0, self._config.replay_seconds)
            if total > self._config.total_bytes or (idle > allowed and not channel.notebook.runs):
                total -= channel.bytes
                del self._channels[key]
        for channel in sorted(self._channels.values(), key=lambda item: -item.bytes):
            if total <= self._config.total_bytes:
                break
            total -= channel.bytes
            channel.trim(self._config.frames, channel.bytes // 2)
            total += channel.bytes
