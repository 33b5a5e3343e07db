"""The viewer: one path for first open, reload and reconnect, and never more than the page can take."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
import pytest_asyncio

from engine.feed import Feed, Left
from tests.ui.scripted import ScriptedFeed
from ui import viewer as viewing
from ui.pages.home import HomeWatcher
from ui.viewer import WINDOW, Viewer

pytestmark = pytest.mark.asyncio


class Page:
    """What arrives at a page. It draws (acknowledges) only when told to, or all by itself with `eager`."""

    def __init__(self, feed: ScriptedFeed, *, eager: bool = True) -> None:
        self.viewer = Viewer(cast("Feed", feed), "n", self.receive, member="owner")
        self.eager = eager
        self.stream = 0
        self.messages: list[dict[str, Any]] = []
        self.sizes: list[int] = []
        self.times: list[float] = []
        self.beats: list[dict[str, Any]] = []
        self.absences: list[tuple[int, dict[str, Any]]] = []  # each with the messages that came before it
        self.vanished = False
        self.most = 0
        self.arrived = asyncio.Event()

    def receive(self, method: str, *arguments: Any) -> None:
        if method == "push":
            message = json.loads(arguments[0])
            assert message["stream"] == self.stream
            self.messages.append(message)
            self.sizes.append(len(arguments[0].encode()))
            self.times.append(asyncio.get_running_loop().time())
            self.most = max(self.most, self.viewer.unacknowledged)
            if self.eager:
                self.viewer.drawn(message["stream"], message["n"])
        elif method == "beat":
            self.beats.append(arguments[0])
        elif method == "back":
            self.absences.append((len(self.messages), arguments[0]))
        else:
            assert method == "vanished"
            self.vanished = True
        self.arrived.set()

    def hello(self, seq: int | None) -> None:
        self.stream += 1
        self.messages.clear()
        self.viewer.hello(self.stream, seq)

    @property
    def seq(self) -> int | None:
        return self.messages[-1]["seq"] if self.messages else None

    def text(self) -> str:
        return "".join(
            op["item"].get("text", "") for message in self.messages for op in message["ops"] if op["op"] == "output"
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.arrived.clear()
                await self.arrived.wait()


@pytest_asyncio.fixture
async def feed() -> AsyncIterator[ScriptedFeed]:
    feed = ScriptedFeed()
    feed.write("n", "session", event="created", title="T")
    feed.write("n", "cell", event="added", cell_id="a", kind="python", source="x")
    feed.write("n", "run", event="queued", cell_id="a", run_id="r")
    feed.write("n", "run", event="started", cell_id="a", run_id="r")
    yield feed
    assert not feed.subscriptions, "a subscription was left open"


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewing, "RETRY", 0.01)
    monkeypatch.setattr(viewing, "BEAT", 0.05)


async def left(page: Page) -> None:
    """Closes the page and lets its task end."""
    tasks = [task for task in asyncio.all_tasks() if task.get_name().startswith("viewer of")]
    page.viewer.close()
    await asyncio.gather(*tasks, return_exceptions=True)


def prints(feed: ScriptedFeed, text: str) -> None:
    feed.write("n", "output", cell_id="a", run_id="r", text=text, stream="stdout")


async def test_a_new_page_gets_a_snapshot_and_then_what_follows(feed: ScriptedFeed) -> None:
    prints(feed, "one ")
    page = Page(feed)
    page.hello(None)
    await page.until(lambda: page.seq == 5)
    assert page.messages[0]["ops"][0] == {"op": "reset"}
    prints(feed, "two")
    await page.until(lambda: page.seq == 6)
    assert page.messages[-1]["prev"] == 5
    assert page.text() == "one two"
    await left(page)


async def test_a_page_that_comes_back_gets_only_what_it_missed(feed: ScriptedFeed) -> None:
    page = Page(feed)
    page.hello(None)
    await page.until(lambda: page.seq == 4)
    page.viewer.park()
    prints(feed, "missed")
    page.hello(4)
    await page.until(lambda: page.seq == 5)
    assert [op["op"] for op in page.messages[0]["ops"]] == ["output"]
    assert (page.messages[0]["prev"], page.messages[0]["n"]) == (4, 0)
    await left(page)


async def test_what_was_drawn_though_its_acknowledgement_got_lost_is_not_sent_again(feed: ScriptedFeed) -> None:
    page = Page(feed)
    page.hello(None)
    await page.until(lambda: page.seq == 4)
    page.eager = False
    prints(feed, "drawn, not acknowledged")
    await page.until(lambda: page.seq == 5)
    page.viewer.park()
    page.eager = True
    prints(feed, "new")
    page.hello(5)
    await page.until(lambda: page.seq == 6)
    assert page.text() == "new"
    await left(page)


@pytest.mark.parametrize("seq", [2, 99])
async def test_a_number_the_viewer_does_not_know_is_answered_with_a_snapshot(feed: ScriptedFeed, seq: int) -> None:
    page = Page(feed)
    page.hello(seq)
    await page.until(lambda: page.seq == 4)
    assert page.messages[0]["ops"][0] == {"op": "reset"}
    await left(page)


async def test_a_reset_of_the_feed_is_a_snapshot_in_the_same_stream(feed: ScriptedFeed) -> None:
    page = Page(feed)
    page.hello(None)
    await page.until(lambda: page.seq == 4)
    feed.reset = True
    await page.until(lambda: len(page.messages) == 2)
    assert page.messages[-1]["ops"][0] == {"op": "reset"}
    assert [message["n"] for message in page.messages] == [0, 1]
    await left(page)


async def test_a_snapshot_that_was_cut_off_starts_again_from_its_beginning(feed: ScriptedFeed) -> None:
    for _ in range(20):
        prints(feed, "x" * 30_000)
    page = Page(feed, eager=False)
    page.hello(None)
    await page.until(lambda: len(page.messages) >= 2)
    assert page.messages[0]["seq"] is None
    page.viewer.park()
    page.eager = True
    page.hello(None)
    await page.until(lambda: page.seq == 24)
    assert page.messages[0]["ops"][0] == {"op": "reset"}
    assert [message["n"] for message in page.messages] == list(range(len(page.messages)))
    await left(page)


async def test_at_most_256_kib_are_on_their_way_and_the_rest_waits_in_the_journal(feed: ScriptedFeed) -> None:
    page = Page(feed)
    page.hello(None)
    await page.until(lambda: page.seq == 4)
    page.eager = False
    for _ in range(60):
        prints(feed, "y" * 32_000)
    await page.until(lambda: page.viewer.unacknowledged > WINDOW // 2)
    beats = len(page.beats)
    await page.until(lambda: len(page.beats) > beats + 1)  # it keeps to its limit, and shows that it lives
    assert page.most <= WINDOW
    asked = len(feed.asked)
    page.eager = True
    page.viewer.drawn(page.stream, page.messages[-1]["n"])
    await page.until(lambda: page.seq == 64)
    assert len(feed.asked) > asked
    assert page.most <= WINDOW
    assert page.text() == "y" * 32_000 * 60
    await left(page)


async def test_an_acknowledgement_of_an_older_stream_frees_nothing(feed: ScriptedFeed) -> None:
    page = Page(feed, eager=False)
    page.hello(None)
    await page.until(lambda: page.seq == 4)
    sent = page.viewer.unacknowledged
    page.viewer.drawn(page.stream - 1, 0)
    assert page.viewer.unacknowledged == sent > 0
    await left(page)


async def test_small_frames_are_joined_to_ten_messages_a_second_the_first_at_once(feed: ScriptedFeed) -> None:
    page = Page(feed)
    page.hello(None)
    await page.until(lambda: page.seq == 4)
    await page.until(lambda: len(page.beats) > 2)
    page.times.clear()
    before = len(page.messages)
    loop = asyncio.get_running_loop()
    for number in range(60):
        loop.call_later(number * 0.01, prints, feed, f"{number} ")
    await page.until(lambda: page.seq == 64)
    assert page.messages[before]["seq"] < 4 + 6, "what comes first is not held back for what follows"
    gaps = [later - earlier for earlier, later in zip(page.times, page.times[1:], strict=False)]
    assert min(gaps) > 0.09
    assert len(page.times) < 20
    assert page.text() == "".join(f"{number} " for number in range(60))
    await left(page)


async def test_an_idle_page_hears_a_heartbeat_that_says_who_serves(feed: ScriptedFeed) -> None:
    page = Page(feed)
    page.hello(None)
    await page.until(lambda: len(page.beats) > 3)
    assert page.beats[-1]["engine"] == "here"
    assert page.beats[-1]["n"] == 1
    next(iter(feed.subscriptions)).engine = "away"
    await page.until(lambda: page.beats[-1]["engine"] == "away")
    feed.state = "offline"
    await page.until(lambda: page.beats[-1]["engine"] == "store-away")
    feed.state = "full"
    await page.until(lambda: page.beats[-1]["engine"] == "store-full")
    await left(page)


async def test_a_feed_that_fails_is_asked_again(feed: ScriptedFeed, caplog: pytest.LogCaptureFixture) -> None:
    feed.failing = 3
    page = Page(feed)
    page.hello(None)
    await page.until(lambda: page.seq == 4)
    assert [beat["engine"] for beat in page.beats[:3]] == ["store-away"] * 3
    assert "trying again" in caplog.text
    await left(page)


async def test_a_notebook_that_is_not_there_is_told(feed: ScriptedFeed) -> None:
    del feed.journals["n"]
    page = Page(feed)
    page.hello(None)
    await page.until(lambda: page.vanished)
    await left(page)


async def test_a_hundred_pages_opened_and_closed_leave_no_task_and_no_subscription(feed: ScriptedFeed) -> None:
    before = asyncio.all_tasks()
    for _ in range(100):
        page = Page(feed)
        page.hello(None)
        page.hello(None)  # a second hello replaces the first
        await page.until(lambda page=page: page.seq == 4)
        await left(page)
        page.viewer.hello(9, None)  # after its end a viewer starts nothing
        assert not page.viewer.streaming
    assert asyncio.all_tasks() == before
    assert not feed.subscriptions


async def test_a_parked_viewer_has_no_task_but_remembers_what_was_drawn(feed: ScriptedFeed) -> None:
    page = Page(feed)
    page.hello(None)
    await page.until(lambda: page.seq == 4)
    tasks = [task for task in asyncio.all_tasks() if task.get_name().startswith("viewer of")]
    page.viewer.park()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not feed.subscriptions
    assert not page.viewer.streaming
    assert "parked" in repr(page.viewer)
    page.viewer.close()


async def test_home_sends_the_list_once_and_then_what_changed(feed: ScriptedFeed) -> None:
    heard: list[tuple[Any, ...]] = []
    arrived = asyncio.Event()

    def receive(*said: Any) -> None:
        heard.append(said)
        arrived.set()

    async def until(count: int) -> list[tuple[Any, ...]]:
        async with asyncio.timeout(10):
            while len(lists := [said for said in heard if said[0] != "beat"]) < count:
                arrived.clear()
                await arrived.wait()
        return lists

    watcher = HomeWatcher(cast("Feed", feed), receive)
    watcher.hello({"stream": 7, "archived": False})
    ((_, stream, rows),) = await until(1)
    assert stream == 7
    assert (rows[0]["title"], rows[0]["state"], rows[0]["ago"]) == ("T", "running", 7)
    feed.write("n", "session", event="renamed", title="U")
    assert [(said[0], said[2][0]["title"], said[3]) for said in (await until(2))[1:]] == [("changes", "U", [])]
    feed.write("n", "session", event="archived")
    assert (await until(3))[-1] == ("changes", 7, [], ["n"])
    watcher.park()
    assert not watcher.watching


async def test_a_park_in_the_very_moment_of_an_acknowledgement_ends_the_task(feed: ScriptedFeed) -> None:
    page = Page(feed, eager=False)
    page.hello(None)
    await page.until(lambda: page.seq == 4)
    for _ in range(60):
        prints(feed, "y" * 32_000)
    await page.until(lambda: page.viewer.unacknowledged > WINDOW // 2)
    beats = len(page.beats)
    await page.until(lambda: len(page.beats) > beats)  # it waits for room now
    (task,) = [task for task in asyncio.all_tasks() if task.get_name().startswith("viewer of")]
    page.viewer.drawn(page.stream, page.messages[-1]["n"])
    page.viewer.park()
    async with asyncio.timeout(5):
        await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    page.viewer.close()


async def test_who_comes_back_is_told_what_happened_before_the_page_is_drawn(feed: ScriptedFeed) -> None:
    left = feed.write("n", "session", event="renamed", title="New").seq
    for cell, status in (("a", "done"), ("b", "error")):
        feed.write("n", "run", event="ended", cell_id=cell, run_id=cell, status=status)
    feed.away = Left(left, 2460.4)
    page = Page(feed)
    page.viewer.look(True, back=True)
    page.hello(None)
    await page.until(lambda: page.seq is not None)
    ((before, told),) = page.absences
    assert before == 0
    assert (told["seq"], told["seconds"], told["finished"], told["failed"]) == (left, 2460, 1, 1)
    page.viewer.close()


@pytest.mark.parametrize("away", [None, Left(1, viewing.AWAY - 1)])
async def test_who_was_hardly_away_or_never_here_is_told_nothing(feed: ScriptedFeed, away: Left | None) -> None:
    feed.away = away
    page = Page(feed)
    page.viewer.look(True, back=True)
    page.hello(None)
    await page.until(lambda: page.seq is not None)
    assert page.absences == []
    page.viewer.close()


async def test_what_was_seen_is_what_was_drawn_while_somebody_looked(feed: ScriptedFeed) -> None:
    page = Page(feed)
    page.viewer.look(True, back=False)
    page.hello(None)
    await page.until(lambda: page.seq is not None)
    (subscription,) = feed.subscriptions
    seen = page.seq
    assert subscription.seen == seen
    page.viewer.look(False, back=False)
    feed.write("n", "session", event="renamed", title="Unseen")
    await page.until(lambda: page.seq != seen)
    assert subscription.seen == seen
    page.viewer.close()
