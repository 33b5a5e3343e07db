"""A session engine: the trio task that owns one notebook while it is awake, and the only writer of its journal.

One loop takes what arrived (commands, records of the sandbox), commits it, and only then acts on it. Whatever it does
not get to, because the process dies, is found again: commands as rows, runs in the fold, records in the shim's spool.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import trio

from engine import commands as c
from engine import decide, tenancy
from engine.agent.calls import Tool
from engine.agent.making import TurnConfig
from engine.agent.mcp.servers import Servers, ServersConfig
from engine.agent.models.choosing import Chosen, Models
from engine.agent.tools import TOOLS
from engine.agent.turn import Turn
from engine.broker import Broker, BrokerConfig
from engine.files import Cause, Files
from engine.frames import Draft, draft
from engine.journal import BadStep, FencedStep, Journal, Projection, Step
from engine.keeping import Keeper
from engine.machine import Machine
from engine.notebook import Notebook, Run, fold, frames_from, preview
from engine.records import frames_of
from engine.runs import CodeRuns, Decided
from engine.sandbox.client import Fenced, Sandbox, SandboxConfig, SandboxError
from engine.store import reading
from engine.store.ownership import Claim
from engine.store.steps import Row
from engine.tenancy import REQUEST_SECONDS
from engine.workspace import WorkspaceError

log = logging.getLogger(__name__)

STREAMED = ("output", "thought", "search", "progress")  # kinds that no list shows anything of
SNAPSHOT_FRAMES = 2000  # frames behind the last snapshot before another is kept
LINGER_SECONDS = 30.0  # an engine with nothing to do waits so long before it sleeps
QUESTION_SECONDS = 1.2  # for a kernel's answer about a name

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """What a session needs to know. Seconds."""

    sandbox: SandboxConfig
    worker: str
    machine: Machine
    sandbox_idle: float
    kernel_idle: float
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    turn_seconds: float = 480.0
    fetch_allow: Sequence[str] = ()
    models: Models = field(default_factory=Chosen)
    servers: ServersConfig = field(default_factory=ServersConfig)
    tools: Mapping[str, Tool] = field(default_factory=lambda: TOOLS)


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
        self._tenancy = tenancy.Tenancy(
            notebook_id,
            claim.epoch,
            config.sandbox,
            lambda known: self.notebook.cursor.get(known, 0),
            self._look_again,
            self._turned_away,
        )
        self._snapshot_seq = 0
        self._idle_since = trio.current_time()
        self._slept = False
        self._leaving = False
        self._doubted = False
        self._nursery: trio.Nursery | None = None
        self._writing = trio.Lock()
        self._changed = trio.Event()
        self._turns: dict[str, Turn] = {}
        self._turn_config = TurnConfig(config.turn_seconds, config.models, config.tools, config.fetch_allow)
        self.broker = Broker(self, config.broker)
        self.code = CodeRuns(self)
        self.servers = Servers(self, config.servers, config.fetch_allow, self._look_again)
        self.files = Files(notebook_id, config.sandbox.workspace(notebook_id), self, journal)
        self._keeper = Keeper(self.files, lambda: decide.active(self.notebook), self._look_again)
        self._putting: set[str] = set()  # commands that put a file, and are on their way

    def leave(self) -> None:
        """Begins nothing new; turns rest before their next round. What runs in the sandbox is still taken down."""
        self._leaving = True
        for turn in self._turns.values():
            turn.leave()

    @property
    def settled(self) -> bool:
        """Whether every turn rests, waits for people or the lane, or for code, which goes on in the sandbox."""
        return all(turn.resting or decide.calls_of(self.notebook, run_id) for run_id, turn in self._turns.items())

    def poke(self) -> None:
        """There may be new commands, or verdicts."""
        self._commands_changed = True
        self._wake.set()
        self.broker.poke()

    def doubt(self) -> None:
        """The worker was taken for dead: whether this engine still owns its notebook is to be found out."""
        self._doubted = True
        self._wake.set()

    def question(self) -> None:
        """Somebody may ask the kernel something."""
        if self._nursery is not None:
            self._nursery.start_soon(self._answer_questions)

    async def _answer_questions(self) -> None:
        """Whatever fails here is no more than a page that gets no completion."""
        try:
            for question in await self._journal.questions(self.id):
                answer: dict[str, Any] = {}
                if self._tenancy.sandbox is not None:
                    with trio.move_on_after(QUESTION_SECONDS):
                        answer = await self._tenancy.sandbox.question(question.kind, question.source, question.at)
                await self._journal.answer_question(question.id, answer)
        except Fenced:
            raise
        except Exception as error:
            log.warning("notebook %s: a question to the kernel: %s", self.id, error)

    async def memory(self) -> int:
        """Bytes that the programs of its sandbox use now; 0 without one, when it does not answer in time, or when the
        session lets go of it meanwhile, as one does that was overtaken."""
        with trio.move_on_after(REQUEST_SECONDS), contextlib.suppress(SandboxError, trio.ClosedResourceError):
            if self._tenancy.sandbox is not None:
                used: int = (await self._tenancy.sandbox.status())["memory"]
                return used
        return 0

    def _look_again(self) -> None:
        """Something that kept the engine awake is over."""
        self._wake.set()

    @property
    def idle_since(self) -> float | None:
        """Since when (trio time) its sandbox is awake with nothing to do; None when it is not."""
        return None if self._busy or self._tenancy.sandbox is None else self._idle_since

    @property
    def _busy(self) -> bool:
        """Whether something needs this engine now; a turn that a person put off does not."""
        if self._tenancy.starting or self._tenancy.awaited or self._keeper.busy or self._putting or self.servers.busy:
            return True
        return any(not run.parked for run in self.notebook.runs.values())

    def give_up_sandbox(self) -> None:
        """Its memory is needed elsewhere: sleeps as if its time had run out, unless something runs by then."""
        self._idle_since = -math.inf
        self._wake.set()

    async def run(self) -> None:
        """Serves the notebook until it sleeps. Raises nothing that its supervisor must handle, but its own faults."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = self.servers.nursery = nursery
                nursery.start_soon(self._tenancy.ask)
                nursery.start_soon(self._tenancy.watch, lambda: bool(tenancy.under_way(self.notebook)))
                async with self._writing:
                    await self._resume()
                nursery.start_soon(self.broker.run)
                nursery.start_soon(self._keeper.run)
                self._commands_changed = False
                await self._take_commands()  # first: a turn that was stopped while nobody worked must not go on
                for run in list(self.notebook.runs.values()):
                    if run.is_turn and run.state in decide.ACTIVE:
                        self._take_up(run)
                await self._serve()
                nursery.cancel_scope.cancel()
        except* FencedStep:
            await self._overtaken("its step was refused")
        except* Fenced:
            await self._overtaken("its sandbox refused it")
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(5):
                if self._tenancy.sandbox is not None:
                    await self._tenancy.sandbox.aclose()
                if not self._slept:
                    await self._journal.release(self.id, self.epoch, only_idle=False)

    async def _overtaken(self, how: str) -> None:
        """Nothing more is written. What runs here for a notebook that is on another machine now is lost: it ends."""
        log.warning("notebook %s: another engine took over at a later epoch; this one stops, %s", self.id, how)
        sandbox = self._tenancy.sandbox
        if sandbox is None:
            return
        with trio.CancelScope(shield=True), trio.move_on_after(REQUEST_SECONDS):
            if await self._journal.elsewhere([self.id], self._config.machine.id):
                log.warning("notebook %s: it is on another machine now, so its sandbox here is ended", self.id)
                with contextlib.suppress(SandboxError, trio.ClosedResourceError):
                    await sandbox.shutdown()

    # Taking up what is there

    async def _resume(self) -> None:
        """Folds the journal, re-joins the sandbox, and settles what ended with a sandbox that is gone."""
        self.notebook = await self._journal.load(self.id)
        self._snapshot_seq = self.notebook.seq
        crashed = self._claim.previous is not None
        event = "resumed" if crashed or self.notebook.runs else "woke"
        drafts = [draft("session", event=event, epoch=self.epoch, worker=self._config.worker)]
        if crashed or self.notebook.sandbox.state != "asleep":
            self._keeper.look(Cause())  # the end of a run may have come with nobody left to keep its files
        there = self.notebook.sandbox
        if there.state in ("awake", "starting"):
            elsewhere = there.host is not None and there.host != self._config.machine.id
            sandbox = None if elsewhere else await self._tenancy.join()
            if sandbox is not None:
                drafts += self._joined(sandbox)
            else:
                gone = f"lost with machine {there.machine}" if elsewhere else "the sandbox is gone"
                drafts += tenancy.lost(self.notebook, gone)
        elif any(run.state in decide.ACTIVE and not run.is_turn for run in self.notebook.runs.values()):
            drafts += tenancy.lost(self.notebook, "the sandbox is gone")
        before = self.notebook.epoch
        drafts += self.servers.team_drafts()
        await self._commit(drafts)
        for name, server in self.notebook.servers.items():
            if server["state"] == "looking":  # it was looked at as the server died
                self.servers.look(name)
        if await self.files.woke(before, self.epoch) and self._tenancy.sandbox is None:
            await self._tenancy.end_left_over()
        self._repeat_requests()

    def _joined(self, sandbox: Sandbox) -> list[Draft]:
        """Takes a sandbox over."""
        self._tenancy.take(sandbox)
        self.files.in_use()
        assert self._nursery is not None
        self._nursery.start_soon(self._tenancy.read, sandbox)
        return tenancy.joined(self.notebook, sandbox, self._config.machine)

    def _repeat_requests(self) -> None:
        """Asks again for what may not have reached the shim; it knows what it was asked before."""
        for run in tenancy.under_way(self.notebook):
            self.execute(run.id)
            if run.state == "cancelling":  # behind its execute: the shim stops what it just started
                self._tenancy.request("stop", run.id)

    # The loop

    async def _serve(self) -> None:
        while True:
            if self._doubted:
                self._doubted = False
                async with self._writing:  # a step of nothing asks for the epoch as any other does
                    await self._journal.commit(Step(self.id, self.epoch, self.notebook.seq, ()))
            if self._tenancy.news:
                await self._take_news()
            if self._leaving:
                self._commands_changed = False  # they are rows: the next engine takes them
            if self._commands_changed:
                self._commands_changed = False
                await self._take_commands()
            if self._tenancy.records:
                await self._take_records()
            if not self._leaving:
                async with self._writing:
                    await self._advance_turns()
                    await self._advance()
            if self.notebook.seq - self._snapshot_seq >= SNAPSHOT_FRAMES:
                await self._snapshot()
            if self._commands_changed or self._tenancy.records or self._tenancy.news:
                self._idle_since = trio.current_time()
                continue
            with trio.move_on_after(self._idle_seconds()):
                await self._wake.wait()
            self._wake = trio.Event()
            if self._commands_changed or self._tenancy.records:
                self._idle_since = trio.current_time()
            elif self._idle_seconds() == 0 and await self._sleep():
                return

    def _idle_seconds(self) -> float:
        """How long until there is a reason to sleep."""
        if self._busy:
            return math.inf
        if self._tenancy.sandbox is None:
            allowed = LINGER_SECONDS
        elif self.notebook.sandbox.kernel == "ready":
            allowed = self._config.kernel_idle
        else:
            allowed = self._config.sandbox_idle
        return max(0.0, self._idle_since + allowed - trio.current_time())

    async def _sleep(self) -> bool:
        """Idle for long enough: first the sandbox goes, then the engine. True when it sleeps."""
        async with self._writing:
            return not self._busy and await self._sleep_now()

    async def _sleep_now(self) -> bool:
        if (sandbox := self._tenancy.let_go()) is not None:
            with trio.move_on_after(REQUEST_SECONDS):
                await sandbox.shutdown()
            await sandbox.aclose()
            await self._commit(
                [
                    draft(
                        "session",
                        event="sandbox",
                        state="asleep",
                        kernel=tenancy.kernel_left(self.notebook),
                        reason="idle",
                    )
                ]
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
        rows: Sequence[Row] = (),
    ) -> None:
        """Commits one step and folds it. Lists see it at the same moment as the journal. The caller may write now."""
        if not drafts and not consumed and not rows:
            return
        projection = None
        if any(item.kind not in STREAMED for item in drafts):
            after = preview(self.notebook, drafts)
            if awake is None:
                awake = any(not run.parked for run in after.runs.values()) or after.sandbox.state in (
                    "awake",
                    "starting",
                )
            box = after.sandbox
            projection = Projection(
                after.title,
                after.state,
                after.waiting,
                len(after.order),
                after.archived,
                awake,
                after.changed_at != self.notebook.changed_at,
                box.host if box.state in ("awake", "starting") else None,
            )
        step = Step(self.id, self.epoch, self.notebook.seq, drafts, consumed, erase, projection, rows)
        at = await self._journal.commit(step)
        self._keeper.after(self.notebook, drafts)
        self.notebook = fold(self.notebook, frames_from(self.notebook, drafts, at))
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    # What it lends to its turns, their broker and their files

    async def step(self, decide: Callable[[Notebook], Decided]) -> None:
        """Commits what `decide` makes of the notebook as it is at that moment: nobody else writes between the two."""
        async with self._writing:
            drafts, rows = decide(self.notebook)
            await self._commit(drafts, rows=rows)
        if any(item.kind == "run" for item in drafts):
            self._idle_since = trio.current_time()
            self._wake.set()

    async def write(self, drafts: Sequence[Draft], rows: Sequence[Row] = ()) -> None:
        """Commits one step that depends on nothing."""
        await self.step(lambda _: (drafts, rows))

    async def until(self, condition: Callable[[Notebook], bool]) -> None:
        """Waits until the fold meets `condition`."""
        while not condition(self.notebook):
            await self._changed.wait()

    async def awake(self) -> Sandbox:
        """The sandbox, started when there was none. Raises `SandboxError`."""
        return await self._tenancy.awake()

    async def query(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """`await function(pool, *args)` on the store's loop."""
        return await self._journal.query(function, *args)

    async def keep_blob(self, mime: str, encoding: str | None, data: bytes) -> str:
        """Stores bytes; returns their sha256."""
        return await self._journal.keep_blob(self.id, mime, encoding, data)

    def _take_up(self, run: Run) -> None:
        """Starts the task of a turn, wherever the turn stands."""
        turn = self._turns[run.id] = Turn(self, run, self._turn_config)
        if self._leaving:
            turn.leave()
        assert self._nursery is not None
        self._nursery.start_soon(self._run_turn, run.id, turn)

    async def _run_turn(self, run_id: str, turn: Turn) -> None:
        try:
            await turn.run()
        finally:
            self._turns.pop(run_id, None)
            self._wake.set()

    async def _advance_turns(self) -> None:
        """Starts the next turn when the one before has ended."""
        while (run := decide.next_run(self.notebook, turns=True)) is not None:
            await self._commit([draft("run", event="started", run_id=run.id, cell_id=run.cell_id)])
            if (started := self.notebook.runs.get(run.id)) is not None:
                self._take_up(started)

    # Commands

    async def _take_commands(self) -> None:
        while waiting := [row for row in await self._journal.waiting(self.id) if row.id not in self._putting]:
            for row in waiting:
                async with self._writing:
                    await self._take_command(row.id, row.by, row.body)

    async def _take_command(self, command_id: str, by: str, body: dict[str, Any]) -> None:
        """Decides on one command and commits it with what it led to."""
        try:
            command = c.parse(body)
            if (run_id := c.new_run(command)) is not None and await self.query(reading.run_known, self.id, run_id):
                raise decide.Refused(f"there was a run {run_id} already; choose another id, or leave it out")
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
        if plan.put is not None:
            self._putting.add(command_id)
            assert self._nursery is not None
            self._nursery.start_soon(self._put_file, plan.put, by)
            return
        try:
            erase = [command_id] if plan.deliver is not None else []
            await self._commit(plan.drafts, consumed=[command_id], erase=erase)
        except BadStep as error:
            log.error("notebook %s: command %s: %s", self.id, command_id, error)
            await self._refuse(command_id, by, str(body.get("kind")), "the database refuses its content")
            return
        if plan.look is not None:
            self.servers.look(plan.look)
        for run_id in plan.stop:
            self.stop(run_id)
        if plan.restart and self._tenancy.sandbox is not None:
            self._tenancy.request("restart_kernel", command_id)

    async def _put_file(self, command: c.PutFile, by: str) -> None:
        """Puts an uploaded file into the folder; its version and the command are one step."""
        try:
            found = await self._journal.file_contents(self.id, [command.sha256])
            if command.sha256 not in found:
                raise decide.Refused(f"no bytes {command.sha256} were uploaded to this notebook; upload them again")
            cause = Cause(by=by, command_id=command.id)
            async with self.files.placing(command.path, found[command.sha256], cause) as placed, self._writing:
                await self._commit(placed.drafts, rows=placed.rows, consumed=[command.id])
        except (decide.Refused, WorkspaceError, OSError, BadStep) as error:
            log.info("notebook %s: %s is not put: %s", self.id, command.id, error)
            async with self._writing:
                await self._refuse(command.id, by, command.kind, str(error))
        finally:
            self._putting.discard(command.id)
            self._look_again()

    async def _refuse(self, command_id: str, by: str, kind: str, reason: str) -> None:
        made = draft("refused", by=by, command_id=command_id, command=kind, reason=reason)
        # An input's text must not stay behind either when it came too late.
        await self._commit([made], consumed=[command_id], erase=[command_id] if kind == "input" else [])

    async def _deliver(self, command: c.Input) -> None:
        """Hands a line to the program before the command counts as taken: the shim takes each key once."""
        if self._tenancy.sandbox is None:
            raise decide.Refused("the program that asked is not running any more")
        with trio.move_on_after(REQUEST_SECONDS) as scope:
            try:
                await self._tenancy.sandbox.answer(command.run_id, command.id, command.input, command.text)
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
        if run is not None and self._code_of(run) is None:
            run = None
        if self._tenancy.starting or (run is None and not self._tenancy.awaited):
            return
        self._idle_since = trio.current_time()
        if self._tenancy.sandbox is None:
            self._tenancy.starting = True
            assert self._nursery is not None
            self._nursery.start_soon(self._tenancy.start, self.files.fill)
            if self.notebook.sandbox.state != "starting":
                await self._commit([tenancy.starting(self._config.machine)])
            return
        if run is None:
            return
        await self._commit(
            [draft("run", event="started", run_id=run.id, cell_id=run.cell_id, sandbox=self._tenancy.sandbox.id)]
        )
        self.execute(run.id)

    async def _take_news(self) -> None:
        """The sandbox started, failed to start, or died."""
        while self._tenancy.news:
            news = self._tenancy.news.pop(0)
            self._tenancy.starting = False
            if isinstance(news, Sandbox):
                async with self._writing:
                    await self._commit(self._joined(news))
                self._tenancy.told("")
                continue
            sandbox = self._tenancy.let_go()
            if sandbox is not None:
                await self._take_records()
                await sandbox.aclose()
                async with self._writing:
                    await self._commit(tenancy.lost(self.notebook, self._tenancy.why or "the sandbox died"))
                continue
            async with self._writing:
                await self._commit(tenancy.not_started(self.notebook, str(news)))
            self._tenancy.told(str(news))

    def execute(self, run_id: str) -> None:
        """Asks the sandbox for a run that has begun; known there, it is not started again.

        One that is queued is begun when its lane is free: that is looked at now, as its code may have come just now.
        """
        self._wake.set()
        run = self.notebook.runs.get(run_id)
        if run is not None and run.state in decide.ACTIVE and (found := self._code_of(run)) is not None:
            self._tenancy.request(
                "execute", run.id, *found, run.parent is None, run.cell_id if run.parent is None else None
            )

    def stop(self, run_id: str) -> None:
        """Stops a run that is being cancelled: a turn by its task, code by the sandbox."""
        if (turn := self._turns.get(run_id)) is not None:
            turn.stop()
        elif run_id not in self.notebook.runs or not self.notebook.runs[run_id].is_turn:
            self._tenancy.request("stop", run_id)

    def _code_of(self, run: Run) -> tuple[str, str] | None:
        """Kind and code of a run; null for the call of a turn that has not asked for it since the engine woke."""
        if run.parent is not None:
            return self.code.code(run.id)
        cell = self.notebook.cells.get(run.cell_id)
        if cell is None:
            cell = next((gone.cell for gone in self.notebook.deleted if gone.cell.id == run.cell_id), None)
        return None if cell is None else (cell.kind, cell.source)

    async def _turned_away(self, run_id: str, reason: str) -> None:
        """The sandbox will not run it: no record will ever tell its end, so this does."""

        def end(notebook: Notebook) -> Decided:
            run = notebook.runs.get(run_id)
            return ([] if run is None else tenancy.ended_lost(notebook, run, f"it was not started: {reason}")), ()

        await self.step(end)

    async def _take_records(self) -> None:
        """Commits what the sandbox told, in its order, and acknowledges it after."""
        workspace = self._config.sandbox.workspace(self.id)
        while batch := self._tenancy.records.take():
            async with self._writing:
                await self._take_batch(batch, workspace)
            if self._commands_changed and not self._leaving:  # a stop must not wait behind a flood
                self._commands_changed = False
                await self._take_commands()

    async def _take_batch(self, batch: list[dict[str, Any]], workspace: Path) -> None:
        sandbox_id = self.notebook.sandbox.id
        assert sandbox_id is not None
        drafts = await frames_of(self.notebook, sandbox_id, batch, self._journal, workspace)
        try:
            await self._commit(drafts)
        except BadStep as error:
            log.error("notebook %s: records up to %s: %s", self.id, batch[-1]["n"], error)
            reason = f"output refused: {error}"
            src = (sandbox_id, batch[-1]["n"])
            await self._commit([draft("session", event="sandbox", reason=reason, src=src)])
        self._tenancy.request("ack", batch[-1]["n"])
