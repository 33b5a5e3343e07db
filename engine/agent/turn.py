"""A turn: rounds of model, calls, results, each stored before the next begins. It belongs to no viewer.

What a turn knows is in the database: its replies, its effects, and the frames of its story. A process that dies takes
nothing with it; the next one reads where the turn stood and goes on. docs/architecture.md says what happens at each
point of death.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import trio
from pydantic import ValidationError

from engine import decide
from engine.agent.calls import (
    Call,
    Conversation,
    Description,
    Exchange,
    Model,
    OutcomeUnknown,
    Reply,
    Result,
    Search,
    Thought,
    Tool,
    ToolFailed,
    ToolSpec,
)
from engine.agent.context import context
from engine.agent.room import TurnRoom
from engine.agent.tools.text import one_line
from engine.broker import Asker, Broker, Parked, Wanted, digest
from engine.effects import bounded, call_id, code_run, effect_key, kept, result_from
from engine.files import Files
from engine.frames import Draft, draft
from engine.ids import new_id
from engine.notebook import Notebook, Run
from engine.runs import CodeRuns, Decided
from engine.sandbox.client import Fenced
from engine.store import turns as store
from engine.store.steps import FencedStep, Row

log = logging.getLogger(__name__)

ROUNDS = 120  # of one turn
ATTEMPTS = 3  # at one round's reply, while nothing is replied: a model that fails
DEATHS = 6  # at one round's reply: processes that died while it was asked for
SAME_FAILURES = 3  # of one call with the same arguments, one after the other
PAUSE_SECONDS = (1.0, 4.0)  # before the second attempt, and the third
THOUGHT_SECONDS = 0.15  # pieces that come within this become one frame
THOUGHT_CHARACTERS = 16_000  # in one frame
KERNEL_GONE = "The Python kernel of before is gone, and with it the variables that cells and calls had made."
FAULT = "the turn failed inside Nightbook; see its log"
WHETHER = "The place where this ran went away under it, and what became of it cannot be found out."
T = TypeVar("T")


class Host(Protocol):
    """What the session lends to its turns."""

    @property
    def notebook(self) -> Notebook:
        """As it stands now."""

    @property
    def broker(self) -> Broker: ...

    @property
    def code(self) -> CodeRuns: ...

    @property
    def files(self) -> Files: ...

    async def step(self, decide: Callable[[Notebook], Decided]) -> None:
        """Commits what `decide` makes of the notebook as it is at that moment, in one step."""

    async def query(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """`await function(pool, *args)` on the store's loop."""

    async def until(self, condition: Callable[[Notebook], bool]) -> None:
        """Waits until the fold meets `condition`."""

    async def keep_blob(self, mime: str, encoding: str | None, data: bytes) -> str:
        """Stores bytes; returns their sha256."""


@dataclass(frozen=True, slots=True)
class TurnConfig:
    """`seconds` of working time of one turn; who replies; what it can do; what `fetch` may reach though not public."""

    seconds: float
    model: Model
    tools: Mapping[str, Tool]
    fetch_allow: Sequence[str] = ()


