"""Steps: what makes "stored before seen", "one writer" and "exactly once" true at the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from engine.frames import draft
from engine.store import asking, ownership, reading
from engine.store.reading import UnknownNotebook
from engine.store.steps import BadStep, FencedStep, Pending, Projection, Step, Writer


@pytest_asyncio.fixture
async def pool(database: str) -> AsyncIterator[Any]:
    pool = await asyncpg.create_pool(database, min_size=1, max_size=6)
    yield pool
    await pool.close()


@pytest_asyncio.fixture
async def writer(pool: Any) -> AsyncIterator[Committer]:
    writer = Writer(pool)
    task = asyncio.create_task(writer.run())
    yield Committer(writer)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class Committer:
    """A writer for tests on asyncio: `commit` waits for a step's answer, as the journal does in trio."""

    def __init__(self, writer: Committer) -> None:
        self.writer = writer

    async def commit(self, step: Step) -> datetime:
        answer: asyncio.Future[datetime | Exception] = asyncio.get_running_loop().create_future()
        self.writer.submit(Pending(step, answer.set_result))
        result = await answer
        if isinstance(result, Exception):
            raise result
        return result

    @property
    def commits(self) -> int:
        return self.writer.commits


async def make(pool: Any, *ids: str) -> None:
    for notebook_id in ids:
        await asking.create(pool, notebook_id, "t", [draft("session", event="created", title="t")], 0)


def said(text: str) -> Any:
    return draft("output", run_id="r", cell_id="c", text=text, stream="stdout")


@pytest.mark.asyncio
async def test_seq_has_no_gap_and_no_duplicate_under_concurrent_engines(pool: Any, writer: Committer) -> None:
    """Invariants 1 and 3: numbers belong to the notebook, and follow on each other whatever is committed together."""
    ids = [f"n{number}" for number in range(30)]
    await make(pool, *ids)

    async def engine(notebook_id: str) -> None:
        claim = await ownership.claim(pool, notebook_id, "w")
        assert claim is not None
        head = claim.head
        for size in (1, 3, 2, 5, 1):
            await writer.commit(Step(notebook_id, claim.epoch, head, [said(f"{head + n}") for n in range(1, size + 1)]))
            head += size

    await asyncio.gather(*map(engine, ids))
    for notebook_id in ids:
        frames = await reading.frames(pool, notebook_id, 0)
        assert [frame.seq for frame in frames] == list(range(1, 14))
        assert [frame.body["text"] for frame in frames[1:]] == [str(seq) for seq in range(2, 14)]
    assert writer.commits < 30 * 5, "steps of many engines should be committed together"


@pytest.mark.asyncio
async def test_only_the_owner_at_its_current_epoch_appends(pool: Any, writer: Committer) -> None:
    """Invariant 2: the statement that hands out numbers checks the epoch; the rest of the batch commits."""
    await make(pool, "a", "b")
    old = await ownership.claim(pool, "a", "w1")
    assert old is not None
    await pool.execute("UPDATE worker SET until = now() - interval '1 s'")
    new = await ownership.claim(pool, "a", "w2")
    other = await ownership.claim(pool, "b", "w1")
    assert new is not None
    assert other is not None
    assert (new.epoch, new.previous) == (old.epoch + 1, "w1")
    late, fine = await asyncio.gather(
        writer.commit(Step("a", old.epoch, 1, [said("late")])),
        writer.commit(Step("b", other.epoch, 1, [said("fine")])),
        return_exceptions=True,
    )
    assert isinstance(late, FencedStep)
    assert not isinstance(fine, BaseException)
    assert len(await reading.frames(pool, "a", 0)) == 1
    assert len(await reading.frames(pool, "b", 0)) == 2


@pytest.mark.asyncio
async def test_a_step_is_committed_once_though_its_answer_was_lost(pool: Any, writer: Committer) -> None:
    """The same step again, as after a connection cut between COMMIT and its answer: known by its base, not doubled."""
    await make(pool, "a")
    claim = await ownership.claim(pool, "a", "w")
    assert claim is not None
    step = Step("a", claim.epoch, 1, [said("x")])
    await writer.commit(step)
    await writer.commit(step)
    assert len(await reading.frames(pool, "a", 0)) == 2


