"""How many frames a second the journal takes from 100 engines, beside batched inserts of the same rows."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import asyncpg
import trio

from engine.frames import draft
from tests.bench.house import House
from tests.bench.report import Figure

ENGINES = 100
STEPS = 60
FRAMES = 5  # a step


async def journal(house: House) -> float:
    """Frames a second of `ENGINES` engines that append as fast as they can."""
    ids = await house.wake(ENGINES, 50000)

    async def engine(notebook_id: str) -> None:
        for _ in range(STEPS):
            await house.append(notebook_id, "a line of output, as programs print them\n", FRAMES)

    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for notebook_id in ids:
            nursery.start_soon(engine, notebook_id)
    return ENGINES * STEPS * FRAMES / (time.perf_counter() - began)


async def raw(dsn: str) -> float:
    """Frames a second of bare asyncpg: the same rows, in batches of as many as 100 engines append at once."""

    async def run() -> float:
        connection = await asyncpg.connect(dsn)
        await connection.execute("CREATE TABLE raw_frame (LIKE frame INCLUDING ALL)")
        body = draft(
            "output", run_id="r", cell_id="c", text="a line of output, as programs print them\n", stream="stdout"
        ).body
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
    bare = await raw(dsn)
    ours = await journal(house)
    return [Figure("journal with 100 engines", ours, "frames/s", ">= raw / 2", bare, "asyncpg executemany, same rows")]
