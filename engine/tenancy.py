"""A session's hold on its sandbox: joining or starting it, asking it in order, reading its records, noticing its loss.

What each of these means for the notebook is said by the plain functions at the end, as frames to commit.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from engine import decide
from engine.frames import Draft, draft
from engine.machine import Machine
from engine.notebook import Notebook, Run
from engine.records import Records
from engine.sandbox.client import Fenced, Sandbox, SandboxAlive, SandboxConfig, SandboxError, SandboxLost

log = logging.getLogger(__name__)

PULSE_SECONDS = 10.0
SILENCES = 2  # requests without an answer, before a shim is looked at
STARTING_SECONDS = 0.1  # before a sandbox that another engine was starting is looked for again
REQUEST_SECONDS = 15.0  # a shim that does not answer within this is told of in the log, and asked again


class Tenancy:
    """One notebook's sandbox as its engine has it. `sandbox` is null while there is none.

    `cursor(sandbox_id)` is the last record of a sandbox that is committed. `wake` is called when there are `records` or
    `news`; `turned_away(run_id, reason)` when the sandbox will not run something.
    """

    def __init__(
        self,
        notebook_id: str,
        epoch: int,
        config: SandboxConfig,
        cursor: Callable[[str], int],
        wake: Callable[[], None],
        turned_away: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self.sandbox: Sandbox | None = None
        self.starting = False
        self.news: list[Sandbox | Exception] = []  # it started, failed to start, or died
        self.why: str | None = None  # why it died, where that is known
        self.records = Records()
        self.awaited: list[trio.Event] = []  # by what needs the sandbox and is no run
        self._not_awake = ""  # why the last one did not start
        self._id = notebook_id
        self._epoch = epoch
        self._config = config
        self._cursor = cursor
        self._wake = wake
        self._turned_away = turned_away
        self._requests: deque[tuple[str, tuple[Any, ...]]] = deque()
        self._requested = trio.Event()

    async def join(self) -> Sandbox | None:
        """The sandbox that lives already; null when there is none."""
        return await Sandbox.join(self._config, self._id, self._epoch, self._cursor)

    async def end_left_over(self) -> None:
        """Ends what lives here from before the notebook was elsewhere: its variables and files are of then."""
        if (left := await self.join()) is not None:
            log.info("notebook %s: what was left of it here is ended, as it was on another machine meanwhile", self._id)
            with trio.move_on_after(REQUEST_SECONDS):
                await left.shutdown()
            await left.aclose()

    async def start(self, prepare: Callable[[], Awaitable[None]]) -> None:
        """Starts one, after `prepare`; how that went becomes news. Raises `Fenced`."""
        news: Sandbox | Exception
        try:
            news = await self._join_or_start(prepare)
        except Fenced:
            raise
        except (OSError, SandboxError) as error:
            log.exception("notebook %s: sandbox", self._id)
            news = error
        self.news.append(news)
        self._wake()

    async def awake(self) -> Sandbox:
        """The sandbox, which the session starts when there is none. Raises `SandboxError`."""
        if self.sandbox is None:
            told = trio.Event()
            self.awaited.append(told)
            self._wake()
            try:
                await told.wait()
            finally:
                if told in self.awaited:
                    self.awaited.remove(told)
        if self.sandbox is None:
            raise SandboxError(f"the sandbox did not start: {self._not_awake}")
        return self.sandbox

    def told(self, reason: str) -> None:
        """It is awake, or did not start for `reason`: who waits for it goes on."""
        self._not_awake = reason
        for told in self.awaited:
            told.set()
        self.awaited.clear()

    async def _join_or_start(self, prepare: Callable[[], Awaitable[None]]) -> Sandbox:
        """One may be alive though the journal does not say so: a crash came between its start and the commit.

        That start may be going on still, its shim holding the lock and not listening yet: no reason to fail a run.
        """
        given_up = trio.current_time() + REQUEST_SECONDS
        while True:
            if (joined := await self.join()) is not None:
                return joined
            await prepare()
            try:
                return await Sandbox.start(self._config, self._id, self._epoch)
            except SandboxAlive:
                if trio.current_time() > given_up:
                    raise
                await trio.sleep(STARTING_SECONDS)

    def take(self, sandbox: Sandbox) -> None:
        """From now on it is ours. The caller starts `read`."""
        self.sandbox, self.why = sandbox, None
        if (upto := self._cursor(sandbox.id)) > 0:
            self.request("ack", upto)  # the engine before may have died between its commit and this

    def let_go(self) -> Sandbox | None:
        """The sandbox, which is ours no more; what was still to be asked of it is asked of no other."""
        sandbox, self.sandbox = self.sandbox, None
        self._requests.clear()
        return sandbox

    def request(self, name: str, *args: Any) -> None:
        """Asks the shim, after what it was asked before and without waiting for the answer."""
        if name == "ack" and self._requests and self._requests[-1][0] == "ack":
            self._requests.pop()
        self._requests.append((name, args))
        self._requested.set()

    async def ask(self) -> None:
        """Sends requests in their order, each again until it is answered: the shim knows what it was asked before."""
        while True:
            while not self._requests or self.sandbox is None:
                self._requests.clear()  # without a sandbox there is nobody to ask; its runs are ended by `lost`
                self._requested = trio.Event()
                await self._requested.wait()
            name, args = self._requests[0]
            try:
                with trio.fail_after(REQUEST_SECONDS):
                    await getattr(self.sandbox, name)(*args)
            except trio.TooSlowError:
                log.warning("notebook %s: the sandbox does not answer to %s", self._id, name)
                continue
            except Fenced:
                raise
            except trio.ClosedResourceError:
                continue
            except SandboxError as error:  # that it is lost, the reader tells
                log.warning("notebook %s: %s: %s", self._id, name, error)
                if name == "execute" and not isinstance(error, SandboxLost):
                    await self._turned_away(args[0], str(error))
            if self._requests and self._requests[0] == (name, args):
                self._requests.popleft()

    async def watch(self, busy: Callable[[], bool]) -> None:
        """While something runs, sees to it that the shim answers: one that a signal stopped would keep it running for
        ever."""
        silences = 0
        while True:
            await trio.sleep(PULSE_SECONDS)
            sandbox = self.sandbox
            if sandbox is None or not busy():
                silences = 0
                continue
            with (
                trio.move_on_after(REQUEST_SECONDS) as scope,
                contextlib.suppress(SandboxError, trio.ClosedResourceError),
            ):
                await sandbox.status()
            silences = silences + 1 if scope.cancelled_caught else 0
            if silences >= SILENCES and sandbox.end_if_frozen():
                self.why = "the sandbox was stopped by a signal and did not go on, so it was ended"
                log.warning("notebook %s: %s", self._id, self.why)

    async def read(self, sandbox: Sandbox) -> None:
        """Takes records from the shim; stops reading while the loop is behind, and so slows the programs."""
        try:
            while True:
                await self.records.put(await sandbox.records())
                self._wake()
        except Fenced:
            raise
        except trio.ClosedResourceError:
            return  # closed by the loop itself: the notebook goes to sleep, or the sandbox was lost already
        except SandboxError as lost:
            if sandbox is self.sandbox:
                self.news.append(lost)
                self._wake()


def under_way(notebook: Notebook) -> list[Run]:
    """The runs that need the sandbox they began in. A turn does not: it outlives any."""
    return [run for run in notebook.runs.values() if run.state in decide.ACTIVE and not run.is_turn]


def starting(machine: Machine) -> Draft:
    """A sandbox is about to be started here."""
    return draft("session", event="sandbox", state="starting", kernel="none", host=machine.id, machine=machine.name)


def joined(notebook: Notebook, sandbox: Sandbox, machine: Machine) -> list[Draft]:
    """A sandbox is there: runs of another sandbox's life can have no end any more."""
    drafts = [
        draft(
            "session",
            event="sandbox",
            state="awake",
            sandbox=sandbox.id,
            host=machine.id,
            machine=machine.name,
            isolation=sandbox.isolation,
            kernel=sandbox.kernel,
        )
    ]
    for run in under_way(notebook):
        if run.sandbox != sandbox.id:
            drafts += ended_lost(notebook, run, "the sandbox it ran in is gone")
        elif run.state == "cancelling" and run.parent is not None and run.id not in sandbox.runs:
            drafts.append(decide.end(run, "cancelled", "stopped before it began"))  # nobody will ask for it now
    return drafts


