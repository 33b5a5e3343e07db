"""The calls of a round: told, asked about side by side, then made one after the other, each to a stored result.

An effect is reserved before its call begins and settled with its result. Where a process died between the two, the
next one finds out what became of it, asks a person, or tells the model that nobody knows; it never just repeats it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError

from engine.agent.calls import Call, Description, OutcomeUnknown, Result, Tool, ToolFailed
from engine.agent.mcp.listing import SEPARATOR
from engine.agent.mcp.servers import Servers
from engine.agent.models.choosing import Models
from engine.agent.room import TurnRoom
from engine.agent.tools.text import one_line
from engine.broker import Asker, Broker, Parked, Wanted, digest
from engine.effects import code_run, effect_key, kept, result_from
from engine.files import Files
from engine.frames import Draft, Risk, draft
from engine.notebook import Notebook, Run
from engine.runs import CodeRuns, Decided
from engine.store.steps import Row
from engine.store.turns import StoredEffect
from engine.trimming import bounded

WHETHER = "The place where this ran went away under it, and what became of it cannot be found out."
READS = ("read_file", "search_files")  # tools that give what stands in files; what `network` tools give is foreign too
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

    @property
    def servers(self) -> Servers: ...

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
    """`seconds` of working time of a turn; who may reply; what it can do; what `fetch` may reach though not public."""

    seconds: float
    models: Models
    tools: Mapping[str, Tool]
    fetch_allow: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call that can be made: its tool, its arguments as the tool understood them, and what it would do."""

    call: Call
    tool: Tool
    arguments: Any
    plain: dict[str, Any]
    description: Description
    digest: str
    after: str | None = None

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.call, self.description, self.tool.risk, self.digest, after=self.after)


class Calls:
    """Makes the calls of one turn. `effects` are those that the database had when the turn was taken up, by call;
    `waiting` is entered while the turn waits for people."""

    def __init__(
        self, host: Host, run: Run, config: TurnConfig, waiting: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self.effects: Mapping[str, StoredEffect] = {}
        self.after: str | None = None  # content of others that the model has read
        self._host = host
        self._run = run
        self._config = config
        self._waiting = waiting
        self._asker = Asker(run.id, run.cell_id)
        self._at: dict[str, Any] = {"run_id": run.id, "cell_id": run.cell_id, "by": "agent"}

    @property
    def _notebook(self) -> Notebook:
        return self._host.notebook

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Ours, and those of the notebook's servers that are connected."""
        return {**self._config.tools, **self._host.servers.tools}

    async def announce(self, number: int, calls: Sequence[Call]) -> dict[str, Prepared | Result]:
        """Tells what is to be done and asks for it, side by side. A call whose subject an earlier one may still make is
        described when it comes to it."""
        prepared: dict[str, Prepared | Result] = {}
        drafts: list[Draft] = []
        cell = self._notebook.cells.get(self._run.cell_id)
        told = {item["call"] for item in cell.story.items if item["t"] == "tool"} if cell is not None else set()
        for call in calls:
            if call.id in self.effects:  # begun before a crash: told and decided then
                continue
            made = await self._prepare(call)
            if not isinstance(made, Result) or len(calls) == 1:
                prepared[call.id] = made
            if call.id in told:
                continue
            tool = self.tools.get(call.tool)
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
        tool = self.tools.get(call.tool)
        if call.malformed is not None:
            return Result("error", f"the arguments of {call.tool} cannot be read: {call.malformed}")
        if tool is None:
            known = ", ".join(self.tools)
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
        return Prepared(call, tool, arguments, plain, description, bound, self.after)

    async def make(self, call: Call, prepared: Prepared | Result | None) -> Result:
        """One call, to its result, which is stored when this returns."""
        effect = self.effects.get(call.id)
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
                with self._waiting():
                    return await self._host.broker.verdict(call.id)
            except Parked:
                with self._waiting():
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
            output=code_run(key) if tool.risk == "run" and tool.name in self._config.tools else None, **self._at,
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
                result = await prepared.tool.run(room, key, prepared.arguments, prepared.description)
                return _sourced(result, prepared.tool, prepared.description)
        except OutcomeUnknown:
            return await self._ask_whether(prepared.call, prepared.tool.risk)
        except ToolFailed as error:
            return Result("error", str(error))

    async def _recover(self, call: Call, bound: str) -> Result:
        """A call that was begun by a process that died: done again, found out about, or told as unknown."""
        tool, key = self.tools.get(call.tool), effect_key(self._run.id, call.id, bound)
        if tool is None and SEPARATOR in call.tool:  # its server is not to be had now; who knows what it did
            return await self._ask_whether(call, "run")
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
                return await self._ask_whether(call, tool.risk)
        prepared = await self._prepare(call)
        return prepared if isinstance(prepared, Result) else await self._do(prepared, key)

    async def _ask_whether(self, call: Call, risk: Risk) -> Result:
        """Nobody can know whether it happened but, perhaps, a person: silence leaves it unknown."""
        asked = replace(call, id=f"{call.id}.happened", why=WHETHER)
        shown = json.dumps(call.arguments, ensure_ascii=False, indent=1) if len(call.arguments) != 1 else ""
        command = shown or str(next(iter(call.arguments.values())))
        question = Description(f"Did this happen? {call.tool}: {one_line(command)}", command)
        await self._host.broker.decide(self._asker, [Wanted(asked, question, risk, call.id, always=True)])
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
        await self._host.step(lambda _: ([*result.drafts, self.resulted(call.id, value)], [*result.rows, row]))
        return result_from(value)

    async def _unmade(self, call: Call, result: Result) -> Result:
        """Stores why a call was not made."""
        value = kept(result)
        await self._host.step(lambda _: ([self.resulted(call.id, value)], [self.never(call.id, call.tool, value)]))
        return result_from(value)

    def never(self, call: str, tool: str, value: dict[str, Any]) -> Row:
        """An effect that was never begun, with its result."""
        return Row(
            "effect",
            {
                "run_id": self._run.id, "call_id": call, "tool": tool, "digest": "", "class": "pure", "result": value,
            },
        )  # fmt: skip

    def resulted(self, call: str, value: Mapping[str, Any]) -> Draft:
        return draft(
            "tool", event="result", call=call, status=value["status"], text=value["text"],
            left_out=value["left_out"] or None, diff=value["diff"], **self._at,
        )  # fmt: skip

    def _room(self, call: Call) -> TurnRoom:
        return TurnRoom(self._host, self._run, call.id, self._waiting, self._config.fetch_allow)


def _sourced(result: Result, tool: Tool, description: Description) -> Result:
    """A result that says where its text comes from, when nobody here wrote it."""
    if result.source is None and (tool.risk == "network" or tool.name in READS):
        return replace(result, source=f"{tool.name} {description.title}")
    return result


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
