"""A server for benchmarks: embedded PostgreSQL, the store's thread, the web thread with the real API, as in `serve`.

Engines are real sessions without a sandbox: what they append goes through step, commit, hint and fold as always.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import trio

from app import web
from app.process import SWITCH_SECONDS, collect_garbage, sandbox_config
from app.settings import Settings
from engine.decide import first_frames
from engine.feed import Feed
from engine.frames import draft
from engine.journal import Journal
from engine.machine import Machine
from engine.session import Session, SessionConfig
from engine.store import asking, embedded, schema

TOKEN = "a-token-for-benchmarks-only"


@contextlib.contextmanager
def database() -> Iterator[tuple[str, Path]]:
    """A fresh embedded PostgreSQL with the schema; its address and data folder."""
    with tempfile.TemporaryDirectory(prefix="nightbook-bench-") as folder:
        own = embedded.start(Path(folder))
        try:
            asyncio.run(schema.migrate(own.dsn))
            yield own.dsn, Path(folder)
        finally:
            own.release()


class House:
    """A running server. `engines` are awake sessions by notebook id."""

    def __init__(self, journal: Journal, port: int, settings: Settings) -> None:
        self.journal = journal
        self.port = port
        self.engines: dict[str, Session] = {}
        self.folder = settings.data
        self.sandboxes = sandbox_config(settings)
        self._config = SessionConfig(self.sandboxes, "bench", Machine("bench", "bench"), 300, 300)

    async def wake(self, count: int, first: int = 0) -> list[str]:
        """Makes notebooks with one cell and wakes an engine for each."""
        ids = [f"bench{number:05}" for number in range(first, first + count)]
        for notebook_id in ids:
            drafts = first_frames("Bench", [("c", "python", "")], "owner")
            await self.journal._bridge.run(asking.create, self.journal._pool, notebook_id, "Bench", drafts, 1)
            claim = await self.journal.claim(notebook_id, "bench")
            assert claim is not None
            session = Session(notebook_id, claim, self.journal, self._config)
            session.notebook = await self.journal.load(notebook_id)
            await session._commit(
                [
                    draft("run", event="queued", run_id="r", cell_id="c"),
                    draft("run", event="started", run_id="r", cell_id="c", sandbox="s"),
                ]
            )
            self.engines[notebook_id] = session
        return ids

    async def append(self, notebook_id: str, text: str, frames: int = 1) -> None:
        """One step of `frames` output frames."""
        drafts = [draft("output", run_id="r", cell_id="c", text=text, stream="stdout") for _ in range(frames)]
        await self.engines[notebook_id]._commit(drafts)

    async def append_steadily(self, ids: list[str], per_second: float, seconds: float) -> None:
        """Each notebook appends the time (ns) as text at a steady rate, one after the other within a period.

        One clock wakes all engines, as sandboxes would by their records: a timer each would be what is measured.
        """
        due: dict[str, deque[int]] = {notebook_id: deque() for notebook_id in ids}
        waiting: dict[str, trio.Event] = {notebook_id: trio.Event() for notebook_id in ids}
        frames = int(per_second * seconds)

        async def engine(notebook_id: str) -> None:
            for _ in range(frames):
                if not due[notebook_id]:
                    waiting[notebook_id] = trio.Event()
                    await waiting[notebook_id].wait()
                await self.append(notebook_id, str(due[notebook_id].popleft()))

        async with trio.open_nursery() as nursery:
            for notebook_id in ids:
                nursery.start_soon(engine, notebook_id)
            start = trio.current_time() + 0.2
            for number in range(frames * len(ids)):
                await trio.sleep_until(start + number / per_second / len(ids))
                notebook_id = ids[number % len(ids)]
                due[notebook_id].append(time.time_ns())
                waiting[notebook_id].set()


@contextlib.asynccontextmanager
async def house(dsn: str, folder: Path) -> AsyncIterator[House]:
    """Serves in this process as `nightbook serve` does, without its supervisor."""
    sys.setswitchinterval(SWITCH_SECONDS)
    settings = Settings(data=folder, token=TOKEN, port=0)  # type: ignore[arg-type]
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    port = listener.getsockname()[1]
    journal = Journal(dsn)
    await journal.start(lambda _: None)
    thread = web.WebThread(
        web.build(settings, Feed(dsn, web.feed_config(settings)), TOKEN, port, lambda: True), listener, lambda _: None
    )
    thread.start()
    while not thread.started:
        await trio.sleep(0.01)
    collect_garbage()
    try:
        yield House(journal, port, settings)
    finally:
        await trio.to_thread.run_sync(thread.stop)
        await journal.stop()
        listener.close()
