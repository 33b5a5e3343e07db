"""The stream of one reader of a notebook, as server-sent events.

Nothing is queued for a reader: what it is sent next is looked for when its connection has taken what came before. Many
readers are mostly sent the same, so that is put together once.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import NamedTuple

from engine.feed import Reset, Subscription
from engine.frames import Frame
from engine.snapshot import view
from engine.store.steps import UNREACHABLE

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 4.0
AGAIN_SECONDS = 1.0  # before a database that is away is asked again
STREAM_BYTES = 256 * 1024  # frames joined in one write; a reader that stalls holds that much and no more
KEPT_JOINED = 64  # notebooks whose last write is kept for the next reader


class _Joined(NamedTuple):
    first: int
    last: int
    data: bytes


class Streams:
    """All streams of a web half."""

    def __init__(self) -> None:
        self._joined: dict[str, _Joined] = {}

    async def events(self, subscription: Subscription) -> AsyncIterator[bytes]:
        """The stream of one reader. Ends when the reader goes; nobody else notices."""
        try:
            yield b": hello\n\n"
            while True:
                try:
                    found = await subscription.next(HEARTBEAT_SECONDS, STREAM_BYTES)
                except Reset:
                    notebook = await subscription.snapshot()
                    data = json.dumps(view(notebook), ensure_ascii=False)
                    yield f"event: reset\nid: {notebook.seq}\ndata: {data}\n\n".encode()
                    continue
                except UNREACHABLE as error:  # the answer has begun: it can only go on, once there is more to tell
                    log.warning("database away: %s", error)
                    yield _beat(subscription.seq, "away")
                    await asyncio.sleep(AGAIN_SECONDS)
                    continue
                if found:
                    yield self._join(subscription.notebook_id, found)
                if not found or subscription.engine == "leaving":
                    yield _beat(subscription.seq, subscription.engine)
                if subscription.engine == "leaving":
                    return  # a whole end, after which readers come again by themselves
        finally:
            subscription.close()

    def _join(self, notebook_id: str, frames: list[Frame]) -> bytes:
        """Frames as one write; the same bytes as for the reader before, where they are the same frames."""
        first, last = frames[0].seq, frames[-1].seq
        known = self._joined.get(notebook_id)
        if known is not None and known.first == first and known.last == last:
            return known.data
        data = "".join(f"event: frame\nid: {frame.seq}\ndata: {frame.line}\n\n" for frame in frames).encode()
        self._joined.pop(notebook_id, None)
        self._joined[notebook_id] = _Joined(first, last, data)
        if len(self._joined) > KEPT_JOINED:
            del self._joined[next(iter(self._joined))]
        return data


def _beat(seq: int, engine: str) -> bytes:
    return f'event: heartbeat\ndata: {{"seq": {seq}, "engine": "{engine}"}}\n\n'.encode()