def lost(notebook: Notebook, reason: str) -> list[Draft]:
    """The sandbox is gone, and all that ran in it."""
    state = "asleep" if not notebook.runs else "lost"
    drafts = [draft("session", event="sandbox", state=state, kernel=kernel_left(notebook), reason=reason)]
    for run in under_way(notebook):
        drafts += ended_lost(notebook, run, reason)
    return drafts


def ended_lost(notebook: Notebook, run: Run, reason: str) -> list[Draft]:
    """One run ends without its own word."""
    status = "cancelled" if run.state == "cancelling" else "error"
    gone = True if run.parent is not None else None
    return [decide.end(run, status, reason, lost=gone), *decide.after_end(notebook, run, status)]


def not_started(notebook: Notebook, reason: str) -> list[Draft]:
    """No sandbox could be had: whoever waits for it is told; nothing ran."""
    drafts = [draft("session", event="sandbox", state="lost", kernel="none", reason=f"did not start: {reason}")]
    for run in notebook.runs.values():
        if not run.is_turn:
            drafts.append(decide.end(run, "error", f"the sandbox did not start: {reason}"))
            drafts += [item for item in decide.after_end(notebook, run, "error") if _of_turn(notebook, item)]
    return drafts


def kernel_left(notebook: Notebook) -> str:
    """What a sandbox that is gone leaves of its kernel: variables that are gone, where there were any."""
    return "none" if notebook.sandbox.kernel == "none" else "gone"


def _of_turn(notebook: Notebook, item: Draft) -> bool:
    return item.run_id is not None and notebook.runs[item.run_id].is_turn
