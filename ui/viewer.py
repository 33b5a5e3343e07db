"""The feed's way to one page: attach after what the page has drawn, send what comes, never more than it can take.

A `Viewer` belongs to one NiceGUI client. It does nothing until the page says hello, keeps nothing running while the
page is away, and owns one task at a time. Its messages are numbered within a *stream* (one hello); the page draws them
in order and acknowledges each, and asks again with a new hello when one is missing. What it has drawn the viewer keeps
as a fold (shared, immutable), so that a page that comes back goes on from there, and only from there.

| | first open, reload | link was away |
| --- | --- | --- |
| hello | `seq` null | `seq` it has drawn |
| answer | the snapshot, in pieces | the frames after it |
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from engine.feed import Feed, Reset, Subscription, UnknownNotebook
from engine.frames import Frame
from engine.notebook import Notebook
from engine.store.carets import Caret
from ui import ops, trouble
from ui.drawing import Drawing

WINDOW = 256 * 1024  # bytes a page may have unacknowledged
PIECE = 64 * 1024  # bytes of one message of a snapshot or a backlog
PACE = 0.1  # seconds between two small messages: ten a second
SHARE = 0.002  # more of them for each viewer of the notebook: two hundred pages are told twice a second
AWAY = 60.0  # seconds after which who comes back is told what happened
BEAT = 1.0  # seconds of silence after which a heartbeat shows that the link works
STORE = {"offline": "store-away", "full": "store-full"}  # what a page is told of the database
RETRY = 1.0  # seconds before a feed that failed is asked again

log = logging.getLogger(__name__)


@dataclass
class Window:
    """Messages on their way: how many bytes, and the fold that each leads to."""

    limit: int = WINDOW
    unacknowledged: int = 0
    _sent: deque[tuple[int, int, Notebook | None]] = field(default_factory=deque)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    def sent(self, number: int, size: int, notebook: Notebook | None) -> None:
        """Message `number` of `size` bytes went out; drawn, the page shows `notebook` (null within a snapshot)."""
        self._sent.append((number, size, notebook))
        self.unacknowledged += size

    def drawn(self, number: int) -> Notebook | None:
        """The page drew all up to `number`: the fold it shows now, or null if that did not change."""
        shown = None
        while self._sent and self._sent[0][0] <= number:
            _, size, notebook = self._sent.popleft()
            self.unacknowledged -= size
            shown = notebook or shown
        self._moved.set()
        return shown

    def folds(self) -> list[Notebook]:
        """The folds of messages not acknowledged: a page may have drawn one although its word got lost."""
        return [notebook for _, _, notebook in self._sent if notebook is not None]

    def fits(self, size: int) -> bool:
        """Whether `size` bytes may go now. What alone is over the limit goes alone."""
        return self.unacknowledged == 0 or self.unacknowledged + size <= self.limit

    async def moved(self, timeout: float) -> bool:
        """Waits for an acknowledgement, at most `timeout` seconds."""
        self._moved.clear()
        try:
            async with asyncio.timeout(timeout):  # wait_for may swallow a cancellation that comes with the event
                await self._moved.wait()
        except TimeoutError:
            return False
        return True


class Viewer:
    """One page of one notebook. `send(method, *args)` calls a method of the page's component and never waits."""

    def __init__(
        self,
        feed: Feed,
        notebook_id: str,
        send: Callable[..., object],
        *,
        member: str,
        operator: bool = True,
        drawing: Drawing | None = None,
    ) -> None:
        self.drawing = drawing or Drawing()
        self._feed = feed
        self._id = notebook_id
        self._send = send
        self._member = member
        self._operator = operator
        self._stream: int | None = None
        self._number = 0
        self._window = Window()
        self._drawn: Notebook | None = None  # the fold the page is known to show
        self._told: tuple[str, list[str], list[Caret]] | None = None
        self._place: tuple[str, int | None] | None = None  # the cell where the person types, and where in it
        self._subscription: Subscription | None = None
        self._looking = False
        self._back: asyncio.Task[None] | None = None
        self._last_sent = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def __repr__(self) -> str:
        doing = "closed" if self._closed else "parked" if self._task is None else "streaming"
        return f"<Viewer of {self._id}: {doing}, {self._window.unacknowledged} bytes unacknowledged>"

    @property
    def streaming(self) -> bool:
        """Whether a task works for the page."""
        return self._task is not None

    @property
    def unacknowledged(self) -> int:
        """Bytes on their way to the page."""
        return self._window.unacknowledged

    # what the page says; called on the loop, returning at once

    def hello(self, stream: int, seq: int | None) -> None:
        """The page is there (again) and has drawn up to `seq`: start `stream`, which replaces the one before."""
        if self._closed:
            return
        base = self._fold_at(seq)
        self.park()
        self._stream, self._number, self._window, self._told = stream, 0, Window(), None
        self._drawn = base
        self._task = asyncio.create_task(self._run(base), name=f"viewer of {self._id}")

    def drawn(self, stream: int, number: int) -> None:
        """The page has drawn message `number` of `stream`."""
        if stream == self._stream:
            self._drawn = self._window.drawn(number) or self._drawn
            if self._looking and self._subscription is not None and self._drawn is not None:
                self._subscription.seen = self._drawn.seq

    def look(self, looking: bool, *, back: bool) -> None:
        """Somebody looks at the page, or not any more. `back`: after a while, or for the first time."""
        self._looking = looking
        if back and looking and (self._back is None or self._back.done()):
            self._back = asyncio.create_task(self._welcome(), name=f"absence from {self._id}")
        else:
            self._apply_look()

    def _apply_look(self) -> None:
        if self._subscription is not None:
            if self._drawn is not None and self._looking:
                self._subscription.seen = self._drawn.seq
            self._subscription.look(self._looking)

    async def _welcome(self) -> None:
        """Tells who comes back when they left and what happened since; only then counts them as here again."""
        try:
            left = await self._feed.left(self._id, self._member)
            if left is not None and left.seconds >= AWAY:
                told = await self._feed.absence(self._id, self._member, left.seq)
                self._send("back", {"seq": left.seq, "seconds": int(left.seconds), **asdict(told)})
        except Exception as error:
            trouble.tell(log, f"what happened in notebook {self._id} while {self._member} was away is not read", error)
        self._apply_look()

    def place(self, cell_id: str | None, at: int | None) -> None:
        """The person types in a cell, at a code point of its source; null: the cell as a whole is chosen, or none."""
        self._place = None if cell_id is None else (cell_id, at)
        if self._subscription is not None:
            self._subscription.place(cell_id, at)

    def park(self) -> None:
        """The page's link is gone: stop sending. What the page may have drawn stays known."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def close(self) -> None:
        """The page is gone for good."""
        self.park()
        if self._back is not None:
            self._back.cancel()
        self._closed = True
        self._drawn, self._window = None, Window()

    def _fold_at(self, seq: int | None) -> Notebook | None:
        if seq is None:
            return None
        known = [self._drawn, *self._window.folds()]
        return next((fold for fold in known if fold is not None and fold.seq == seq), None)

    # the one task

    async def _run(self, base: Notebook | None) -> None:
        shown = base
        if self._back is not None and not self._back.done():  # what stands above the cells comes before them
            await asyncio.wait({self._back}, timeout=1.0)
        while self._task is asyncio.current_task():
            try:
                subscription = await self._feed.attach(
                    self._id, after=None if shown is None else shown.seq, member=self._member, operator=self._operator
                )
            except UnknownNotebook:
                self._send("vanished")
                return
            except Exception as error:
                trouble.tell(log, f"attaching to notebook {self._id} failed, trying again", error)
                self._beat(None)
                await asyncio.sleep(RETRY)
                continue
            if self._place is not None:
                subscription.place(*self._place)
            follower = _Follower(self, subscription, shown)
            self._subscription = subscription
            if self._back is None or self._back.done():
                self._apply_look()
            try:
                await follower.follow()
            except Exception as error:
                trouble.tell(log, f"the feed of notebook {self._id} failed, attaching again", error)
            finally:
                subscription.close()
                if self._subscription is subscription:
                    self._subscription = None
            shown = follower.shown
            self._beat(None)
            await asyncio.sleep(RETRY)

    async def push(
        self, view: list[ops.Op], prev: int | None, notebook: Notebook | None, *, live: bool, subscription: Subscription
    ) -> int:
        """Sends one message when the window has room for it; heartbeats go on meanwhile. Returns its bytes."""
        self._still_wanted()
        message = {
            "stream": self._stream,
            "n": self._number,
            "prev": prev,
            "seq": None if notebook is None else notebook.seq,
            "live": live,
            "ops": view,
        }
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        size = len(text.encode("utf-8", "replace"))
        while not self._window.fits(size):
            if not await self._window.moved(BEAT):
                self._beat(subscription)
        self._window.sent(self._number, size, notebook)
        self._number += 1
        self._last_sent = asyncio.get_running_loop().time()
        self._send("push", text)
        return size

    async def room(self, subscription: Subscription) -> int:
        """Waits until half of the window is free; returns the free bytes."""
        self._still_wanted()
        while self._window.unacknowledged > self._window.limit // 2:
            if not await self._window.moved(BEAT):
                self._beat(subscription)
        return self._window.limit - self._window.unacknowledged

    def _still_wanted(self) -> None:
        """Ends a task that was cancelled though something it awaited took the cancellation for itself."""
        if self._task is not asyncio.current_task():
            raise asyncio.CancelledError

    async def pace(self, subscription: Subscription) -> None:
        """Waits until a small message may follow the last one; the more look on, the longer."""
        wait = self._last_sent + max(PACE, SHARE * subscription.crowd) - asyncio.get_running_loop().time()
        if wait > 0:
            await asyncio.sleep(wait)

    def _beat(self, subscription: Subscription | None) -> None:
        """A sign of life: who serves the notebook and who is here. `None`: the feed itself is away."""
        engine = "store-away" if subscription is None else self._serving(subscription)
        people = [] if subscription is None else list(subscription.people)
        carets = [] if subscription is None else list(subscription.carets)
        self._told = (engine, people, carets)
        beat = {"stream": self._stream, "n": self._number, "engine": engine, "people": people}
        others = [{"page": one.page, "member": one.member, "cell": one.cell_id, "at": one.at} for one in carets]
        self._send("beat", beat | {"server": self._feed.web_id, "carets": others})

    def _serving(self, subscription: Subscription) -> str:
        """Who serves the notebook, or what keeps them from it."""
        return STORE.get(self._feed.state, subscription.engine)

    def tell(self, subscription: Subscription, *, idle: bool) -> None:
        """A heartbeat when nothing else was sent, or when what it tells has changed."""
        engine = self._serving(subscription)
        if (
            idle
            or self._told is None
            or self._told
            != (
                engine,
                subscription.people,
                subscription.carets,
            )
        ):
            self._beat(subscription)


class _Follower:
    """One subscription, read to the end: the snapshot if the page has nothing, then frame after frame."""

    def __init__(self, viewer: Viewer, subscription: Subscription, shown: Notebook | None) -> None:
        self._viewer = viewer
        self._subscription = subscription
        self.shown = shown  # the fold that the page shows once it has drawn all that was sent

    async def follow(self) -> None:
        subscription, viewer = self._subscription, self._viewer
        if self.shown is None:
            await self._snapshot()
        behind = True
        while True:
            room = await viewer.room(subscription)
            if not behind:
                await viewer.pace(subscription)
            try:
                frames = await subscription.next(0.0 if behind else BEAT, min(room, 2 * PIECE))
            except Reset:
                await self._snapshot()
                continue
            size = await self._frames(frames) if frames else 0
            viewer.tell(subscription, idle=not frames)
            behind = size >= PIECE

    async def _snapshot(self) -> None:
        self.shown = None
        notebook = await self._subscription.snapshot()
        held: list[ops.Op] | None = None
        for piece in ops.pieces(ops.joined(ops.snapshot(notebook, datetime.now(UTC))), PIECE):
            if held is not None:
                await self._viewer.push(held, None, None, live=False, subscription=self._subscription)
            held = piece
        live = notebook.seq >= self._subscription.head
        await self._viewer.push(held or [], None, notebook, live=live, subscription=self._subscription)
        self.shown = notebook

    async def _frames(self, frames: list[Frame]) -> int:
        """Draws `frames`, in as many messages as their size needs; a message ends where a frame ends."""
        assert self.shown is not None
        notebook, prev, size = self.shown, self.shown.seq, 0
        batch: list[ops.Op] = []
        weight = 0
        for frame in frames:
            if frame.seq <= notebook.seq:
                continue
            if batch and weight + len(frame.text) > 2 * PIECE:
                size += await self._push(batch, prev, notebook)
                prev, batch, weight = notebook.seq, [], 0
            notebook, changes = self._viewer.drawing.after(notebook, frame)
            batch.extend(changes)
            weight += len(frame.text)
        if notebook.seq != prev:
            size += await self._push(batch, prev, notebook)
        return size

    async def _push(self, batch: list[ops.Op], prev: int, notebook: Notebook) -> int:
        view = list(ops.joined(batch))
        live = notebook.seq >= self._subscription.head
        size = await self._viewer.push(view, prev, notebook, live=live, subscription=self._subscription)
        self.shown = notebook
        return size


def page_event(arguments: Any) -> dict[str, Any]:
    """The one object that a component's event carries, or an empty one: what a page sends is not trusted."""
    return arguments if isinstance(arguments, dict) else {}
