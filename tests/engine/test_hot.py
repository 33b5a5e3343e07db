"""What is held of a watched notebook: frames within bounds, and viewers that wait without costing the others."""

from __future__ import annotations

import asyncio

import pytest

from app.api.stream import Streams
from engine import hot
from engine.feed import Feed, Subscription
from engine.frames import Frame
from engine.hot import Hot
from engine.notebook import Notebook
from tests.engine.frames_made import START

pytestmark = pytest.mark.asyncio


def frames(first: int, last: int) -> list[Frame]:
    """Lines of output under these numbers."""
    body = '{"text":"x","stream":"stdout"}'
    return [Frame(seq, START, "output", "c", "r", None, None, body) for seq in range(first, last + 1)]


def viewer(of: Hot, seq: int = 0) -> Subscription:
    subscription = Subscription(Feed("postgresql:///nowhere"), of, seq, "ada", False)
    of.viewers.add(subscription)
    return subscription


async def test_frames_are_found_by_their_number_also_behind_a_trim() -> None:
    held = Hot(Notebook("n"))
    held.push(frames(1, 50))
    held.push(frames(49, 60))
    held.trim(20, 10**9)
    assert (held.first, [frame.seq for frame in held.frames]) == (40, list(range(41, 61)))
    assert [frame.seq for frame in held.after(57, 10**9)] == [58, 59, 60]
    assert [frame.seq for frame in held.after(40, 1)] == [41], "at least one, however small the limit"
    assert held.after(60, 10**9) == []
    held.trim(20, 0)
    assert (held.bytes, held.first, held.frames) == (0, 60, [])


async def test_a_wait_ends_with_a_frame_or_with_its_time() -> None:
    held = Hot(Notebook("n"))
    one = viewer(held)
    assert await one.next(0.01) == []
    waiting = asyncio.create_task(one.next(60))
    await asyncio.sleep(0)
    held.push(frames(1, 1))
    assert [frame.seq for frame in await waiting] == [1]
    assert await one.next(0.01) == [], "though the timer of the wait before was for later"
    one.close()


async def test_a_viewer_that_goes_while_it_waits_leaves_nothing() -> None:
    held = Hot(Notebook("n"))
    waiting = asyncio.create_task(viewer(held).next(60))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not held._waiting
    held.push(frames(1, 1))


async def test_many_viewers_are_woken_at_a_pace_and_none_misses_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is woken for many frames at once, however quickly those come; the last one is not left for later."""
    monkeypatch.setattr(hot, "PACE_SECONDS", 0.001)
    held = Hot(Notebook("n"))
    wakes: list[int] = []

    async def follow(one: Subscription) -> list[int]:
        seen: list[int] = []
        while one.seq < 200:
            if found := await one.next(60):
                wakes.append(len(found))
                seen += [frame.seq for frame in found]
        one.close()
        return seen

    readers = [asyncio.create_task(follow(viewer(held))) for _ in range(50)]
    for seq in range(1, 201):
        held.push(frames(seq, seq))
        await asyncio.sleep(0)
    async with asyncio.timeout(20):
        found = await asyncio.gather(*readers)
    assert found == [list(range(1, 201))] * 50
    assert len(wakes) < 50 * 100, "not each frame wakes each viewer"


async def test_what_many_readers_are_sent_is_put_together_once() -> None:
    held, streams = Hot(Notebook("n")), Streams()
    held.push(frames(1, 3))
    told = [streams.events(viewer(held, after)) for after in (0, 0, 1)]
    for stream in told:
        assert await anext(stream) == b": hello\n\n"
    first, second, third = [await anext(stream) for stream in told]
    assert first is second
    assert third == first[first.index(b"event: frame\nid: 2") :]
    for stream in told:
        await stream.aclose()
    assert not held.viewers
