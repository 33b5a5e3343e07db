"""Where members were last: kept on the database's clock, never backwards, and read without the outputs in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from engine.frames import draft
from engine.history import Absence, absence
from engine.store import asking, visits


@pytest_asyncio.fixture
async def pool(database: str) -> AsyncIterator[Any]:
    pool = await asyncpg.create_pool(database, min_size=1, max_size=2)
    yield pool
    await pool.close()


def ended(cell: str, status: str) -> Any:
    return draft("run", event="ended", cell_id=cell, run_id=cell, status=status)


@pytest.mark.asyncio
async def test_a_visit_is_kept_by_member_and_never_goes_back(pool: Any) -> None:
    await asking.create(pool, "n", "t", [draft("session", event="created", title="t")], 0)
    assert await visits.left(pool, "n", "owner") is None
    await visits.keep(pool, [("n", "owner", 7), ("n", "maya", 3), ("unknown", "owner", 1)])
    await visits.keep(pool, [("n", "owner", 5)])
    left = await visits.left(pool, "n", "owner")
    assert left is not None
    assert (left.seq, left.seconds < 60) == (7, True)
    assert (await visits.left(pool, "n", "maya")).seq == 3  # type: ignore[union-attr]


@pytest.mark.asyncio
async def test_what_happened_since_is_read_without_outputs_and_bounded(pool: Any) -> None:
    outputs = [draft("output", cell_id="a", run_id="a", text="x", stream="stdout") for _ in range(50)]
    drafts = [ended("a", "done"), *outputs, ended("b", "error"), *outputs, ended("c", "done")]
    await asking.create(pool, "n", "t", [draft("session", event="created", title="t"), *drafts], 0)
    since = await visits.since(pool, "n", 2)
    assert [frame.kind for frame in since] == ["run", "run"]
    assert absence(since, "owner") == Absence(finished=1, failed=1)
    assert [frame.cell_id for frame in await visits.since(pool, "n", 0, limit=1)] == ["c"]


@pytest.mark.asyncio
async def test_it_is_read_by_its_index(pool: Any) -> None:
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(
            """
            INSERT INTO frame (notebook_id, seq, at, kind, body)
            SELECT 'n', i, now(), CASE WHEN i % 500 = 0 THEN 'run' ELSE 'output' END, '{}'
            FROM generate_series(1, 20000) AS i
            """
        )
        await connection.execute("ANALYZE frame")
        plan = await connection.fetch("EXPLAIN " + visits.SINCE, "n", 100, 5000)
    assert "frame_told" in "\n".join(row[0] for row in plan)
