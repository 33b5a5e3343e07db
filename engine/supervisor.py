"""The nursery of session engines of one worker: wakes notebooks that need one, takes over from workers that died."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import trio

from engine.ids import new_id
from engine.journal import Journal
from engine.machine import this_machine
from engine.sandbox.client import Sandbox, SandboxConfig, SandboxError, alive
from engine.session import Session, SessionConfig
from engine.store.ownership import BEAT_SECONDS
from engine.store.reading import UnknownNotebook
from engine.store.steps import UNREACHABLE

log = logging.getLogger(__name__)

MEMORY_SECONDS = 30.0
LEFT_OVER_SECONDS = 20.0  # a shim gives its programs 10 s to go
T = TypeVar("T")


class WorkerLock:
    """A lock file held for life: who can take it knows that the worker is dead, whatever its pid became."""

    def __init__(self, folder: Path, worker_id: str) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / f"{worker_id}.lock"
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._file)

    @staticmethod
    def dead(folder: Path, worker_id: str) -> bool:
        """Whether the worker's lock is there and free."""
        path = folder / f"{worker_id}.lock"
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        else:
            path.unlink(missing_ok=True)
            return True
        finally:
            os.close(file)


def too_much(total: int, allowed: int, sandboxes: Iterable[tuple[float | None, int, T]]) -> list[T]:
    """Which sandboxes (idle since, bytes, what) must go so that `total` falls to `allowed` bytes: oldest idle first."""
    chosen: list[T] = []
    idle = [(since, size, one) for since, size, one in sandboxes if since is not None]
    for _, size, one in sorted(idle, key=lambda item: item[0]):
        if total <= allowed:
            break
        chosen.append(one)
        total -= size
    return chosen