@pytest.mark.asyncio
async def test_a_crash_between_the_head_and_the_frames_leaves_neither(pool: Any, writer: Committer) -> None:
    """Else the next step would be refused for ever: the head would say what no frame does, or the other way round."""
    await make(pool, "a")
    claim = await ownership.claim(pool, "a", "w")
    assert claim is not None
    await pool.execute(
        """
        CREATE SEQUENCE deaths;
        CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('deaths') <= 2 THEN  -- what a sequence gave is not taken back with the transaction
                PERFORM pg_terminate_backend(pg_backend_pid()), pg_sleep(60);
            END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER die BEFORE INSERT ON frame FOR EACH ROW EXECUTE FUNCTION die()
        """
    )
    await writer.commit(Step("a", claim.epoch, 1, [said("x"), said("y")]))
    assert await pool.fetchval("SELECT last_value FROM deaths") == 4
    await writer.commit(Step("a", claim.epoch, 3, [said("z")]))
    frames = await reading.frames(pool, "a", 0)
    assert [frame.body.get("text") for frame in frames] == [None, "x", "y", "z"]
    assert await pool.fetchval("SELECT head FROM notebook") == 4


@pytest.mark.asyncio
async def test_a_step_the_database_refuses_fails_alone(pool: Any, writer: Committer) -> None:
    await make(pool, "a", "b")
    claims = {key: await ownership.claim(pool, key, "w") for key in ("a", "b")}
    bad = said("x")
    object.__setattr__(bad, "body", "{not json")
    results = await asyncio.gather(
        writer.commit(Step("a", claims["a"].epoch, 1, [bad])),  # type: ignore[union-attr]
        writer.commit(Step("b", claims["b"].epoch, 1, [said("y")])),  # type: ignore[union-attr]
        return_exceptions=True,
    )
    assert isinstance(results[0], BadStep)
    assert not isinstance(results[1], BaseException)


@pytest.mark.asyncio
async def test_nul_and_lone_surrogates_are_stored_safely(pool: Any, writer: Committer) -> None:
    await make(pool, "a")
    claim = await ownership.claim(pool, "a", "w")
    assert claim is not None
    await writer.commit(Step("a", claim.epoch, 1, [said("nul \x00 half \ud800 end")]))
    assert (await reading.frames(pool, "a", 1))[0].body["text"] == "nul � half � end"


@pytest.mark.asyncio
async def test_a_hint_for_many_notebooks_stays_small(pool: Any, writer: Committer, database: str) -> None:
    """A NOTIFY over 8,000 bytes would roll back its transaction."""
    ids = [f"{'n' * 24}{number:06}" for number in range(400)]
    await make(pool, *ids)
    hints: list[str] = []
    listener = await asyncpg.connect(database)
    await listener.add_listener("nightbook_frames", lambda *args: hints.append(str(args[3])))
    claims = {key: await ownership.claim(pool, key, "w") for key in ids}
    await asyncio.gather(*(writer.commit(Step(key, claims[key].epoch, 1, [said("x")])) for key in ids))  # type: ignore[union-attr]
    await listener.fetchval("SELECT 1")
    await listener.close()
    assert hints
    assert all(len(hint) <= 7000 for hint in hints)
    assert "*" in hints


@pytest.mark.asyncio
async def test_consumed_commands_and_the_projection_change_with_the_frames(pool: Any, writer: Committer) -> None:
    await make(pool, "a")
    await asking.ask(pool, "a", "owner", "one", {"id": "one", "kind": "run_all"})
    await asking.ask(pool, "a", "owner", "pw", {"id": "pw", "kind": "input", "run_id": "r", "text": "s3cret"})
    claim = await ownership.claim(pool, "a", "w")
    assert claim is not None
    view = Projection("new title", "running", 0, 3, False, True, True)
    await writer.commit(Step("a", claim.epoch, 1, [said("x")], ["one", "pw"], ["pw"], view))
    assert await asking.waiting(pool, "a") == []
    row = (await reading.notebooks(pool))[0]
    assert (row.title, row.state, row.cells) == ("new title", "running", 3)
    bodies = await pool.fetch("SELECT id, body, digest FROM command ORDER BY id")
    assert [(item["id"], item["body"] is None, item["digest"] is None) for item in bodies] == [
        ("one", False, False),
        ("pw", True, True),
    ]
    assert "s3cret" not in str(await pool.fetch("SELECT * FROM frame"))


@pytest.mark.asyncio
async def test_a_command_is_taken_once_by_its_id(pool: Any) -> None:
    await make(pool, "a")
    body = {"id": "x", "kind": "run_all"}
    await asyncio.gather(*(asking.ask(pool, "a", "owner", "x", body) for _ in range(5)))
    assert len(await asking.waiting(pool, "a")) == 1
    with pytest.raises(asking.IdReused, match="another body"):
        await asking.ask(pool, "a", "owner", "x", {"id": "x", "kind": "stop"})
    with pytest.raises(UnknownNotebook):
        await asking.ask(pool, "gone", "owner", "x", body)


