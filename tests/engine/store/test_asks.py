"""Asks as rows: the first verdict stands, a person's before the time is over, silence's from then on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from e2e.scale import SOAK
from engine.frames import draft
from engine.store import asking, asks, ownership
from engine.store.steps import Row, Step, Writer
from tests.engine.store.test_steps import Committer, make

BODY = {"ask": "a", "call": "k", "tool": "shell", "title": "t", "command": "ls", "seconds": 300}


@pytest_asyncio.fixture
async def pool(database: str) -> AsyncIterator[Any]:
    pool = await asyncpg.create_pool(database, min_size=4, max_size=16)
    await make(pool, "n")
    yield pool
    await pool.close()


async def ask(pool: Any, ask_id: str = "a", seconds: float = 300, notebook_id: str = "n") -> str:
    await pool.execute(
        """
        INSERT INTO ask (notebook_id, id, cell_id, run_id, call_id, digest, body, due_at)
        VALUES ($1, $2, 'c', 'r', 'k', 'd', '{"title": "t"}', now() + $3::float8 * interval '1 s')
        """,
        notebook_id,
        ask_id,
        seconds,
    )
    return ask_id


@pytest.mark.asyncio
async def test_a_person_decides_once_and_is_told_what_stands(pool: Any) -> None:
    await ask(pool)
    first = await asks.decide(pool, "a", "approve", "once", "fine", "ada")
    assert first is not None
    assert (first.verdict, first.reason, first.scope, first.message, first.by) == (
        "approve", "person", "once", "fine", "ada",
    )  # fmt: skip
    assert await asks.decide(pool, "a", "deny", None, None, "bob") is None
    stands = await asks.find(pool, "a")
    assert stands is not None
    assert (stands.by, stands.decided_at) == ("ada", first.decided_at)


@pytest.mark.asyncio
async def test_past_its_time_no_approval_counts_though_no_engine_ran(pool: Any) -> None:
    """Invariant 5: silence is no."""
    await ask(pool, seconds=-0.001)
    assert await asks.decide(pool, "a", "approve", "once", None, "ada") is None
    assert await asks.park(pool, "a") is None
    assert await asks.all_open(pool) == []
    await asks.time_out(pool, "n", ["a"])
    [late] = await asks.untold(pool, "n")
    assert (late.verdict, late.reason, late.by) == ("deny", "timeout", None)


@pytest.mark.asyncio
async def test_the_time_does_not_run_out_early(pool: Any) -> None:
    await ask(pool, seconds=60)
    await asks.time_out(pool, "n", ["a"])
    [still] = await asks.untold(pool, "n")
    assert still.open
    assert 55 < still.left <= 60


@pytest.mark.asyncio
async def test_nobody_is_there_is_checked_where_it_is_decided(pool: Any) -> None:
    await ask(pool)
    for place, can_decide in (("n", True), ("inbox", True), ("n", False), ("elsewhere", True)):
        await asking.show_presence(pool, "web", [(place, "ada", can_decide)])
        there = can_decide and place != "elsewhere"
        assert await asks.present(pool, "n") is there
        if there:
            await asks.give_up(pool, "n", ["a"])
            assert (await asks.untold(pool, "n"))[0].open
    await pool.execute("UPDATE presence SET until = now() - interval '1 s', can_decide = true, place = 'n'")
    assert not await asks.present(pool, "n")
    await asks.give_up(pool, "n", ["a"])
    assert (await asks.untold(pool, "n"))[0].reason == "no_operator"


@pytest.mark.asyncio
async def test_a_parked_ask_waits_for_a_day_and_is_parked_once(pool: Any) -> None:
    await ask(pool)
    parked = await asks.park(pool, "a")
    assert parked is not None
    assert parked.parked
    assert parked.left == pytest.approx(24 * 3600, abs=5)
    assert await asks.park(pool, "a") is None
    assert await asks.decide(pool, "a", "deny", None, None, "ada") is not None


@pytest.mark.asyncio
async def test_open_asks_are_listed_with_their_notebook_the_most_urgent_first(pool: Any) -> None:
    await make(pool, "m")
    await ask(pool, "later", 200)
    await ask(pool, "soon", 100, "m")
    await ask(pool, "over", -1)
    await ask(pool, "decided", 50)
    await asks.decide(pool, "decided", "deny", None, None, "ada")
    assert [(row.ask.id, row.ask.notebook_id, row.title) for row in await asks.all_open(pool)] == [
        ("soon", "m", "t"), ("later", "n", "t"),
    ]  # fmt: skip
    assert await asks.count_open(pool) == 2


@pytest.mark.asyncio
@pytest.mark.parametrize("margin", ["at the end", *(["early", "late"] if SOAK else [])])
async def test_fifty_answers_and_the_timer_have_one_winner(pool: Any, margin: str) -> None:
    """Invariant 5: first wins, and everybody else is told who and when."""
    for number in range(50):
        seconds = {"early": 300, "at the end": 0.02, "late": 0}[margin]
        ask_id = await ask(pool, f"a{number}", seconds)

        async def timer(ask_id: str = ask_id) -> None:
            for _ in range(20):
                await asks.time_out(pool, "n", [ask_id])

        async def answer(member: str, ask_id: str = ask_id) -> bool:
            verdict = ("approve", "deny")[int(member) % 2]
            return await asks.decide(pool, ask_id, verdict, None, None, member) is not None

        *won, _ = await asyncio.gather(*(answer(str(one)) for one in range(50)), timer())
        await asks.time_out(pool, "n", [ask_id])
        stands = await asks.find(pool, ask_id)
        assert stands is not None
        assert stands.decided_at is not None
        winners = [str(member) for member, first in enumerate(won) if first]
        if stands.reason == "timeout":
            assert winners == []
            assert margin != "early"
            assert stands.decided_at >= stands.due_at
        else:
            assert winners == [stands.by]
            assert margin != "late"
            assert stands.decided_at < stands.due_at


@pytest.mark.asyncio
async def test_each_change_hints_at_the_engine_or_at_the_pages(pool: Any, database: str) -> None:
    heard: list[tuple[str, str]] = []
    connection = await asyncpg.connect(database)
    for channel in ("nightbook_commands", "nightbook_asks"):
        await connection.add_listener(channel, lambda _c, _p, name, payload: heard.append((name, payload)))

    async def hints() -> set[str]:
        await connection.fetchval("SELECT 1")
        names = {name for name, payload in heard if payload == "n"}
        heard.clear()
        return names

    await ask(pool)
    await asks.park(pool, "a")
    assert await hints() == {"nightbook_commands", "nightbook_asks"}
    await asks.decide(pool, "a", "approve", "once", None, "ada")
    assert await hints() == {"nightbook_commands", "nightbook_asks"}
    await ask(pool, "b", -1)
    await asks.time_out(pool, "n", ["b"])
    assert await hints() == {"nightbook_asks"}
    await ask(pool, "d")
    await asks.withdraw(pool, "n", ["d"], "cancelled")
    assert await hints() == {"nightbook_asks"}
    writer = Writer(pool)
    task = asyncio.create_task(writer.run())
    claim = await ownership.claim(pool, "n", "w")
    assert claim is not None
    row = Row(
        "ask", {"id": "e", "cell_id": "c", "run_id": "r", "call_id": "e", "digest": "d", "body": {}, "due_seconds": 9}
    )
    await Committer(writer).commit(Step("n", claim.epoch, claim.head, [draft("ask", **BODY)], rows=[row]))
    assert await hints() == {"nightbook_asks"}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await connection.close()


@pytest.mark.asyncio
async def test_a_verdict_that_no_engine_told_makes_the_notebook_wanted(pool: Any) -> None:
    await ask(pool, seconds=300)
    assert await ownership.wanted(pool, "w") == []
    await asks.decide(pool, "a", "approve", "once", None, "ada")
    assert await ownership.wanted(pool, "w") == ["n"]
    await pool.execute("UPDATE ask SET told = true")
    assert await ownership.wanted(pool, "w") == []
    await ask(pool, "b", seconds=-1)
    assert await ownership.wanted(pool, "w") == ["n"]


@pytest.mark.asyncio
async def test_the_hot_statements_use_their_indexes(pool: Any) -> None:
    await make(pool, *[f"n{number}" for number in range(300)])
    await pool.execute(
        """
        INSERT INTO ask (notebook_id, id, cell_id, run_id, call_id, digest, body, due_at, verdict, told)
        SELECT n.id, n.id || '-' || g, 'c', 'r' || g % 10, 'k' || g, 'd', '{}', now() + interval '5 min',
               CASE WHEN g > 1 THEN 'deny' END, g > 2
        FROM notebook n, generate_series(1, 60) g
        """
    )
    await pool.execute("ANALYZE")
    for statement in (
        asks.UNTOLD.replace("$1", "'n7'"),
        asks.OF_RUNS.replace("$1", "'n7'").replace("$2", "'{r1,r2}'"),
        asks.FIND.replace("$1", "'n7-1'"),
        asks.DECIDE.replace("$1", "'n7-1'").replace("$2", "'deny'").replace("$3", "NULL").replace("$4", "NULL")
        .replace("$5", "'ada'"),
        asks.COUNT,
    ):  # fmt: skip
        plan = "\n".join(row[0] for row in await pool.fetch(f"EXPLAIN {statement}"))
        assert "Seq Scan on ask" not in plan, plan
