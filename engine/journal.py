"""The journal as an engine sees it, in trio: load, commit, read commands. Behind it stand the store's loop and SQL."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, TypeVar

import asyncpg
import outcome
import trio

from engine.notebook import Notebook
from engine.store import asking, carets, files, ownership, questions, reading
from engine.store.bridge import Bridge
from engine.store.listen import listen
from engine.store.pools import open_pool
from engine.store.steps import UNREACHABLE, BadStep, FencedStep, Pending, Projection, Step, Withdrawn, Writer

__all__ = ["BadStep", "FencedStep", "Journal", "Projection", "Step"]

log = logging.getLogger(__name__)

POOL_SIZE = 6
PATIENCE_SECONDS = 30.0  # for one statement; then it is tried again, on another connection
AWAY_SECONDS = 0.5  # before a database that was away is asked again
T = TypeVar("T")


class Journal:
    """Owns the store's thread, its pool, the group-commit writer and the LISTEN connection for commands.

    `on_hint(notebook_id)` is called in the trio thread for each command hint, with "*" after a (re)connection: look
    everywhere.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._bridge = Bridge("store")
        self._pool: asyncpg.Pool[Any] | None = None
        self._writer: Writer | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._answers: deque[tuple[trio.lowlevel.Task, datetime | Exception]] = deque()
        self._crossing = False

    async def start(self, on_hint: Callable[[str], None], on_question: Callable[[str], None] | None = None) -> None:
        """Connects. Raises asyncpg's errors or OSError when the database cannot be reached."""
        self._bridge.start()
        self._token = token = trio.lowlevel.current_trio_token()

        def hint(payload: str) -> None:
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(on_hint, payload, idempotent=False)

        def question(payload: str) -> None:
            with contextlib.suppress(trio.RunFinishedError):
                if on_question is not None:
                    token.run_sync_soon(on_question, payload, idempotent=False)

        await self._bridge.run(self._open, hint, question)

    async def _open(self, hint: Callable[[str], None], question: Callable[[str], None]) -> None:
        self._pool = await open_pool(self._dsn, "nightbook store", POOL_SIZE, PATIENCE_SECONDS)
        self._writer = Writer(self._pool)
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._writer.run()),
            loop.create_task(
                listen(
                    self._dsn,
                    {"nightbook_commands": hint, "nightbook_questions": question},
                    connected=lambda: hint("*"),
                    away=lambda: None,
                )
            ),
        ]

    async def stop(self) -> None:
        """Closes connections and ends the thread."""
        with trio.move_on_after(5) as scope:
            scope.shield = True
            await self._bridge.run(self._close)
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._bridge.stop)

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._pool is not None:
            self._pool.terminate()

    @property
    def away(self) -> bool:
        """Whether the database could not be reached at the last attempt to commit."""
        return self._writer is not None and self._writer.away

    @property
    def commits(self) -> int:
        """Statements committed so far; each may hold the steps of many notebooks."""
        return 0 if self._writer is None else self._writer.commits

    async def commit(self, step: Step) -> datetime:
        """Commits a step; returns its time on the database clock. Raises `FencedStep` or `BadStep`.

        While the database is away this waits.
        """
        task = trio.lowlevel.current_task()
        pending = Pending(step, lambda result: self._answer(task, result))
        raise_cancelled: list[Callable[[], Any]] = []

        def abort(raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
            raise_cancelled.append(raise_cancel)
            pending.withdrawn = True
            return trio.lowlevel.Abort.FAILED

        assert self._writer is not None
        self._writer.submit(pending)
        result: datetime | Exception = await trio.lowlevel.wait_task_rescheduled(abort)
        if isinstance(result, Withdrawn):
            raise_cancelled[0]()
        if isinstance(result, Exception):
            raise result
        return result

    def _answer(self, task: trio.lowlevel.Task, result: datetime | Exception) -> None:
        """On the store's loop: the answers of a whole batch cross into trio with one wake-up."""
        self._answers.append((task, result))
        if not self._crossing:
            self._crossing = True
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._deliver)

    def _deliver(self) -> None:
        self._crossing = False  # first: an answer that comes from now on crosses by itself
        while self._answers:
            task, result = self._answers.popleft()
            trio.lowlevel.reschedule(task, outcome.Value(result))

    async def load(self, notebook_id: str) -> Notebook:
        """The folded notebook at its head. Raises `reading.UnknownNotebook`."""
        return await self.query(reading.load_notebook, notebook_id)

    async def query(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """`await function(pool, *args)` on the store's loop, again and again while the database is away.

        For what may be done twice: engines hold while the database is away.
        """
        told = False
        while True:
            try:
                return await self._bridge.run(function, self._pool, *args)
            except UNREACHABLE as error:
                if not told:
                    log.warning("database away: %s: %s", type(error).__name__, error)
                told = True
                await trio.sleep(AWAY_SECONDS)

    async def save_snapshot(self, notebook: Notebook) -> None:
        await self.query(reading.save_snapshot, notebook)

    async def waiting(self, notebook_id: str) -> list[asking.WaitingCommand]:
        """Commands not yet taken, oldest first."""
        return await self.query(asking.waiting, notebook_id)

    async def keep_blob(self, notebook_id: str, mime: str, encoding: str | None, data: bytes) -> str:
        """Stores bytes; returns their sha256."""
        return await self.query(asking.keep_blob, notebook_id, mime, encoding, data)

    async def keep_files(self, notebook_id: str, items: Sequence[bytes]) -> list[str]:
        """Stores the bytes of files; returns their digests."""
        return await self.query(files.keep_all, notebook_id, items)

    async def file_contents(self, notebook_id: str, names: Sequence[str]) -> dict[str, bytes]:
        """The bytes of these digests."""
        return await self.query(files.contents, notebook_id, names)

    async def file_digests(self, notebook_id: str, paths: Sequence[str]) -> dict[str, set[str]]:
        """What each path ever held, by digest."""
        return await self.query(files.digests, notebook_id, paths)

    async def last_versions(self, notebook_id: str, paths: Sequence[str]) -> dict[str, int]:
        """The highest version of each path that has one."""
        return await self.query(files.last_versions, notebook_id, paths)

    async def beat(self, worker_id: str, host: str) -> bool:
        return await self._bridge.run(ownership.beat, self._pool, worker_id, host)

    async def bury(self, worker_ids: list[str]) -> None:
        await self._bridge.run(ownership.bury, self._pool, worker_ids)

    async def living(self, host: str) -> list[str]:
        return await self._bridge.run(ownership.living, self._pool, host)

    async def claim(self, notebook_id: str, worker_id: str) -> ownership.Claim | None:
        return await self._bridge.run(ownership.claim, self._pool, notebook_id, worker_id)

    async def release(self, notebook_id: str, epoch: int, *, only_idle: bool) -> bool:
        return await self.query(ownership.release, notebook_id, epoch, only_idle)

    async def wanted(self, worker_id: str) -> list[str]:
        return await self._bridge.run(ownership.wanted, self._pool, worker_id)

    async def elsewhere(self, notebook_ids: Sequence[str], host: str) -> dict[str, int]:
        """Those of the notebooks that another machine has, or had since, with their epochs."""
        return await self.query(ownership.elsewhere, notebook_ids, host)

    async def owned_with_news(self, worker_id: str) -> list[str]:
        return await self._bridge.run(ownership.owned_with_news, self._pool, worker_id)

    async def orphans(self, worker_id: str, known: list[str]) -> list[str]:
        return await self._bridge.run(ownership.orphans, self._pool, worker_id, known)

    async def forget_presence(self) -> None:
        await self._bridge.run(asking.forget_presence, self._pool)
        await self._bridge.run(questions.forget, self._pool)
        await self._bridge.run(carets.forget, self._pool)

    async def questions(self, notebook_id: str) -> list[questions.Question]:
        """What pages ask the kernel of a notebook; each is given out once."""
        return await self._bridge.run(questions.take, self._pool, notebook_id)

    async def answer_question(self, question_id: int, body: dict[str, Any]) -> None:
        await self._bridge.run(questions.answer, self._pool, question_id, body)
