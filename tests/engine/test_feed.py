"""The feed: every viewer gets what follows on the frame it has, each frame once, however slow or late it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from engine.feed import Feed, FeedConfig, Reset, Subscription, UnknownNotebook
from engine.frames import draft
from engine.hot import GROUP
from engine.store import asking, asks, ownership
from engine.store.steps import Row, Step, Writer
from tests.engine.store.test_steps import Committer
from tests.engine.test_database_trouble import FULL


class Appender:
    """Appends to a notebook as its engine would."""

    def __init__(self, writer: Committer, notebook_id: str, epoch: int, head: int) -> None:
        self.writer, self.id, self.epoch, self.head = writer, notebook_id, epoch, head

    async def say(self, *texts: str) -> None:
        drafts = [draft("output", run_id="r", cell_id="c", text=text, stream="stdout") for text in texts]
        await self.writer.commit(Step(self.id, self.epoch, self.head, drafts))
        self.head += len(drafts)


class House:
    def __init__(self, dsn: str, pool: Any, writer: Committer) -> None:
        self.dsn, self.pool, self.writer = dsn, pool, writer
        self.feeds: list[Feed] = []

    async def feed(self, **config: Any) -> Feed:
        feed = Feed(self.dsn, FeedConfig(**config))
        await feed.start()
        self.feeds.append(feed)
        return feed

    async def notebook(self, notebook_id: str = "n") -> Appender:
        await asking.create(self.pool, notebook_id, "t", [draft("session", event="created", title="t")], 0)
        claim = await ownership.claim(self.pool, notebook_id, "w")
        assert claim is not None
        return Appender(self.writer, notebook_id, claim.epoch, claim.head)


@pytest_asyncio.fixture
async def house(database: str) -> AsyncIterator[House]:
    pool = await asyncpg.create_pool(database, min_size=1, max_size=4)
    writer = Writer(pool)
    task = asyncio.create_task(writer.run())
    house = House(database, pool, Committer(writer))
    yield house
    for feed in house.feeds:
        await feed.stop()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await pool.close()


async def attach(feed: Feed, after: int | None = 0, notebook_id: str = "n") -> Subscription:
    return await feed.attach(notebook_id, after=after, member="owner", operator=False)


async def read(viewer: Subscription, upto: int) -> list[int]:
    """The numbers a viewer gets until it has `upto`."""
    seen: list[int] = []
    async with asyncio.timeout(10):
        while viewer.seq < upto:
            seen += [frame.seq for frame in await viewer.next(1, 2000)]
    return seen


@pytest.mark.asyncio
async def test_viewers_at_any_place_get_every_frame_once_in_order(house: House) -> None:
    """Invariant 3, while frames are appended and from behind the hot buffer too."""
    notebook, feed = await house.notebook(), await house.feed(frames=10)
    await notebook.say(*map(str, range(50)))
    early = await attach(feed)

    async def append() -> None:
        for number in range(100):
            await notebook.say(str(number))

    async def late() -> list[int]:
        await read(early_other, 60)
        viewer = await attach(feed, after=60)
        return await read(viewer, 151)

    early_other = await attach(feed)
    _, seen, seen_late = await asyncio.gather(append(), read(early, 151), late())
    assert seen == list(range(1, 152))
    assert seen_late == list(range(61, 152))


@pytest.mark.asyncio
async def test_a_snapshot_and_what_follows_on_it_fit_without_a_gap(house: House) -> None:
    notebook, feed = await house.notebook(), await house.feed()
    await notebook.say("a", "b")
    viewer = await attach(feed, after=None)
    snapshot = await viewer.snapshot()
    await notebook.say("c")
    assert (snapshot.seq, await read(viewer, 4)) == (3, [4])


@pytest.mark.asyncio
async def test_a_cursor_from_the_future_is_reset_and_not_left_in_silence(house: House) -> None:
    notebook, feed = await house.notebook(), await house.feed()
    viewer = await attach(feed, after=1000)
    with pytest.raises(Reset):
        await viewer.next(0.1)
    assert (await viewer.snapshot()).seq == 1
    await notebook.say("x")
    assert await read(viewer, 2) == [2]


@pytest.mark.asyncio
async def test_an_unknown_notebook_is_named(house: House) -> None:
    feed = await house.feed()
    with pytest.raises(UnknownNotebook, match="gone"):
        await attach(feed, notebook_id="gone")


@pytest.mark.asyncio
async def test_a_slow_viewer_holds_nobody_up_and_the_buffer_stays_bounded(house: House) -> None:
    """Invariant 10: the one that reads nothing costs a cursor, and later reads the journal."""
    notebook, feed = await house.notebook(), await house.feed(frames=20, bytes=65536)
    slow, quick = await attach(feed), await attach(feed)
    for start in range(0, 200, 10):
        await notebook.say(*[f"{start + number} {'x' * 1000}" for number in range(10)])
    assert await read(quick, 201) == list(range(1, 202))
    statistics = feed.statistics()
    assert statistics["frames"] <= 20
    assert statistics["bytes"] <= 65536
    assert await read(slow, 201) == list(range(1, 202))


@pytest.mark.asyncio
async def test_many_viewers_are_woken_a_group_at_a_time_and_for_what_comes_meanwhile(house: House) -> None:
    appender, feed = await house.notebook(), await house.feed()
    viewers = [await attach(feed, appender.head) for _ in range(3 * GROUP)]
    whole = list(range(appender.head + 1, appender.head + 21))
    readers = [asyncio.create_task(read(viewer, whole[-1])) for viewer in viewers]
    apart = 0
    for _ in whole:
        await appender.say("x")
        async with asyncio.timeout(10):
            while not any(viewer.seq == appender.head for viewer in viewers):
                await asyncio.sleep(0)
        apart += any(viewer.seq < appender.head for viewer in viewers)
    assert await asyncio.gather(*readers) == [whole] * len(viewers)
    assert apart > len(whole) // 2


@pytest.mark.asyncio
async def test_frames_arrive_though_every_hint_was_lost(house: House) -> None:
    notebook, feed = await house.notebook(), await house.feed(poll_seconds=0.1)
    viewer = await attach(feed, after=1)
    feed._hint = lambda payload: None  # type: ignore[method-assign]
    feed._tasks[0].cancel()
    await notebook.say("x")
    assert await read(viewer, 2) == [2]


@pytest.mark.asyncio
async def test_listening_again_after_the_connection_was_cut_misses_nothing(house: House) -> None:
    notebook, feed = await house.notebook(), await house.feed(poll_seconds=60)
    viewer = await attach(feed, after=1)
    await notebook.say("before")
    assert await read(viewer, 2) == [2]
    await house.pool.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'nightbook listen'"
    )
    await notebook.say("while cut")
    assert await read(viewer, 3) == [3]


@pytest.mark.asyncio
async def test_two_subscriptions_of_one_viewer_are_two_cursors(house: House) -> None:
    notebook, feed = await house.notebook(), await house.feed()
    one, two = await attach(feed, after=1), await attach(feed, after=1)
    await notebook.say("x", "y")
    assert await read(one, 3) == [2, 3]
    assert await read(two, 3) == [2, 3]


@pytest.mark.asyncio
async def test_viewers_that_leave_give_everything_back(house: House) -> None:
    await house.notebook()
    feed = await house.feed(replay_seconds=0.05, poll_seconds=0.05)
    for _ in range(100):
        (await attach(feed)).close()
    async with asyncio.timeout(5):
        while feed.statistics()["notebooks"]:
            await asyncio.sleep(0.01)
    assert feed.statistics() == {"notebooks": 0, "viewers": 0, "frames": 0, "bytes": 0}


@pytest.mark.asyncio
async def test_viewers_hear_that_the_disk_is_full_while_it_is(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading works, so nothing else would tell them why nothing comes."""
    monkeypatch.setattr("engine.feed.FULL_SECONDS", 2.5)
    notebook, feed = await house.notebook(), await house.feed()
    viewer = await attach(feed, after=1)
    for statement in FULL:
        await house.pool.execute(statement)
    saying = asyncio.create_task(notebook.say("waits"))
    async with asyncio.timeout(20):
        while feed.state != "full":
            await asyncio.sleep(0.01)
        await house.pool.execute("TRUNCATE full_disk")
        await saying
        assert await read(viewer, 2) == [2]
        while feed.state != "live":
            await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_presence_is_shown_while_somebody_looks_and_withdrawn_after(house: House) -> None:
    await house.notebook()
    feed = await house.feed(poll_seconds=0.05)
    viewer = await feed.attach("n", after=None, member="ada", operator=True)

    async def until(expected: list[tuple[str, bool]]) -> None:
        async with asyncio.timeout(5):
            while (await asking.present(house.pool, ["n"])).get("n", []) != expected:
                await asyncio.sleep(0.01)

    await until([("ada", True)])
    viewer.close()
    await until([])


