"""The journal's protocol against a plain model: whoever appends, dies, takes over, attaches, lags or comes back.

The model is a list of texts, an epoch, and for each viewer the number it has. The rest is the real thing: PostgreSQL,
the group-commit writer, ownership, and feeds whose hot buffer holds five frames, so that viewers fall behind it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import asyncpg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from e2e.scale import SOAK
from engine.feed import Feed, FeedConfig, Reset, Subscription
from engine.frames import clean, draft
from engine.ids import new_id
from engine.notebook import Notebook, fold
from engine.store import asking, ownership, reading
from engine.store.steps import FencedStep, Step, Writer
from tests.engine.store.test_steps import Committer

T = TypeVar("T")
EXAMPLES, STEPS = (200, 50) if SOAK else (6, 25)


class World:
    """A loop in a thread, with a writer and a feed on one database: what all examples share."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.run(self._open())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _open(self) -> None:
        self.pool: Any = await asyncpg.create_pool(self.dsn, min_size=1, max_size=3)
        writer = Writer(self.pool)
        self._writing = asyncio.get_running_loop().create_task(writer.run())
        self.writer = Committer(writer)  # type: ignore[arg-type]
        await self.new_feed()

    async def new_feed(self) -> None:
        """What a web half has after a restart: no buffer, no viewer."""
        if hasattr(self, "feed"):
            await self.feed.stop()
        self.feed = Feed(self.dsn, FeedConfig(frames=5, poll_seconds=0.5))
        await self.feed.start()

    def close(self) -> None:
        async def close() -> None:
            await self.feed.stop()
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
            await self.pool.close()

        self.run(close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class JournalMachine(RuleBasedStateMachine):
    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.id = new_id()
        self.journal = ["created"]  # the model: texts in their order
        self.worker = 0
        self.old: list[int] = []  # epochs of engines that were taken over from
        self.viewers: dict[int, tuple[Subscription, list[int], int]] = {}  # by number: place, what it got, its start
        self.count = 0
        world.run(asking.create(world.pool, self.id, "t", [draft("session", event="created", title="t")], 0))
        self._take()

    def _take(self) -> None:
        self.worker += 1
        self.world.run(ownership.beat(self.world.pool, self._name, "host"))
        claim = self.world.run(ownership.claim(self.world.pool, self.id, self._name))
        assert claim is not None
        assert claim.head == len(self.journal)
        assert claim.epoch > max(self.old, default=0)
        self.epoch = claim.epoch

    @property
    def _name(self) -> str:
        return f"{self.id}-{self.worker}"

    def _step(self, epoch: int, base: int, texts: list[str]) -> Step:
        drafts = [draft("output", run_id="r", cell_id="c", text=text, stream="stdout") for text in texts]
        return Step(self.id, epoch, base, drafts)

    @rule(texts=st.lists(st.text(max_size=4), min_size=1, max_size=4))
    def append(self, texts: list[str]) -> None:
        self.last = self._step(self.epoch, len(self.journal), texts)
        self.world.run(self.world.writer.commit(self.last))
        self.journal += [clean(text) for text in texts]  # NUL is what no database takes

    @precondition(lambda self: hasattr(self, "last") and self.last.epoch == self.epoch)
    @rule()
    def append_again_because_the_answer_was_lost(self) -> None:
        if self.last.base + len(self.last.drafts) == len(self.journal):
            self.world.run(self.world.writer.commit(self.last))

    @precondition(lambda self: self.old)
    @rule(data=st.data())
    def a_frozen_engine_wakes_and_appends(self, data: st.DataObject) -> None:
        epoch = data.draw(st.sampled_from(self.old))
        base = data.draw(st.integers(0, len(self.journal) + 1))
        with pytest.raises(FencedStep):
            self.world.run(self.world.writer.commit(self._step(epoch, base, ["late"])))

    @rule()
    def somebody_wants_it_while_its_owner_lives(self) -> None:
        assert self.world.run(ownership.claim(self.world.pool, self.id, "somebody")) is None

    @rule(in_order=st.booleans())
    def the_engine_goes_and_another_takes_over(self, in_order: bool) -> None:
        if in_order:
            assert self.world.run(ownership.release(self.world.pool, self.id, self.epoch, only_idle=False))
        else:
            self.world.run(ownership.bury(self.world.pool, [self._name]))
        self.old.append(self.epoch)
        self._take()

    @rule()
    def a_snapshot_is_kept(self) -> None:
        notebook = self.world.run(reading.load_notebook(self.world.pool, self.id))
        assert notebook.seq == len(self.journal)
        self.world.run(reading.save_snapshot(self.world.pool, notebook))

    @rule(data=st.data())
    def attach(self, data: st.DataObject) -> None:
        after = data.draw(st.integers(0, len(self.journal)))
        self.count += 1
        self.viewers[self.count] = (self._attach(after), [], after)

    def _attach(self, after: int) -> Subscription:
        return self.world.run(self.world.feed.attach(self.id, after=after, member="m", operator=False))

    @rule(ahead=st.integers(1, 1000))
    def attach_with_a_cursor_from_the_future(self, ahead: int) -> None:
        viewer = self._attach(len(self.journal) + ahead)
        with pytest.raises(Reset):
            self.world.run(viewer.next(0.1))
        self._read_to_the_end(viewer, 0)
        viewer.close()

    @precondition(lambda self: self.viewers)
    @rule(data=st.data(), size=st.sampled_from([1, 400, 65536]))
    def read(self, data: st.DataObject, size: int) -> None:
        viewer, got, _ = self.viewers[data.draw(st.sampled_from(sorted(self.viewers)))]
        if viewer.seq < len(self.journal):
            got += [frame.seq for frame in self.world.run(viewer.next(10, size))]

    @precondition(lambda self: self.viewers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        viewer, got, start = self.viewers.pop(data.draw(st.sampled_from(sorted(self.viewers))))
        viewer.close()
        assert got == list(range(start + 1, start + 1 + len(got)))

    @rule()
    def the_web_half_dies(self) -> None:
        """Its viewers come back with the number they have."""
        self.world.run(self.world.new_feed())
        for number, (viewer, got, start) in self.viewers.items():
            self.viewers[number] = (self._attach(viewer.seq), got, start)

    def _read_to_the_end(self, viewer: Subscription, start: int) -> list[int]:
        got: list[int] = []
        if viewer.reset_wanted:
            notebook = self.world.run(viewer.snapshot())
            got = list(range(start + 1, notebook.seq + 1))
        while viewer.seq < len(self.journal):
            got += [frame.seq for frame in self.world.run(viewer.next(10, 400))]
        return got

    @invariant()
    def what_was_got_has_no_gap(self) -> None:
        for _, got, start in self.viewers.values():
            assert got == list(range(start + 1, start + 1 + len(got)))

    def teardown(self) -> None:
        frames = self.world.run(reading.frames(self.world.pool, self.id, 0))
        assert [frame.seq for frame in frames] == list(range(1, len(self.journal) + 1))
        assert [frame.body.get("text", "created") for frame in frames] == self.journal
        loaded = self.world.run(reading.load_notebook(self.world.pool, self.id))
        assert loaded.seq == fold(Notebook(self.id), frames).seq
        for viewer, got, start in self.viewers.values():
            got += self._read_to_the_end(viewer, viewer.seq)
            assert got == list(range(start + 1, len(self.journal) + 1))
            viewer.close()


@pytest.mark.timeout(3600)
def test_the_journal_behaves_as_a_plain_list_whoever_dies(database: str) -> None:
    world = World(database)
    try:
        run_state_machine_as_test(
            lambda: JournalMachine(world),
            settings=settings(
                max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )  # fmt: skip
    finally:
        world.close()