@dataclass(slots=True)
class Ending:
    """How a turn ends. `step`: where a person can have it go on."""

    status: str
    reason: str | None = None
    step: int | None = None
    line: int | None = None
    question: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call that can be made: its tool, its arguments as the tool understood them, and what it would do."""

    call: Call
    tool: Tool
    arguments: Any
    plain: dict[str, Any]
    description: Description
    digest: str

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.call, self.description, self.tool.risk, self.digest)


class Turn:
    """One run of an agent cell, from wherever it stands to its end."""

    def __init__(self, host: Host, run: Run, config: TurnConfig) -> None:
        self._host = host
        self._run = run
        self._config = config
        self._asker = Asker(run.id, run.cell_id)
        self._scope = trio.CancelScope()
        self._stopping = run.state == "cancelling"
        self._at: dict[str, Any] = {"run_id": run.id, "cell_id": run.cell_id, "by": "agent"}
        self._exchanges: list[Exchange] = []
        self._own = 0  # exchanges of this run, at the end of the list
        self._begin: dict[str, Any] = {}
        self._said: list[Draft] = []  # thoughts and searches that are not committed yet
        self._tokens = 0

    @property
    def _notebook(self) -> Notebook:
        return self._host.notebook

    def stop(self) -> None:
        """Ends it as cancelled, as soon as all that it started is gone."""
        self._stopping = True
        self._scope.cancel()

    async def run(self) -> None:
        """Goes on until the turn has ended. Raises `FencedStep` or `Fenced` when another engine took over."""
        ending: Ending | None = None
        try:
            if not self._stopping:
                with self._scope:
                    ending = await self._work()
            if ending is None:
                ending = self._cut_short()
        except (FencedStep, Fenced):
            raise
        except Exception:
            log.exception("notebook %s: turn %s", self._notebook.id, self._run.id)
            ending = Ending("error", FAULT)
        try:
            await self._end(ending)
        except (FencedStep, Fenced):
            raise
        except Exception:  # what cannot be ended in good order must end all the same, or it would be tried for ever
            log.exception("notebook %s: end of turn %s", self._notebook.id, self._run.id)
            await self._host.step(self._end_anyhow)

    def _cut_short(self) -> Ending:
        if self._stopping:
            return Ending("cancelled", "stopped")
        return Ending("error", f"it used up its {self._config.seconds:g} seconds of working time")

    # Working time

    @property
    def _left(self) -> float:
        """Seconds of working time left."""
        return self._scope.deadline - trio.current_time()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """While the turn waits for people, its working time stands still."""
        left, self._scope.deadline = self._left, math.inf
        try:
            yield
        finally:
            self._scope.deadline = trio.current_time() + left

    # Where it stands

    async def _load(self) -> None:
        """Reads what the turn did so far, in this run and in those that it continues."""
        notebook, run = self._notebook, self._run
        stored = await self._host.query(store.replies, notebook.id, [run.id, run.follows or run.id])
        begin = stored.get((run.id, 0))
        if begin is None:
            before = stored.get((run.follows, 0)) if run.follows is not None else None
            cell = notebook.cells.get(run.cell_id)
            begin = {
                "request": before["request"] if before else "" if cell is None else cell.source,
                "answer": run.answer,
                "context": before["context"] if before else context(notebook, run.cell_id),
                "chain": [*before["chain"], run.follows] if before else [],
            }
            row = Row("reply", {"run_id": run.id, "round": 0, "body": begin})
            await self._host.step(lambda _: ((), [row]))
        self._begin = begin
        runs = [*begin["chain"], run.id]
        stored = await self._host.query(store.replies, notebook.id, runs)
        effects = await self._host.query(store.effects, notebook.id, runs)
        self._effects = effects
        self._exchanges = []
        for run_id in runs:
            rounds = sorted(at for of, at in stored if of == run_id and at > 0)
            self._own = len(rounds)
            if (answer := stored.get((run_id, 0), begin).get("answer")) is not None:
                self._tell_last([answer])
            for at in rounds:
                self._tell_last(stored.get((run_id, -at), {}).get("messages", ()))
                reply = stored[run_id, at]
                results = {
                    call["id"]: result_from(effect.result)
                    for call in reply["calls"]
                    if (effect := effects.get(call["call"])) is not None and effect.result is not None
                }
                self._exchanges.append(Exchange(at, reply, results))
        self._pending = stored.get((run.id, -(self._own + 1)))
        newest = self._pending or stored.get((run.id, -self._own), {})
        self._kernel = newest.get("kernel")
        self._tokens = sum(reply.get("tokens") or 0 for (of, at), reply in stored.items() if of == run.id and at > 0)

    def _tell_last(self, messages: Sequence[str]) -> None:
        if not messages:
            return
        if not self._exchanges:
            self._begin["messages"] = [*self._begin.get("messages", ()), *messages]
            return
        last = self._exchanges[-1]
        self._exchanges[-1] = Exchange(last.round, last.reply, last.results, (*last.messages, *messages))

    async def _work(self) -> Ending:
        cell = self._notebook.cells.get(self._run.cell_id)
        used = cell is not None and cell.story.run_id == self._run.id and cell.story.seconds is not None
        left = (
            cell.story.seconds if cell is not None and used and cell.story.seconds is not None else self._config.seconds
        )
        self._scope.deadline = trio.current_time() + left
        await self._load()
        resumed = used
        while True:
            if self._own:  # the newest reply may have calls without a result, or be the last one
                ending = await self._carry_out(self._exchanges[-1])
                if ending is not None:
                    return ending
            ending = await self._round(self._own + 1, resumed)
            resumed = False
            if ending is not None:
                return ending

    # A round

    async def _round(self, number: int, resumed: bool) -> Ending | None:
        """Has the model reply once more. The reply is stored when it is whole."""
        if number > ROUNDS:
            return Ending("error", f"it used up its {ROUNDS} rounds", self._step())
        if (same := runaway(self._exchanges[-self._own :] if self._own else [])) is not None:
            return Ending("error", same, self._step())
        attempt = 1
        cell = self._notebook.cells.get(self._run.cell_id)
        if resumed and cell is not None and cell.story.round == number:
            attempt = cell.story.attempt + 1
            if attempt > DEATHS:
                return Ending(
                    "error", f"the server died {DEATHS} times while round {number} was asked for", self._step()
                )
            await self._retrying(number, attempt, "the server stopped while the model replied")
        else:
            await self._begin_round(number)
        if self._pending is not None:
            self._tell_last(self._pending.get("messages", ()))
            self._pending = None
        failures = 0
        while True:
            try:
                reply = await self._reply(number)
                break
            except (FencedStep, Fenced):
                raise
            except Exception as error:
                failures += 1
                reason = f"{type(error).__name__}: {error}"[:500]
                log.warning("notebook %s: turn %s: model: %s", self._notebook.id, self._run.id, reason)
                if failures >= ATTEMPTS:
                    return Ending("error", f"the model failed {ATTEMPTS} times: {reason}", self._step())
                attempt += 1
                await trio.sleep(PAUSE_SECONDS[failures - 1])
                await self._retrying(number, attempt, reason)
        await self._store(number, reply)
        return None

    async def _begin_round(self, number: int) -> None:
        """The yield point: takes what was said meanwhile, in the step that begins the round."""
        kernel_before = self._kernel

        def begin(notebook: Notebook) -> Decided:
            cell = notebook.cells.get(self._run.cell_id)
            said = [] if cell is None else cell.story.messages
            drafts = [
                draft(
                    "run",
                    event="round",
                    round=number,
                    rounds=ROUNDS,
                    seconds=round(max(0.0, self._left), 1),
                    **self._at,
                )
            ]
            texts = [item["text"] for item in said]
            drafts += [draft("message", event="taken", message=item["message"], **self._at) for item in said]
            if kernel_before is not None and _kernel(notebook) != kernel_before:
                told = KERNEL_GONE
                texts.append(told)
                drafts.append(
                    draft("message", event="taken", message=new_id(), text=told, **{**self._at, "by": "nightbook"})
                )
            self._kernel = _kernel(notebook)
            self._pending = {"messages": texts, "kernel": self._kernel}
            return drafts, [Row("reply", {"run_id": self._run.id, "round": -number, "body": self._pending})]

        await self._host.step(begin)

    async def _retrying(self, number: int, attempt: int, reason: str) -> None:
        self._said.clear()
        made = draft("run", event="retrying", round=number, attempt=attempt, reason=reason, **self._at)
        await self._host.step(lambda _: ([made], ()))

    async def _reply(self, number: int) -> Reply:
        """Asks the model. What it says is committed as it comes, pieces that come close together in one frame."""
        begin = self._begin
        conversation = Conversation(
            begin["request"],
            begin["context"],
            tuple(self._exchanges),
            tuple(begin.get("messages", ())),
            self._run.step if not self._own else None,
        )
        specs = [spec(tool) for tool in self._config.tools.values()]
        reply: Reply | None = None
        try:
            async with trio.open_nursery() as nursery:
                more = _Flag()
                nursery.start_soon(self._tell_thoughts, more)
                async with contextlib.aclosing(self._config.model.reply(conversation, specs)) as stream:
                    async for item in stream:
                        if isinstance(item, Reply):
                            reply = item
                            continue
                        self._said += self._saying(number, item)
                        more.set()
                nursery.cancel_scope.cancel()
        except ExceptionGroup as group:
            raise _first(group) from None
        if reply is None:
            raise RuntimeError("the reply ended without saying so")
        return reply

    def _saying(self, number: int, item: Thought | Search) -> list[Draft]:
        if isinstance(item, Search):
            return [draft("search", round=number, query=item.query, sources=list(item.sources), **self._at)]
        return [
            draft(
                "thought", round=number, text=item.text[at : at + THOUGHT_CHARACTERS], thinking=item.thinking or None,
                **self._at,
            )
            for at in range(0, len(item.text), THOUGHT_CHARACTERS)
        ]  # fmt: skip

    async def _tell_thoughts(self, more: _Flag) -> None:
        while True:
            await more.wait()
            taken: list[Draft] = []

            def tell(_: Notebook, taken: list[Draft] = taken) -> Decided:
                taken += self._take_said()
                return taken, ()

            try:
                await self._host.step(tell)
            except trio.Cancelled:  # the reply ended meanwhile, and the step was withdrawn: it is told with the reply
                self._said[:0] = taken
                raise
            await trio.sleep(THOUGHT_SECONDS)

    def _take_said(self) -> list[Draft]:
        """What was said since, neighbouring pieces joined."""
        said, self._said = self._said, []
        joined: list[Draft] = []
        for item in said:
            last = joined[-1] if joined else None
            if (
                last is not None
                and last.kind == item.kind == "thought"
                and last.fields.get("thinking") == item.fields.get("thinking")
                and len(last.fields["text"]) + len(item.fields["text"]) <= THOUGHT_CHARACTERS
            ):
                fields = {**item.fields, "text": last.fields["text"] + item.fields["text"]}
                joined[-1] = draft("thought", **fields, **self._at)
            else:
                joined.append(item)
        return joined

    async def _store(self, number: int, reply: Reply) -> None:
        """A finished reply, with the last of what it said: from here on it is not asked for again."""
        body = {
            "calls": [
                {
                    "id": call.id, "call": call_id(self._run.id, number, index), "tool": call.tool,
                    "arguments": call.arguments, "why": call.why, "step": call.step, "line": call.line,
                }
                for index, call in enumerate(reply.calls, 1)
            ],
            "state": reply.state,
            "tokens": reply.tokens,
            "error": reply.error,
            "error_step": reply.error_step,
            "error_line": reply.error_line,
        }  # fmt: skip
        row = Row("reply", {"run_id": self._run.id, "round": number, "body": body})
        await self._host.step(lambda _: (self._take_said(), [row]))
        self._tokens += reply.tokens or 0
        self._exchanges.append(Exchange(number, body, {}))
        self._own += 1

    # Calls

    async def _carry_out(self, exchange: Exchange) -> Ending | None:
        """Makes the calls of a reply that have no result yet, in order; says whether the turn ends with them."""
        reply, results = exchange.reply, dict(exchange.results)
        if reply.get("error"):
            return Ending("error", reply["error"], reply.get("error_step"), reply.get("error_line"))
        calls = [_call(stored) for stored in reply["calls"]]
        names = [stored["id"] for stored in reply["calls"]]
        missing = [call for call, name in zip(calls, names, strict=True) if name not in results]
        if missing:
            prepared = await self._announce(exchange.round, missing)
            for call, name in zip(calls, names, strict=True):
                if name not in results:
                    results[name] = await self._make(call, prepared.get(call.id))
            self._exchanges[-1] = Exchange(exchange.round, reply, results, exchange.messages)
        ends = next((result.ends for result in results.values() if result.ends is not None), None)
        if ends == "answer":
            return Ending("done", "it asked a question", question=True)
        cell = self._notebook.cells.get(self._run.cell_id)
        more = cell is not None and bool(cell.story.messages)  # what people said meanwhile is answered first
        if (ends == "delivered" or not calls) and not more:
            return Ending("done")
        return None

    async def _announce(self, number: int, calls: Sequence[Call]) -> dict[str, Prepared | Result]:
        """Tells what is to be done and asks for it, side by side. A call whose subject an earlier one may still make is
        described when it comes to it."""
        prepared: dict[str, Prepared | Result] = {}
        drafts: list[Draft] = []
        cell = self._notebook.cells.get(self._run.cell_id)
        told = {item["call"] for item in cell.story.items if item["t"] == "tool"} if cell is not None else set()
        for call in calls:
            if call.id in self._effects:  # begun before a crash: told and decided then
                continue
            made = await self._prepare(call)
            if not isinstance(made, Result) or len(calls) == 1:
                prepared[call.id] = made
            if call.id in told:
                continue
            tool = self._config.tools.get(call.tool)
            good = made if isinstance(made, Prepared) else None
            drafts.append(
                draft(
                    "tool", event="call", call=call.id, round=number, tool=call.tool,
                    arguments=_shown(good.plain if good else call.arguments),
                    title=good.description.title if good else call.tool, risk=tool.risk if tool else None,
                    effect=tool.effect if tool else None,
                    diff=bounded(good.description.diff, 48 * 1024)[0] if good and good.description.diff else None,
                    **self._at,
                )
            )  # fmt: skip
        if drafts:
            await self._host.step(lambda _: (drafts, ()))
        wanted = [one.wanted for one in prepared.values() if isinstance(one, Prepared)]
        if wanted:
            await self._host.broker.decide(self._asker, wanted)
        return prepared

    async def _prepare(self, call: Call) -> Prepared | Result:
        """What the call would do; a result when it cannot be made at all."""
        tool = self._config.tools.get(call.tool)
        if tool is None:
            known = ", ".join(self._config.tools)
            return Result("error", f"there is no tool {call.tool!r}; there are: {known}")
        try:
            arguments = tool.Arguments.model_validate(call.arguments)
        except ValidationError as error:
            return Result("error", f"the arguments of {call.tool} do not fit: {_explained(error)}")
        try:
            async with self._room(call) as room:
                description = await tool.describe(room, arguments)
        except ToolFailed as error:
            return Result("error", str(error))
        plain = arguments.model_dump(mode="json")
        bound = digest(tool.name, plain, self._notebook.id, description.facts)
        return Prepared(call, tool, arguments, plain, description, bound)

    async def _make(self, call: Call, prepared: Prepared | Result | None) -> Result:
        """One call, to its result, which is stored when this returns."""
        effect = self._effects.get(call.id)
        if effect is not None:  # reserved before a crash
            result = await self._recover(call, effect.digest)
            return await self._settle(call, result)
        if prepared is None:
            prepared = await self._prepare(call)
            if isinstance(prepared, Prepared):
                await self._host.broker.decide(self._asker, [prepared.wanted])
        rows: list[Row] = []
        remark: str | None = None
        while isinstance(prepared, Prepared):
            verdict = await self._verdict(call)
            if not verdict.approved:
                return await self._unmade(call, Result("denied", verdict.text))
            prepared = await self._prepare(call)  # what it points at may have changed since it was asked about
            if isinstance(prepared, Prepared) and await self._host.broker.confirm(self._asker, prepared.wanted):
                verdict = await self._verdict(call)
                rows, remark = verdict.rows, verdict.text if verdict.message else None
                break
        if isinstance(prepared, Result):
            return await self._unmade(call, prepared)
        key = effect_key(self._run.id, call.id, prepared.digest)
        await self._reserve(prepared, key, rows)
        result = await self._do(prepared, key)
        if remark is not None:  # what a person said with the approval is for the model, too
            result = replace(result, text=f"{result.text.rstrip()}\n[{remark}]".lstrip())
        return await self._settle(call, result)

    async def _verdict(self, call: Call) -> Any:
        """Waits for a person, who may have put the ask off: then this needs no engine until it is decided."""
        while True:
            try:
                with self.waiting():
                    return await self._host.broker.verdict(call.id)
            except Parked:
                with self.waiting():
                    await self._park()

    async def _park(self) -> None:
        def park(notebook: Notebook) -> Decided:
            run, cell = notebook.runs.get(self._run.id), notebook.cells.get(self._run.cell_id)
            if run is None or run.parked or run.state == "cancelling" or cell is None:
                return (), ()
            if not any(item["run"] == run.id and item.get("parked") for item in cell.story.asks):
                return (), ()  # decided at this moment
            return [draft("run", event="yielded", waits_for="ask", **self._at)], ()

        def taken_up(notebook: Notebook) -> bool:
            run = notebook.runs.get(self._run.id)
            return run is None or not run.parked

        await self._host.step(park)
        await self._host.until(taken_up)

    async def _reserve(self, prepared: Prepared, key: str, rows: Sequence[Row]) -> None:
        call, tool = prepared.call, prepared.tool
        begun = draft(
            "tool", event="begun", call=call.id, title=prepared.description.title,
            output=code_run(key) if tool.risk == "run" else None, **self._at,
        )  # fmt: skip
        reserved = Row(
            "effect",
            {
                "run_id": self._run.id, "call_id": call.id, "tool": tool.name, "digest": prepared.digest,
                "class": tool.effect,
            },
        )  # fmt: skip
        await self._host.step(lambda _: ([begun], [reserved, *rows]))

    async def _do(self, prepared: Prepared, key: str) -> Result:
        try:
            async with self._room(prepared.call) as room:
                return await prepared.tool.run(room, key, prepared.arguments, prepared.description)
        except OutcomeUnknown:
            return await self._ask_whether(prepared.call, prepared.tool)
        except ToolFailed as error:
            return Result("error", str(error))

    async def _recover(self, call: Call, bound: str) -> Result:
        """A call that was begun by a process that died: done again, found out about, or told as unknown."""
        tool, key = self._config.tools.get(call.tool), effect_key(self._run.id, call.id, bound)
        if tool is None:
            return Result("unknown", f"the server stopped while {call.tool} ran, and this one has no such tool")
        try:
            arguments = tool.Arguments.model_validate(call.arguments)
        except ValidationError as error:
            return Result("unknown", f"the server stopped while {call.tool} ran; it takes these no more: {error}")
        if tool.effect != "pure":
            async with self._room(call) as room:
                try:
                    found = await tool.look_up(room, key, arguments)
                except ToolFailed as error:
                    found = Result("unknown", str(error))
            if found is not None:
                return found
            if tool.effect == "once":
                return await self._ask_whether(call, tool)
        prepared = await self._prepare(call)
        return prepared if isinstance(prepared, Result) else await self._do(prepared, key)

    async def _ask_whether(self, call: Call, tool: Tool) -> Result:
        """Nobody can know whether it happened but, perhaps, a person: silence leaves it unknown."""
        asked = replace(call, id=f"{call.id}.happened", why=WHETHER)
        shown = json.dumps(call.arguments, ensure_ascii=False, indent=1) if len(call.arguments) != 1 else ""
        command = shown or str(next(iter(call.arguments.values())))
        question = Description(f"Did this happen? {call.tool}: {one_line(command)}", command)
        await self._host.broker.decide(self._asker, [Wanted(asked, question, tool.risk, call.id, always=True)])
        verdict = await self._verdict(asked)
        if verdict.approved:
            return Result("done", f"{WHETHER} {verdict.by or 'A person'} says that it happened.")
        if verdict.reason == "person":
            return Result("error", f"{WHETHER} {verdict.by or 'A person'} says that it did not happen.")
        return Result("unknown", f"{WHETHER} It may have happened, in whole or in part: look before you do it again.")

    async def _settle(self, call: Call, result: Result) -> Result:
        """Stores how a call ended, with what its tool had to tell; nothing that it started is left."""
        await self._host.code.end_all(self._run.id)
        value = kept(result)
        row = Row("effect_settled", {"run_id": self._run.id, "call_id": call.id, "result": value})
        await self._host.step(lambda _: ([*result.drafts, self._resulted(call.id, value)], [*result.rows, row]))
        return result_from(value)

    async def _unmade(self, call: Call, result: Result) -> Result:
        """Stores why a call was not made."""
        value = kept(result)
        await self._host.step(lambda _: ([self._resulted(call.id, value)], [self._never(call.id, call.tool, value)]))
        return result_from(value)

    def _never(self, call: str, tool: str, value: dict[str, Any]) -> Row:
        """An effect that was never begun, with its result."""
        return Row(
            "effect",
            {
                "run_id": self._run.id, "call_id": call, "tool": tool, "digest": "", "class": "pure", "result": value,
            },
        )  # fmt: skip

    def _resulted(self, call: str, value: Mapping[str, Any]) -> Draft:
        return draft(
            "tool", event="result", call=call, status=value["status"], text=value["text"],
            left_out=value["left_out"] or None, diff=value["diff"], **self._at,
        )  # fmt: skip

    def _room(self, call: Call) -> TurnRoom:
        return TurnRoom(self._host, self._run, call.id, self.waiting, self._config.fetch_allow)

    # The end

    def _step(self) -> int | None:
        """The step of the newest call, where there are steps."""
        calls = self._exchanges[-1].reply["calls"] if self._own else []
        return calls[-1]["step"] if calls else None

    async def _end(self, ending: Ending) -> None:
        """Stops what is under way, gives every open call a result, and tells the end, once."""
        if ending.status != "done":
            await self._host.broker.cancel(self._run.id)
        await self._host.code.end_all(self._run.id)
        spent = self._config.seconds - max(0.0, self._left) if math.isfinite(self._scope.deadline) else 0.0
        await self._load()
        own = self._exchanges[-self._own :] if self._own else []
        drafts: list[Draft] = []
        rows: list[Row] = []
        for exchange in own:
            for stored in exchange.reply["calls"]:
                if stored["id"] in exchange.results:
                    continue
                value = kept(Result("cancelled", f"Not finished: {ending.reason or 'the turn ended'}."))
                drafts.append(self._resulted(stored["call"], value))
                settled = {"run_id": self._run.id, "call_id": stored["call"], "result": value}
                reserved = stored["call"] in self._effects
                rows.append(
                    Row("effect_settled", settled) if reserved else self._never(stored["call"], stored["tool"], value)
                )
                ending.step = ending.step or stored["step"]
        if ending.status == "error":
            drafts.append(draft("error", reason=ending.reason, step=ending.step, line=ending.line, **self._at))
        calls = sum(len(exchange.reply["calls"]) for exchange in own)
        drafts.append(
            draft("done", rounds=len(own), calls=calls, ms=round(spent * 1000), tokens=self._tokens or None, **self._at)
        )

        def end(notebook: Notebook) -> Decided:
            run = notebook.runs.get(self._run.id)
            if run is None:
                return (), ()
            status = "cancelled" if run.state == "cancelling" and ending.status != "done" else ending.status
            reason = "stopped" if status == "cancelled" else ending.reason
            over = decide.end(
                run, status, reason, step=ending.step, ms=round(spent * 1000),
                waits_for="answer" if ending.question else None,
            )  # fmt: skip
            return [*self._take_said(), *drafts, over, *decide.after_end(notebook, run, status)], rows

        await self._host.step(end)

    def _end_anyhow(self, notebook: Notebook) -> Decided:
        run = notebook.runs.get(self._run.id)
        if run is None:
            return (), ()
        return [decide.end(run, "error", FAULT), *decide.after_end(notebook, run, "error")], ()

    _effects: Mapping[str, store.StoredEffect] = {}
    _pending: dict[str, Any] | None = None
    _kernel: int | None = None


class _Flag:
    """Set by one task, waited for by another, as often as wanted."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()
        self._event = trio.Event()