@pytest.mark.asyncio
async def test_the_list_of_notebooks_wakes_when_one_changes(house: House) -> None:
    notebook, feed = await house.notebook(), await house.feed()
    version = 0
    while (newer := await feed.home_changed(version, 0.2)) != version:  # connecting counts as a change
        version = newer
    _, changed = await asyncio.gather(notebook.say("x"), feed.home_changed(version, 5))
    assert changed > version
    assert [row.id for row in await feed.notebooks()] == ["n"]


@pytest.mark.asyncio
async def test_pages_hear_of_every_ask_that_comes_and_goes(house: House) -> None:
    notebook = await house.notebook()
    feed = await house.feed(poll_seconds=0.2)
    seen = await feed.asks_changed(0, 5)
    row = {"id": "a", "cell_id": "c", "run_id": "r", "call_id": "k", "digest": "d", "body": {}, "due_seconds": 60}
    waiting = asyncio.create_task(feed.asks_changed(seen, 20))
    step = Step(notebook.id, notebook.epoch, notebook.head, [draft("progress", text="asked")], rows=[Row("ask", row)])
    await house.writer.commit(step)
    assert await waiting > seen
    assert [(one.ask.id, one.title) for one in await feed.asks()] == [("a", "t")]
    assert await feed.asks_count() == 1
    seen = await waiting
    waiting = asyncio.create_task(feed.asks_changed(seen, 20))
    await asks.decide(house.pool, "a", "approve", "once", None, "owner")
    assert await waiting > seen
    assert await feed.asks() == []


