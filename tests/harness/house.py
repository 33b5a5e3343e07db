"""The processes under fire: `serve`, or `web` and `worker` apart, on an embedded PostgreSQL; each may die."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from e2e.server import Server, processes_on
from e2e.waiting import until
from engine.store import embedded, reading

TOKEN = "a-token-for-the-harness"
SETTINGS: dict[str, Any] = {
    "TOKEN": TOKEN,
    "POLL_SECONDS": 1,
    "SANDBOX_IDLE_SECONDS": 1,  # so that a sandbox which is not kept awake would fall asleep under its program
    "APPROVAL_SECONDS": 600,
    "OPERATOR_GRACE_SECONDS": 600,
}


class House:
    """One data folder with its processes. `apart`: web and worker as two processes, else `serve` is both."""

    def __init__(self, data: Path, *, apart: bool) -> None:
        self.data = data
        self.apart = apart
        self.database = embedded.start(data)
        self.web = Server(data, "web" if apart else "serve", **SETTINGS)
        self.workers = [Server(data, "worker", **SETTINGS)] if apart else []
        self._connection: asyncpg.Connection[Any] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="harness sql", daemon=True)
        self._thread.start()
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_ready()

    @property
    def servers(self) -> list[Server]:
        return [self.web, *self.workers]

    def assert_alive(self) -> None:
        """Nobody dies but of what we do."""
        for server in self.servers:
            assert server.running, f"{server} ended by itself:\n{server.told()[-4000:]}"

    # Troubles

    def kill(self, which: Server, dead_seconds: float) -> None:
        """kill -9, and up again after a while."""
        self.assert_alive()
        which.kill()
        time.sleep(dead_seconds)
        which.start()

    def kill_all(self, dead_seconds: float) -> None:
        """Every process of the server at once; the sandboxes stay."""
        self.assert_alive()
        for server in self.servers:
            assert server.process is not None
            server.process.kill()
        for server in self.servers:
            server.kill()
        time.sleep(dead_seconds)
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_ready()

    def kill_database(self, dead_seconds: float) -> None:
        """kill -9 of PostgreSQL's first process: what it had not written to disk is gone."""
        [pid] = self._postmasters()
        os.kill(pid, signal.SIGKILL)
        until(lambda: not psutil.pid_exists(pid) or pid not in self._postmasters(), "PostgreSQL is dead")
        time.sleep(dead_seconds)
        with contextlib.suppress(Exception):
            self.database.release()
        self.database = embedded.start(self.data)

    def _postmasters(self) -> list[int]:
        found = []
        for process, _ in processes_on(self.data / "postgres"):
            with contextlib.suppress(psutil.Error):
                parent = process.parent()
                own = process.name().startswith("postgres") and process.status() != psutil.STATUS_ZOMBIE
                if own and (parent is None or not parent.name().startswith("postgres")):
                    found.append(process.pid)
        return found

    def freeze(self, seconds: float) -> None:
        """SIGSTOP until another worker has taken over what it had (its 15 s are over, as the database sees it)."""
        frozen = self.workers[0]
        os.kill(frozen.pid, signal.SIGSTOP)
        self.sql("UPDATE worker SET until = now() - interval '1 s'")
        other = Server(self.data, "worker", **SETTINGS)
        self.workers.append(other)
        other.start()
        time.sleep(seconds)
        os.kill(frozen.pid, signal.SIGCONT)
        time.sleep(seconds)
        assert frozen.running, "a worker that was fenced goes on with what is its own"
        frozen.kill()
        self.workers.remove(frozen)

    # Looking

    def sql(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """Rows, though the database may just be away."""

        async def ask() -> list[dict[str, Any]]:
            if self._connection is None or self._connection.is_closed():
                self._connection = await asyncpg.connect(self.database.dsn, timeout=5)
            try:
                return [dict(row) for row in await self._connection.fetch(statement, *values, timeout=20)]
            except BaseException:
                self._connection.terminate()
                raise

        return self._patiently(ask)

    def journal(self, notebook_id: str) -> list[dict[str, Any]]:
        """All frames, as viewers would get them, read from the table."""

        async def read() -> list[dict[str, Any]]:
            pool = await asyncpg.create_pool(self.database.dsn, min_size=1, max_size=1, timeout=5)
            try:
                found: list[dict[str, Any]] = []
                while more := await reading.frames(pool, notebook_id, found[-1]["seq"] if found else 0):
                    found += [json.loads(frame.line) for frame in more]
                return found
            finally:
                await pool.close()

        return self._patiently(read)

    def _patiently(self, work: Callable[[], Coroutine[Any, Any, list[dict[str, Any]]]]) -> list[dict[str, Any]]:
        deadline = time.monotonic() + 120
        while True:
            try:
                return asyncio.run_coroutine_threadsafe(work(), self._loop).result(40)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    # The end

    def close(self) -> list[str]:
        """Ends everything; returns what is left all the same."""
        for server in self.servers:
            if server.running:
                server.terminate()
        self.web.stop_all()
        if self._connection is not None:
            self._loop.call_soon_threadsafe(self._connection.terminate)
        self.database.release()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()
        with contextlib.suppress(AssertionError):
            until(lambda: not self.web.left_behind(), "nothing is left", 10)
        return self.web.left_behind()

    def logs(self) -> Iterator[str]:
        """What the processes said."""
        for path in sorted(self.data.parent.glob("*.log")):
            yield f"--- {path.name}\n{path.read_text(errors='replace')[-8000:]}"
