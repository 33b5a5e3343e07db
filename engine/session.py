"""A session engine: the trio task that owns one notebook while it is awake, and the only writer of its journal.

One loop takes what arrived (commands, records of the sandbox), commits it, and only then acts on it. Whatever it does
not get to, because the process dies, is found again: commands as rows, runs in the fold, records in the shim's spool.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import trio

from engine import commands as c
from engine import decide
from engine.frames import Draft, draft
from engine.journal import BadStep, FencedStep, Journal, Projection, Step
from engine.notebook import Notebook, Run, fold, frames_from, preview
from engine.records import Records, frames_of
from engine.sandbox.client import Fenced, Sandbox, SandboxConfig, SandboxError
from engine.store.ownership import Claim

log = logging.getLogger(__name__)

SNAPSHOT_FRAMES = 2000  # frames behind the last snapshot before another is kept
LINGER_SECONDS = 30.0  # an engine with nothing to do waits so long before it sleeps
REQUEST_SECONDS = 15.0  # a shim that does not answer within this is told of in the log, and asked again


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """What a session needs to know. Seconds."""

    sandbox: SandboxConfig
    worker: str
    sandbox_idle: float
    kernel_idle: float


class Session:
    """One awake notebook. `run` returns when it sleeps, was fenced, or is cancelled (then it has released it)."""

    def __init__(self, notebook_id: str, claim: Claim, journal: Journal, config: SessionConfig) -> None:
        self.id = notebook_id
        self.epoch = claim.epoch
        self.notebook = Notebook(notebook_id)
        self._claim = claim
        self._journal = journal
        self._config = config
        self._wake = trio.Event()
        self._commands_changed = True
        self._records = Records()
        self._sandbox: Sandbox | None = None
        self._sandbox_news: list[Sandbox | Exception] = []
        self._starting = False
        self._snapshot_seq = 0
        self._idle_since = trio.current_time()
        self._slept = False
        self._requests: deque[tuple[str, tuple[Any, ...]]] = deque()
        self._requested = trio.Event()
        self._nursery: trio.Nursery | None = None

    def poke(self) -> None:
        """There may be new commands."""
        self._commands_changed = True
        self._wake.set()

    async def memory(self) -> int:
        """Bytes that the programs of its sandbox use now; 0 without one, or when it does not answer in time."""
        with trio.move_on_after(REQUEST_SECONDS), contextlib.suppress(SandboxError):
            if self._sandbox is not None:
                used: int = (await self._sandbox.status())["memory"]
                return used
        return 0

    @property
    def idle_since(self) -> float | None:
        """Since when (trio time) its sandbox is awake with nothing to do; None when it is not."""
        return None if self.notebook.runs or self._starting or self._sandbox is None else self._idle_since

    def give_up_sandbox(self) -> None:
        """Its memory is needed elsewhere: sleeps as if its time had run out, unless something runs by then."""
        self._idle_since = -math.inf
        self._wake.set()

    async def run(self) -> None:
        """Serves the notebook until it sleeps. Raises nothing that its supervisor must handle, but its own faults."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._ask)
                await self._resume()
                await self._serve()
                nursery.cancel_scope.cancel()
        except* (FencedStep, Fenced):
            log.warning("notebook %s: another engine took over at a later epoch", self.id)
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(5):
                if self._sandbox is not None:
                    await self._sandbox.aclose()
                if not self._slept:
                    await self._journal.release(self.id, self.epoch, only_idle=False)

    # Taking up what is there

    async def _resume(self) -> None:
        """Folds the journal, re-joins the sandbox, and settles what ended with a sandbox that is gone."""
        self.notebook = await self._journal.load(self.id)
        self._snapshot_seq = self.notebook.seq
        crashed = self._claim.previous is not None
        event = "resumed" if crashed or self.notebook.runs else "woke"
        drafts = [draft("session", event=event, epoch=self.epoch, worker=self._config.worker)]
        if self.notebook.sandbox.state in ("awake", "starting"):
            sandbox = await self._join()
            if sandbox is None:
                drafts += self._lost("the sandbox is gone")
            else:
                drafts += self._joined(sandbox)
        elif any(run.state in decide.ACTIVE for run in self.notebook.runs.values()):
            drafts += self._lost("the sandbox is gone")
        await self._commit(drafts)
        self._repeat_requests()

    async def _join(self) -> Sandbox | None:
        return await Sandbox.join(
            self._config.sandbox, self.id, self.epoch, lambda known: self.notebook.cursor.get(known, 0)
        )

    def _joined(self, sandbox: Sandbox) -> list[Draft]:
        """Takes a sandbox over: runs of another sandbox's life can have no end any more."""
        self._sandbox = sandbox
        assert self._nursery is not None
        self._nursery.start_soon(self._read, sandbox)
        if (upto := self.notebook.cursor.get(sandbox.id)) is not None:
            self._request("ack", upto)  # the one before may have died between its commit and this
        drafts = [
            draft(
                "session",
                event="sandbox",
                state="awake",
                sandbox=sandbox.id,
                isolation=sandbox.isolation,
                kernel=sandbox.kernel,
            )
        ]
        for run in self.notebook.runs.values():
            if run.state in decide.ACTIVE and run.sandbox != sandbox.id:
                drafts += self._ended_lost(run, "the sandbox it ran in is gone")
        return drafts

    def _lost(self, reason: str) -> list[Draft]:
        state = "asleep" if not self.notebook.runs else "lost"
        drafts = [draft("session", event="sandbox", state=state, kernel=self._kernel_left(), reason=reason)]
        for run in self.notebook.runs.values():
            if run.state in decide.ACTIVE:
                drafts += self._ended_lost(run, reason)
        return drafts

    def _let_go(self) -> Sandbox | None:
        """The sandbox, which is ours no more; what was still to be asked of it is asked of no other."""
        sandbox, self._sandbox = self._sandbox, None
        self._requests.clear()
        return sandbox

    def _kernel_left(self) -> str:
        """What a sandbox that is gone leaves of its kernel: variables that are gone, where there were any."""
        return "none" if self.notebook.sandbox.kernel == "none" else "gone"

    def _ended_lost(self, run: Run, reason: str) -> list[Draft]:
        status = "cancelled" if run.state == "cancelling" else "error"
        return [decide.end(run, status, reason), *decide.after_end(self.notebook, run, status)]

    def _repeat_requests(self) -> None:
        """Asks again for what may not have reached the shim; it knows what it was asked before."""
        for run in self.notebook.runs.values():
            if run.state in decide.ACTIVE:
                self._execute(run)
            if run.state == "cancelling":  # behind its execute: the shim stops what it just started
                self._request("stop", run.id)

    # The loop

    async def _serve(self) -> None:
        while True:
            if self._sandbox_news:
                await self._take_news()
            if self._commands_changed:
                self._commands_changed = False
                await self._take_commands()
            if self._records:
                await self._take_records()
            await self._advance()
            if self.notebook.seq - self._snapshot_seq >= SNAPSHOT_FRAMES:
                await self._snapshot()
            if self._commands_changed or self._records or self._sandbox_news:
                self._idle_since = trio.current_time()
                continue
            with trio.move_on_after(self._idle_seconds()):
                await self._wake.wait()
            self._wake = trio.Event()
            if self._commands_changed or self._records:
                self._idle_since = trio.current_time()
            elif self._idle_seconds() == 0 and await self._sleep():
                return

    def _idle_seconds(self) -> float:
        """How long until there is a reason to sleep."""
        if self.notebook.runs or self._starting:
            return math.inf
        if self._sandbox is None:
            allowed = LINGER_SECONDS
        elif self.notebook.sandbox.kernel == "ready":
            allowed = self._config.kernel_idle
        else:
            allowed = self._config.sandbox_idle
        return max(0.0, self._idle_since + allowed - trio.current_time())

    async def _sleep(self) -> bool:
        """Idle for long enough: first the sandbox goes, then the engine. True when it sleeps."""
        if (sandbox := self._let_go()) is not None:
            with trio.move_on_after(REQUEST_SECONDS):
                await sandbox.shutdown()
            await sandbox.aclose()
            await self._commit(
                [draft("session", event="sandbox", state="asleep", kernel=self._kernel_left(), reason="idle")]
            )
        await self._commit([draft("session", event="slept")], awake=False)
        if self.notebook.seq - self._snapshot_seq >= SNAPSHOT_FRAMES // 10:
            await self._snapshot()
        self._slept = await self._journal.release(self.id, self.epoch, only_idle=True)
        if self._slept:
            return True
        self._commands_changed = True
        return False

    async def _snapshot(self) -> None:
        await self._journal.save_snapshot(self.notebook)
        self._snapshot_seq = self.notebook.seq

    async def _commit(
        self,
        drafts: Sequence[Draft],
        *,
        consumed: Sequence[str] = (),
        erase: Sequence[str] = (),
        awake: bool | None = None,
    ) -> None:
        """Commits one step and folds it. Lists see it at the same moment as the journal."""
        if not drafts and not consumed:
            return
        projection = None
        if any(item.kind != "output" for item in drafts):
            after = preview(self.notebook, drafts)
            if awake is None:
                awake = bool(after.runs) or after.sandbox.state in ("awake", "starting")
            projection = Projection(
                after.title,
                after.state,
                after.waiting,
                len(after.order),
                after.archived,
                awake,
                after.changed_at != self.notebook.changed_at,
            )
        step = Step(self.id, self.epoch, self.notebook.seq, drafts, consumed, erase, projection)
        at = await self._journal.commit(step)
        self.notebook = fold(self.notebook, frames_from(self.notebook, drafts, at))

    # Commands

    async def _take_commands(self) -> None:
        while waiting := await self._journal.waiting(self.id):
            for row in waiting:
                await self._take_command(row.id, row.by, row.body)

    async def _take_command(self, command_id: str, by: str, body: dict[str, Any]) -> None:
        """Decides on one command and commits it with what it led to."""
        try:
            command = c.parse(body)
            plan = decide.decide(self.notebook, command, by)
            if plan.deliver is not None:
                await self._deliver(plan.deliver)
        except (decide.Refused, c.Invalid, c.TooLarge) as refusal:
            await self._refuse(command_id, by, str(body.get("kind")), str(refusal))
            return
        except Fenced:
            raise
        except Exception:
            log.exception("notebook %s: command %s", self.id, command_id)
            await self._refuse(
                command_id, by, str(body.get("kind")), "this command failed inside Nightbook; see its log"
            )
            return
        try:
            erase = [command_id] if plan.deliver is not None else []
            await self._commit(plan.drafts, consumed=[command_id], erase=erase)
        except BadStep as error:
            log.error("notebook %s: command %s: %s", self.id, command_id, error)
            await self._refuse(command_id, by, str(body.get("kind")), "the database refuses its content")
            return
        for run_id in plan.stop:
            self._request("stop", run_id)
        if plan.restart and self._sandbox is not None:
            self._request("restart_kernel", command_id)

    async def _refuse(self, command_id: str, by: str, kind: str, reason: str) -> None:
        made = draft("refused", by=by, command_id=command_id, command=kind, reason=reason)
        # An input's text must not stay behind either when it came too late.
        await self._commit([made], consumed=[command_id], erase=[command_id] if kind == "input" else [])

    async def _deliver(self, command: c.Input) -> None:
        """Hands a line to the program before the command counts as taken: the shim takes each key once."""
        if self._sandbox is None:
            raise decide.Refused("the program that asked is not running any more")
        with trio.move_on_after(REQUEST_SECONDS) as scope:
            try:
                await self._sandbox.answer(command.run_id, command.id, command.input, command.text)
            except Fenced:
                raise
            except SandboxError:
                raise decide.Refused("the program that asked is not running any more") from None
        if scope.cancelled_caught:
            raise decide.Refused("the sandbox does not answer; try again")

    # The sandbox

    async def _advance(self) -> None:
        """Starts the next run when the lane is free; wakes the sandbox first."""
        run = decide.next_run(self.notebook)
        if run is None or self._starting:
            return
        self._idle_since = trio.current_time()
        if self._sandbox is None:
            self._starting = True
            assert self._nursery is not None
            self._nursery.start_soon(self._start_sandbox)
            if self.notebook.sandbox.state != "starting":
                await self._commit([draft("session", event="sandbox", state="starting", kernel="none")])
            return
        await self._commit(
            [draft("run", event="started", run_id=run.id, cell_id=run.cell_id, sandbox=self._sandbox.id)]
        )
        started = self.notebook.runs.get(run.id)
        if started is not None:
            self._execute(started)

    async def _start_sandbox(self) -> None:
        news: Sandbox | Exception
        try:
            # One may be alive though the journal does not say so: a crash came between its start and the commit.
            news = await self._join() or await Sandbox.start(self._config.sandbox, self.id, self.epoch)
        except Fenced:
            raise
        except (OSError, SandboxError) as error:
            log.exception("notebook %s: sandbox", self.id)
            news = error
        self._sandbox_news.append(news)
        self._wake.set()

    async def _take_news(self) -> None:
        """The sandbox started, failed to start, or died."""
        while self._sandbox_news:
            news = self._sandbox_news.pop(0)
            self._starting = False
            if isinstance(news, Sandbox):
                await self._commit(self._joined(news))
                continue
            sandbox = self._let_go()
            if sandbox is not None:
                await self._take_records()
                await sandbox.aclose()
                await self._commit(self._lost("the sandbox died"))
                continue
            # It did not start: whoever waits for it is told; nothing ran.
            drafts = [draft("session", event="sandbox", state="lost", kernel="none", reason=f"did not start: {news}")]
            drafts += [
                decide.end(run, "error", f"the sandbox did not start: {news}") for run in self.notebook.runs.values()
            ]
            await self._commit(drafts)

    def _execute(self, run: Run) -> None:
        cell = self.notebook.cells.get(run.cell_id)
        if cell is None:
            for gone in self.notebook.deleted:
                if gone.cell.id == run.cell_id:
                    cell = gone.cell
        if cell is not None:
            self._request("execute", run.id, cell.kind, cell.source)

    def _request(self, name: str, *args: Any) -> None:
        """Asks the shim, after what it was asked before and without waiting for the answer."""
        if name == "ack" and self._requests and self._requests[-1][0] == "ack":
            self._requests.pop()
        self._requests.append((name, args))
        self._requested.set()

    async def _ask(self) -> None:
        """Sends requests in their order, each again until it is answered: the shim knows what it was asked before."""
        while True:
            while not self._requests or self._sandbox is None:
                self._requests.clear()  # without a sandbox there is nobody to ask; its runs are ended by `_lost`
                self._requested = trio.Event()
                await self._requested.wait()
            name, args = self._requests[0]
            try:
                with trio.fail_after(REQUEST_SECONDS):
                    await getattr(self._sandbox, name)(*args)
            except trio.TooSlowError:
                log.warning("notebook %s: the sandbox does not answer to %s", self.id, name)
                continue
            except Fenced:
                raise
            except trio.ClosedResourceError:
                continue
            except SandboxError as error:  # that it is lost, the reader tells
                log.warning("notebook %s: %s: %s", self.id, name, error)
            if self._requests and self._requests[0] == (name, args):
                self._requests.popleft()

    async def _read(self, sandbox: Sandbox) -> None:
        """Takes records from the shim; stops reading while the loop is behind, and so slows the programs."""
        try:
            while True:
                batch = await sandbox.records()
                await self._records.put(batch)
                self._wake.set()
        except Fenced:
            raise
        except trio.ClosedResourceError:
            return  # closed by the loop itself: the notebook goes to sleep, or the sandbox was lost already
        except SandboxError as lost:
            if sandbox is self._sandbox:
                self._sandbox_news.append(lost)
                self._wake.set()

    async def _take_records(self) -> None:
        """Commits what the sandbox told, in its order, and acknowledges it after."""
        workspace = self._config.sandbox.workspace(self.id)
        while batch := self._records.take():
            sandbox_id = self.notebook.sandbox.id
            assert sandbox_id is not None
            drafts = await frames_of(self.notebook, sandbox_id, batch, self._journal, workspace)
            try:
                await self._commit(drafts)
            except BadStep as error:
                log.error("notebook %s: records up to %s: %s", self.id, batch[-1]["n"], error)
                await self._commit(
                    [
                        draft(
                            "session",
                            event="sandbox",
                            reason=f"output refused: {error}",
                            src=(sandbox_id, batch[-1]["n"]),
                        )
                    ]
                )
            self._request("ack", batch[-1]["n"])
            if self._commands_changed:  # a stop must not wait behind a flood
                self._commands_changed = False
                await self._take_commands()
