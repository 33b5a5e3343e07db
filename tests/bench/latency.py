"""From an engine's append to an SSE client, and how quickly a late client has everything."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import asyncpg
import httpx
import trio

from engine.session import SNAPSHOT_FRAMES
from tests.bench.house import TOKEN, House
from tests.bench.report import Figure, percentile

FIRST = 4  # frames a notebook of the bench has before it is measured


async def client(
    house: House, ids: list[str], after: int, upto: int, *, parse: bool, task_status: Any
) -> dict[str, Any]:
    """Runs the readers; returns what they saw."""
    process = await trio.lowlevel.open_process(
        [
            sys.executable,
            "-m",
            "tests.bench.sse_client",
            str(house.port),
            TOKEN,
            str(after),
            str(upto),
            str(int(parse)),
            *ids,
        ],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    text = b""
    while b"\n" not in text:
        text += await process.stdout.receive_some(65536)
    task_status.started()
    while more := await process.stdout.receive_some(2**20):
        text += more
    await process.wait()
    result: dict[str, Any] = json.loads(text.split(b"\n", 1)[1])
    assert result["ordered"], "a frame was missing, double, or out of order"
    return result


async def steady(
    house: House, engines: int, watched: int, per_second: float, seconds: float, first: int
) -> list[float]:
    """Delays (ms) from append to client with `engines` appending at a steady rate, `watched` of them followed."""
    ids = await house.wake(engines, first)
    upto = FIRST + int(per_second * seconds)
    result: dict[str, Any] = {}

    async def watch(*, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        result.update(await client(house, ids[:watched], FIRST, upto, parse=True, task_status=task_status))

    async with trio.open_nursery() as nursery:
        await nursery.start(watch)
        await trio.sleep(0.5)  # the readers connect
        await house.append_steadily(ids, per_second, seconds)
    delays: list[float] = result["delays"]
    return delays


async def raw_notify(dsn: str, rounds: int = 300) -> list[float]:
    """The bare parts: INSERT and NOTIFY on one connection, the notification and a SELECT on another (ms)."""
    import asyncio

    async def run() -> list[float]:
        one, two = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
        await one.execute("CREATE TABLE IF NOT EXISTS raw_bench (id bigserial PRIMARY KEY, body json)")
        heard: asyncio.Queue[str] = asyncio.Queue()
        await two.add_listener("raw_bench", lambda *args: heard.put_nowait(str(args[3])))
        delays = []
        for _ in range(rounds):
            began = time.perf_counter()
            await one.fetch(
                "WITH i AS (INSERT INTO raw_bench (body) VALUES ($1::json) RETURNING id) "
                "SELECT pg_notify('raw_bench', id::text) FROM i",
                '{"text":"x"}',
            )
            await two.fetchrow("SELECT * FROM raw_bench WHERE id = $1", int(await heard.get()))
            delays.append((time.perf_counter() - began) * 1000)
        await one.close()
        await two.close()
        return delays

    return await trio.to_thread.run_sync(lambda: asyncio.run(run()))


async def replay(house: House, frames: int = 5000) -> float:
    """How long (ms) a client that has nothing waits for the last of `frames` frames of a notebook nobody watches."""
    [notebook_id] = await house.wake(1, 90000)
    for _ in range(frames // 100):
        await house.append(notebook_id, "a line of output, as programs print them\n", 100)
    took = []
    for _ in range(5):
        result: dict[str, Any] = {}

        async def watch(result: dict[str, Any] = result, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
            result.update(await client(house, [notebook_id], 0, FIRST + frames, parse=False, task_status=task_status))

        async with trio.open_nursery() as nursery:
            await nursery.start(watch)
        took.append(result["took"][0])
    return percentile(took, 0.5)


async def opened(house: House, frames: int = 100_000) -> float:
    """How long (ms) a reader waits for the folded notebook behind `frames` frames that nobody watches."""
    [notebook_id] = await house.wake(1, 91000)
    session = house.engines[notebook_id]
    for _ in range(frames // 500):
        await house.append(notebook_id, "a line of output, as programs print them\n", 500)
        if session.notebook.seq - session._snapshot_seq >= SNAPSHOT_FRAMES:
            await session._snapshot()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(headers=headers) as reader:
        began = time.perf_counter()
        answer = await reader.get(
            f"http://127.0.0.1:{house.port}/api/v1/notebooks/{notebook_id}",
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
        took = (time.perf_counter() - began) * 1000
    assert answer.json()["seq"] == FIRST + frames
    return took


async def raw_select(dsn: str, notebook_id: str = "bench90000") -> float:
    """The bare part of a replay: the same rows fetched by asyncpg (ms)."""
    import asyncio

    async def run() -> float:
        connection = await asyncpg.connect(dsn)
        took = []
        for _ in range(5):
            began = time.perf_counter()
            await connection.fetch("SELECT * FROM frame WHERE notebook_id = $1 ORDER BY seq", notebook_id)
            took.append((time.perf_counter() - began) * 1000)
        await connection.close()
        return percentile(took, 0.5)

    return await trio.to_thread.run_sync(lambda: asyncio.run(run()))


async def figures(house: House, dsn: str) -> list[Figure]:
    raw = await raw_notify(dsn)
    raw50, raw99 = percentile(raw, 0.5), percentile(raw, 0.99)
    some = await steady(house, 20, 20, 10, 10, 0)
    many = await steady(house, 1000, 100, 2, 10, 1000)
    replayed = await replay(house)
    raw_rows = await raw_select(dsn)
    first = await opened(house)
    name = "insert, notify, select"
    return [
        Figure(
            "append to SSE client, 20 notebooks at 10 frames/s, p50", percentile(some, 0.5), "ms", "<= 5", raw50, name
        ),
        Figure(
            "append to SSE client, 20 notebooks at 10 frames/s, p99", percentile(some, 0.99), "ms", "<= 15", raw99, name
        ),
        Figure(
            "the same, 1,000 engines at 2 frames/s, 100 followed, p50", percentile(many, 0.5), "ms", "", raw50, name
        ),
        Figure(
            "the same, 1,000 engines at 2 frames/s, 100 followed, p99",
            percentile(many, 0.99),
            "ms",
            "<= 30",
            raw99,
            name,
        ),
        Figure("5,000-frame replay to an SSE client", replayed, "ms", "<= 50", raw_rows, "asyncpg fetch of the rows"),
        Figure("a notebook of 100,000 frames read for the first time", first, "ms"),
    ]