@pytest.mark.asyncio
async def test_a_living_owner_keeps_its_notebook_and_a_dead_one_loses_it(pool: Any) -> None:
    await make(pool, "a")
    await ownership.beat(pool, "w1", "host")
    assert await ownership.claim(pool, "a", "w1") is not None
    assert await ownership.claim(pool, "a", "w2") is None
    await ownership.bury(pool, ["w1"])
    taken = await ownership.claim(pool, "a", "w2")
    assert taken is not None
    assert taken.epoch == 2


@pytest.mark.asyncio
async def test_a_live_sandbox_is_its_own_machine_s_for_a_minute(pool: Any, writer: Committer) -> None:
    """Whether its worker died or left; and pages say meanwhile that nobody serves it. Without one it is anybody's."""
    await make(pool, "a")
    for worker, host in (("w1", "here"), ("w2", "here"), ("far", "there")):
        await ownership.beat(pool, worker, host)
    claim = await ownership.claim(pool, "a", "w1")
    assert claim is not None
    view = Projection("t", "running", 0, 1, False, True, True, "here")
    await writer.commit(Step("a", claim.epoch, 1, [said("x")], projection=view))
    assert await ownership.release(pool, "a", claim.epoch, only_idle=False)
    await ownership.bury(pool, ["w1", "w2"])
    assert await ownership.wanted(pool, "far") == []
    assert await ownership.claim(pool, "a", "far") is None
    assert await reading.engines_away(pool, ["a"]) == {"a"}
    await ownership.beat(pool, "w3", "here")
    assert await ownership.wanted(pool, "w3") == ["a"]
    assert await reading.engines_away(pool, ["a"]) == set()
    back = await ownership.claim(pool, "a", "w3")
    assert back is not None
    await pool.execute("UPDATE worker SET until = now() - interval '61 s' WHERE host = 'here'")
    assert await ownership.wanted(pool, "far") == ["a"]
    assert await ownership.claim(pool, "a", "far") is not None
    assert await ownership.elsewhere(pool, ["a", "b"], "here") == {"a": 3}
    assert await ownership.elsewhere(pool, ["a"], "there") == {}


@pytest.mark.asyncio
async def test_a_worker_learns_at_its_beat_that_it_was_taken_for_dead(pool: Any) -> None:
    assert not await ownership.beat(pool, "w", "host")
    assert await ownership.beat(pool, "w", "host")
    await pool.execute("UPDATE worker SET until = now() - interval '1 s'")
    assert not await ownership.beat(pool, "w", "host"), "its time ran out, though nobody said that it is dead"
    await ownership.bury(pool, ["w"])
    assert not await ownership.beat(pool, "w", "host")


@pytest.mark.asyncio
async def test_a_notebook_is_not_released_while_a_command_waits(pool: Any) -> None:
    await make(pool, "a")
    claim = await ownership.claim(pool, "a", "w1")
    assert claim is not None
    await asking.ask(pool, "a", "owner", "x", {"id": "x", "kind": "run_all"})
    assert not await ownership.release(pool, "a", claim.epoch, only_idle=True)
    assert await ownership.release(pool, "a", claim.epoch, only_idle=False)
    assert await ownership.wanted(pool, "w2") == ["a"]


@pytest.mark.asyncio
async def test_the_hot_statements_use_their_indexes(pool: Any) -> None:
    await make(pool, *[f"n{number}" for number in range(300)])
    await pool.execute(
        """
        INSERT INTO frame (notebook_id, seq, at, kind, body)
        SELECT id, g, now(), 'output', '{}' FROM notebook, generate_series(2, 60) g;
        """
    )
    await pool.execute(
        """
        INSERT INTO command (notebook_id, id, by, body, consumed)
        SELECT id, 'c' || g, 'owner', '{}', g < 20 FROM notebook, generate_series(1, 20) g;
        """
    )
    await pool.execute("ANALYZE")
    for statement in (
        reading.FRAMES.replace("$1", "'n7'").replace("$2", "40").replace("$3", "100").replace("$4", "100000"),
        "SELECT id, by, body FROM command WHERE notebook_id = 'n7' AND NOT consumed ORDER BY ord LIMIT 200",
    ):
        plan = "\n".join(row[0] for row in await pool.fetch(f"EXPLAIN {statement}"))
        assert "Seq Scan" not in plan, plan
