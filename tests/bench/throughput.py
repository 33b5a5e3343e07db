"""How many frames a second the journal takes from 100 engines, beside batched inserts of the same rows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import asyncpg
import trio

from engine.frames import draft
from engine.journal import Step
from tests.bench.house import House
from tests.bench.report import Figure

ENGINES = 100
STEPS = 60
LINE = "a line of output, as programs print them\n"
FRAMES = 5  # a step


async def journal(house: House, first: int) -> float:
    """Frames a second that the journal commits for `ENGINES` engines, each with one step at a time."""
    ids = await house.wake(ENGINES, first)
    drafts = [draft("output", run_id="r", cell_id="c", text=LINE, stream="stdout") for _ in range(FRAMES)]

    async def engine(notebook_id: str) -> None:
        session = house.engines[notebook_id]
        for head in range(session.notebook.seq, session.notebook.seq + STEPS * FRAMES, FRAMES):
            await house.journal.commit(Step(notebook_id, session.epoch, head, drafts))

    return await _rate(engine, ids)


async def engines(house: House) -> float:
    """The same with all that an engine does besides: frames made and checked, and the notebook folded."""

    async def engine(notebook_id: str) -> None:
        for _ in range(STEPS):
            await house.append(notebook_id, LINE, FRAMES)

    return await _rate(engine, await house.wake(ENGINES, 60000))


async def _rate(engine: Callable[[str], Awaitable[None]], ids: list[str]) -> float:
    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for notebook_id in ids:
            nursery.start_soon(engine, notebook_id)
    return ENGINES * STEPS * FRAMES / (time.perf_counter() - began)


async def raw(dsn: str) -> float:
    """Frames a second of bare asyncpg: the same rows, in batches of as many as 100 engines append at once."""

    async def run() -> float:
        connection = await asyncpg.connect(dsn)
        await connection.execute("DROP TABLE IF EXISTS raw_frame")
        await connection.execute("CREATE TABLE raw_frame (LIKE frame INCLUDING ALL)")
        body = draft("output", run_id="r", cell_id="c", text=LINE, stream="stdout").body
        at = datetime.now(UTC)
        began = time.perf_counter()
        for step in range(STEPS):
            rows = [
                (f"raw{engine:05}", step * FRAMES + frame, at, "output", "c", "r", None, None, body)
                for engine in range(ENGINES)
                for frame in range(FRAMES)
            ]
            await connection.executemany("INSERT INTO raw_frame VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)", rows)
        took = time.perf_counter() - began
        await connection.close()
        return ENGINES * STEPS * FRAMES / took

    return await trio.to_thread.run_sync(lambda: asyncio.run(run()))


async def figures(house: House, dsn: str) -> list[Figure]:
    name = "asyncpg executemany, same rows"
    # In turn, as the machine's speed drifts; the pair with the middle ratio is told.
    pairs = [(await journal(house, 50000 + 1000 * turn), await raw(dsn)) for turn in range(5)]
    ours, bare = sorted(pairs, key=lambda pair: pair[0] / pair[1])[2]
    return [
        Figure("journal with 100 engines", ours, "frames/s", ">= raw / 2", bare, name),
        Figure("100 whole engines: frames made, stored, folded", await engines(house), "frames/s", "", bare, name),
    ]
