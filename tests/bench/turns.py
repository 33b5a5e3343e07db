"""Turns that talk at once: from a piece of a model's reply to an SSE client, and how many frames the pieces made."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import trio

from engine.agent.calls import Conversation, Reply, Thought, ToolSpec
from engine.decide import first_frames
from engine.ids import new_id
from engine.store import asking
from engine.supervisor import Supervisor
from tests.bench.house import House
from tests.bench.latency import client
from tests.bench.report import Figure, percentile
from tests.engine.scripted import Given


@dataclass
class Talker:
    """A model that says the time (ns) at a steady rate, as the providers of models send their pieces."""

    per_second: float
    seconds: float
    name: ClassVar[str] = "talker"

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AsyncIterator[Thought | Reply]:
        turn = int(conversation.request)
        start = trio.current_time() + 3.0 + turn % 97 / 97 / self.per_second
        for number in range(int(self.per_second * self.seconds)):
            await trio.sleep_until(start + number / self.per_second)
            yield Thought(f"{time.time_ns()} ")
        yield Reply()


async def talking(house: House, turns: int, per_second: float, seconds: float) -> tuple[list[float], int, int]:
    """Delays (ms) of the pieces of `turns` turns, each of them followed; pieces, and the frames that they made."""
    ids = [new_id() for _ in range(turns)]
    for number, notebook_id in enumerate(ids):
        drafts = first_frames("Bench", [("g", "agent", str(number))], "owner")
        await house.journal._bridge.run(asking.create, house.journal._pool, notebook_id, "Bench", drafts, 1)
        body = {"id": "run", "kind": "run_cell", "cell_id": "g"}
        await house.journal._bridge.run(asking.ask, house.journal._pool, notebook_id, "owner", "run", body)
    supervisor = Supervisor(
        house.journal, house.sandboxes, house.folder / "workers", poll=1.0, sandbox_idle=300, kernel_idle=300,
        models=Given(Talker(per_second, seconds)),
    )  # fmt: skip
    result: dict[str, Any] = {}

    async def watch(*, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        result.update(await client(house, ids, 2, 0, parse=True, task_status=task_status))

    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as watching:
            await watching.start(watch)
            nursery.start_soon(supervisor.serve)
        nursery.cancel_scope.cancel()
    thoughts = await house.journal._bridge.run(
        lambda: house.journal._pool.fetchval(  # type: ignore[union-attr]
            "SELECT count(*) FROM frame WHERE kind = 'thought' AND notebook_id = ANY($1::text[])", ids
        )
    )
    pieces = turns * int(per_second * seconds)
    assert len(result["delays"]) == pieces, f"{len(result['delays'])} of {pieces} pieces came"
    return result["delays"], pieces, thoughts


async def figures(house: House) -> list[Figure]:
    found = []
    for turns, per_second in ((200, 5), (20, 50)):
        delays, pieces, frames = await talking(house, turns, per_second, 10)
        name = f"{turns} turns at {per_second} pieces/s, piece to SSE client"
        found += [
            Figure(f"{name}, p50", percentile(delays, 0.5), "ms"),
            Figure(f"{name}, p99", percentile(delays, 0.99), "ms", "<= 250"),
            Figure(f"{pieces} pieces became", frames, "frames"),
        ]
    return found
