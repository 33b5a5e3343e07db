"""A viewer's place in a notebook: a cursor that asks for what comes after it. Lives in the web half's loop."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from engine.frames import Frame
from engine.hot import Hot
from engine.ids import new_id
from engine.notebook import Notebook
from engine.store.carets import Caret

if TYPE_CHECKING:
    from engine.feed import Feed


class Reset(Exception):
    """The cursor cannot be continued (it is from the future): take a snapshot and go on from its seq."""


class Subscription:
    """A viewer's place in a notebook. `seq` is the last frame handed out."""

    def __init__(self, feed: Feed, channel: Hot, seq: int, member: str, operator: bool) -> None:
        self._feed = feed
        self._channel = channel
        self.seq = seq
        self.member = member
        self.operator = operator
        self.reset_wanted = False
        self.seen = 0  # the last frame that a person surely saw, told by the viewer
        self.looking = False  # whether somebody looks now: a tab in front
        self.page = new_id()
        self._until = 0.0  # when the wait is over, on the loop's clock
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def notebook_id(self) -> str:
        """Whose place this is."""
        return self._channel.notebook.id

    @property
    def carets(self) -> list[Caret]:
        """Where the others type."""
        found = self._feed.whereabouts.at(self._channel.notebook.id)
        return [caret for caret in found if caret.page != self.page]

    def place(self, cell_id: str | None, at: int | None) -> None:
        """This viewer types in a cell, at a code point of its source; null: the cell as a whole is chosen, or none."""
        if cell_id is None:
            self._feed.whereabouts.leave(self.page)
        elif self in self._channel.viewers:
            self._feed.whereabouts.place(Caret(self.page, self._channel.notebook.id, self.member, cell_id, at))

    @property
    def head(self) -> int:
        """The newest frame known here."""
        return self._channel.notebook.seq

    @property
    def engine(self) -> str:
        """ "here", "leaving" as this server ends, "away" while no living worker serves the notebook or could."""
        if self._feed.leaving:
            return "leaving"
        return "away" if self._channel.away else "here"

    @property
    def crowd(self) -> int:
        """How many viewers the notebook has here."""
        return len(self._channel.viewers)

    @property
    def people(self) -> list[str]:
        """Members who look at the notebook."""
        return self._channel.people

    async def snapshot(self) -> Notebook:
        """The newest fold; `seq` becomes its seq."""
        notebook = self._channel.notebook
        self.seq = notebook.seq
        self.reset_wanted = False
        return notebook

    async def next(self, timeout: float, limit_bytes: int = 262144) -> list[Frame]:
        """Frames after `seq`, in order; none when nothing came within `timeout` seconds. Raises `Reset`."""
        channel = self._channel
        if self.reset_wanted:
            raise Reset
        if self.seq >= channel.notebook.seq:  # read from the journal, a viewer may be ahead of the buffer
            await self._change(timeout)
        if self.seq >= channel.notebook.seq:
            return []
        if self.seq >= channel.first:
            found = channel.after(self.seq, limit_bytes)
        else:
            found = await self._feed.read(channel.notebook.id, self.seq, limit_bytes)
        if found:
            self.seq = found[-1].seq
        return found

    async def _change(self, timeout: float) -> None:
        """Until something changes, at most `timeout` seconds. A timer is made once for many waits, not for each."""
        loop = asyncio.get_running_loop()
        self._until = loop.time() + timeout
        if self._timer is None or self._timer.when() > self._until:
            self._set_timer(loop)
        self._waiter = waiter = self._channel.wait()
        try:
            await waiter
        finally:
            self._waiter = None
            self._channel.forget(waiter)

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._until, self._time_is_up, loop)

    def _time_is_up(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._until > loop.time():  # it waits anew since
            self._set_timer(loop)
        else:
            self._waiter.set_result(None)

    def look(self, looking: bool) -> None:
        """Somebody looks, or not any more: then it is kept how far they saw."""
        if self.looking and not looking:
            self._feed.visited(self)
        self.looking = looking

    def close(self) -> None:
        """Gives the place back. May be called twice."""
        self.look(False)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._channel.viewers.discard(self)
        self._channel.left_at = time.monotonic()
        self._feed.whereabouts.leave(self.page)
        if self.operator:
            self._feed.presence_changed()