class Supervisor:
    """Runs session engines. `serve` runs until cancelled and then releases what it owns.

    `locks` is a folder that workers of this host and data share; `poll` seconds stand behind a lost hint; `turns` are
    the fields of `SessionConfig` that are about turns.
    """

    def __init__(
        self,
        journal: Journal,
        sandbox: SandboxConfig,
        locks: Path,
        *,
        poll: float,
        sandbox_idle: float,
        kernel_idle: float,
        **turns: Any,
    ) -> None:
        self.worker_id = f"w-{new_id()}"
        machine = this_machine(locks)
        self.host = machine.id
        self.ready = trio.Event()
        self._journal = journal
        self._locks = locks
        self._poll = poll
        self._memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        self._config = SessionConfig(sandbox, self.worker_id, machine, sandbox_idle, kernel_idle, **turns)
        self._sessions: dict[str, Session | None] = {}
        self._again: set[str] = set()
        self._look = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._leaving = False

    def statistics(self) -> dict[str, Any]:
        """Sessions awake now, and statements committed."""
        return {"sessions": len(self._sessions), "commits": self._journal.commits, "worker": self.worker_id}

    def leave(self) -> None:
        """Begins nothing new: no notebook is taken, no run started, no round of a turn begun."""
        self._leaving = True
        for session in self._sessions.values():
            if session is not None:
                session.leave()

    def settled(self) -> bool:
        """Whether every turn stands where stopping costs it nothing."""
        return all(session is None or session.settled for session in self._sessions.values())

    def hint(self, notebook_id: str) -> None:
        """A command may wait for the notebook; "*": anywhere."""
        if self._nursery is None:
            return
        if notebook_id == "*":
            self._look.set()
        else:
            self._wake(notebook_id)

    def question(self, notebook_id: str) -> None:
        """Somebody asks the kernel of a notebook; only one that is awake here can answer."""
        session = self._sessions.get(notebook_id)
        if session is not None:
            session.question()

    async def serve(self) -> None:
        lock = WorkerLock(self._locks, self.worker_id)
        try:
            await self._bury_dead()
            await self._journal.beat(self.worker_id, self.host)
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._beat)
                nursery.start_soon(self._end_left_over)
                nursery.start_soon(self._bound_memory)
                nursery.start_soon(self._watch)
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(5), contextlib.suppress(*UNREACHABLE):
                await self._journal.bury([self.worker_id])
            lock.close()

    async def _beat(self) -> None:
        while True:
            await trio.sleep(BEAT_SECONDS)
            try:
                if not await self._journal.beat(self.worker_id, self.host):
                    log.warning("this worker was taken for dead; what others took over meanwhile stays with them")
                    for session in self._sessions.values():
                        if session is not None:
                            session.doubt()
                await self._bury_dead()
                await self._journal.forget_presence()
            except UNREACHABLE as error:
                log.warning("database away: %s", error)

    async def _bury_dead(self) -> None:
        """Workers of this host whose process is gone need no 15 s to be known for dead."""
        dead = [
            worker
            for worker in await self._journal.living(self.host)
            if worker != self.worker_id and WorkerLock.dead(self._locks, worker)
        ]
        if dead:
            log.info("workers found dead: %s", ", ".join(dead))
            await self._journal.bury(dead)
            self._look.set()

    async def _end_left_over(self) -> None:
        """What runs here since before another machine took its notebook over was told as lost, so it ends."""
        config = self._config.sandbox
        folders = await trio.to_thread.run_sync(lambda: [path.name for path in config.root.glob("*") if alive(path)])
        for notebook_id, epoch in (await self._journal.elsewhere(folders, self.host)).items():
            log.info("notebook %s: it is on another machine now, so its sandbox here is ended", notebook_id)
            with contextlib.suppress(SandboxError, OSError):
                sandbox = await Sandbox.join(config, notebook_id, epoch, lambda _: 0)
                if sandbox is not None:
                    with trio.move_on_after(LEFT_OVER_SECONDS):
                        await sandbox.shutdown()
                    await sandbox.aclose()

    async def _watch(self) -> None:
        """Looks at everything: at the start, after a lost connection, and every few seconds behind lost hints."""
        while True:
            self._look = trio.Event()
            try:
                for notebook_id in await self._journal.wanted(self.worker_id):
                    self._wake(notebook_id)
                for notebook_id in await self._journal.orphans(self.worker_id, list(self._sessions)):
                    self._wake(notebook_id)
                for notebook_id in await self._journal.owned_with_news(self.worker_id):
                    self._wake(notebook_id)
                self.ready.set()
            except UNREACHABLE as error:
                log.warning("database away: %s", error)
            with trio.move_on_after(self._poll):
                await self._look.wait()

    async def _bound_memory(self) -> None:
        """Kernels may together use half of the machine's memory: past that, those idle for longest are given up."""
        while True:
            await trio.sleep(MEMORY_SECONDS)
            sessions = [session for session in self._sessions.values() if session is not None]
            used = {session: await session.memory() for session in sessions}
            total = sum(used.values())
            for session in too_much(total, self._memory, [(one.idle_since, used[one], one) for one in sessions]):
                log.info("notebook %s: its idle kernel is given up for memory", session.id)
                session.give_up_sandbox()

    def _wake(self, notebook_id: str) -> None:
        assert self._nursery is not None
        if self._leaving:
            return
        if notebook_id not in self._sessions:
            self._sessions[notebook_id] = None
            self._nursery.start_soon(self._own, notebook_id)
            return
        self._again.add(notebook_id)
        session = self._sessions[notebook_id]
        if session is not None:
            session.poke()

    async def _own(self, notebook_id: str) -> None:
        """Takes the notebook and serves it until its engine ends; again if it was asked for while it ended."""
        try:
            while True:
                self._again.discard(notebook_id)
                self._sessions[notebook_id] = None
                claim = await self._journal.claim(notebook_id, self.worker_id)
                if claim is None:
                    return
                session = Session(notebook_id, claim, self._journal, self._config)
                self._sessions[notebook_id] = session
                if self._leaving:
                    session.leave()
                self._again.discard(notebook_id)
                await session.run()
                if notebook_id not in self._again or self._leaving:
                    return
        except* (UnknownNotebook, *UNREACHABLE) as group:
            log.warning("notebook %s: %s", notebook_id, group.exceptions[0])
        except* Exception:
            # One notebook's fault is not the others'. It stays wanted: the next poll tries again.
            log.exception("notebook %s: its engine failed", notebook_id)
        finally:
            self._sessions.pop(notebook_id, None)
            self._again.discard(notebook_id)