@pytest.mark.asyncio
async def test_pages_hear_of_an_ask_that_runs_out_though_no_engine_says_so(house: House) -> None:
    await house.notebook()
    feed = await house.feed(poll_seconds=0.1)
    await house.pool.execute(
        """
        INSERT INTO ask (notebook_id, id, cell_id, run_id, call_id, digest, body, due_at)
        VALUES ('n', 'a', 'c', 'r', 'k', 'd', '{}', now() + interval '0.8 s')
        """
    )
    seen = 0
    async with asyncio.timeout(20):
        while await feed.asks_count() or seen < 2:
            seen = await feed.asks_changed(seen, 20)


@pytest.mark.asyncio
async def test_who_may_decide_is_present_at_once_and_gone_at_once(house: House) -> None:
    await house.notebook()
    feed = await house.feed()

    async def present(expected: bool) -> None:
        async with asyncio.timeout(4):  # sooner than it is told anyway
            while await asks.present(house.pool, "n") is not expected:
                await asyncio.sleep(0.01)

    for _ in range(2):
        viewer = await feed.attach("n", after=0, member="owner", operator=True)
        await present(True)
        viewer.close()
        await present(False)
        leave = feed.at_inbox("owner", operator=True)
        await present(True)
        leave()
        leave()
        await present(False)