def runaway(exchanges: Sequence[Exchange]) -> str | None:
    """Why a turn that repeats itself must end: the same call with the same arguments failed so often in a row."""
    last: str | None = None
    failures = 0
    for exchange in exchanges:
        for call in exchange.reply["calls"]:
            result = exchange.results.get(call["id"])
            name = json.dumps([call["tool"], call["arguments"]], sort_keys=True)
            if result is None or result.status == "done":
                last, failures = None, 0
            else:
                last, failures = name, failures + 1 if name == last else 1
            if failures >= SAME_FAILURES:
                return f"the same call of {call['tool']} failed {SAME_FAILURES} times in a row, with the same arguments"
    return None


def spec(tool: Tool) -> ToolSpec:
    """A tool as a model is told of it."""
    return ToolSpec(tool.name, (tool.Arguments.__doc__ or "").strip(), tool.Arguments.model_json_schema())


def _call(stored: Mapping[str, Any]) -> Call:
    """A stored call under its name in the notebook."""
    return Call(
        stored["call"], stored["tool"], stored["arguments"], stored.get("why"), stored.get("step"), stored.get("line")
    )


def _kernel(notebook: Notebook) -> int | None:
    """Which life of the kernel holds variables now; null without one."""
    sandbox = notebook.sandbox
    return sandbox.lives if sandbox.state == "awake" and sandbox.kernel == "ready" else None


def _shown(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as a frame holds them: long texts cut, with what is missing said."""
    return {
        key: f"{value[:8000]}\n… {len(value) - 8000} more characters"
        if isinstance(value, str) and len(value) > 8000
        else value
        for key, value in arguments.items()
    }


def _explained(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}" for item in problems[:5])


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group, at whatever depth; one that says that another engine took over before all others."""
    fenced = group.split((FencedStep, Fenced))[0]
    found: BaseException = fenced or group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
