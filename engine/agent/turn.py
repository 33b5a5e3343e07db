"""A turn: rounds of model, calls, results, each stored before the next begins. It belongs to no viewer.

What a turn knows is in the database: its replies, its effects, and the frames of its story. A process that dies takes
nothing with it; the next one reads where the turn stood and goes on. docs/architecture.md says what happens at each
point of death.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import trio

from engine import decide
from engine.agent.bounds import (
    ATTEMPTS,
    DEATHS,
    LONGEST_PAUSE,
    ROUNDS,
    TRIES,
    day_used_up,
    pause_before,
    runaway,
    used_up,
)
from engine.agent.calls import (
    KERNEL_GONE,
    Exchange,
    Model,
    ModelFailed,
    Reply,
    Result,
    Usage,
    spec,
)
from engine.agent.compacting import compacted, shortened
from engine.agent.context import foreign
from engine.agent.making import Calls, Host, TurnConfig
from engine.agent.models.places import RUNBOOK
from engine.agent.models.runbook import RunbookModel
from engine.agent.saying import Saying
from engine.agent.standing import Standing, kernel_life, with_named
from engine.effects import call_from, kept, stored_reply
from engine.frames import Draft, draft
from engine.ids import new_id
from engine.notebook import Notebook, Run
from engine.runs import Decided
from engine.sandbox.client import Fenced
from engine.store import spending
from engine.store.steps import FencedStep, Row

log = logging.getLogger(__name__)

NO_MODEL = (
    "No model that reads plain words is chosen here, so nothing was done: a runbook carries out code blocks alone. "
    "Choose a model in Settings, or write what is to be done as blocks."
)
FAULT = "the turn failed inside Nightbook; see its log"
T = TypeVar("T")


@dataclass(slots=True)
class Ending:
    """How a turn ends. `step`: where a person can have it go on."""

    status: str
    reason: str | None = None
    step: int | None = None
    line: int | None = None
    question: bool = False
    settings: bool = False


class Turn:
    """One run of an agent cell, from wherever it stands to its end."""

    def __init__(self, host: Host, run: Run, config: TurnConfig) -> None:
        self._host = host
        self._run = run
        self._config = config
        self._calls = Calls(host, run, config, self.waiting)
        self._scope = trio.CancelScope()
        self._stopping = run.state == "cancelling"
        self._leaving = False
        self._waits = 0  # for people or the lane; or at rest
        self._at: dict[str, Any] = {"run_id": run.id, "cell_id": run.cell_id, "by": "agent"}
        self._standing = Standing(host, run, config)
        self._saying = Saying(host, self._at)
        self._model: Model | None = None
        self._blind = False  # whether people were told that its model takes no pictures
        self._remarks: list[str] = []  # that the model is told at the next round

    @property
    def _notebook(self) -> Notebook:
        return self._host.notebook

    def leave(self) -> None:
        """The process is about to end: rests before its next round, until it is cancelled."""
        self._leaving = True

    @property
    def resting(self) -> bool:
        """Whether nothing would have to be done again if the process ended now."""
        return self._waits > 0

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
        self._waits += 1
        try:
            yield
        finally:
            self._waits -= 1
            self._scope.deadline = trio.current_time() + left

    # Where it stands

    async def _work(self) -> Ending:
        cell = self._notebook.cells.get(self._run.cell_id)
        used = cell is not None and cell.story.run_id == self._run.id and cell.story.seconds is not None
        left = (
            cell.story.seconds if cell is not None and used and cell.story.seconds is not None else self._config.seconds
        )
        self._scope.deadline = trio.current_time() + left
        await self._load()
        try:
            self._model = self._config.models.choose(self._standing.model)
        except ModelFailed as failed:
            return Ending("error", failed.reason, settings=failed.settings)
        self._remarks += await self._host.servers.ready(servers_named(self._model, self._standing.begin["request"]))
        resumed = used
        while True:
            if self._standing.own:  # the newest reply may have calls without a result, or be the last one
                ending = await self._carry_out(self._standing.exchanges[-1])
                if ending is not None:
                    return ending
            ending = await self._round(self._standing.own + 1, resumed)
            resumed = False
            if ending is not None:
                return ending

    async def _load(self) -> None:
        await self._standing.load()
        self._calls.effects = self._standing.effects

    # A round

    async def _round(self, number: int, resumed: bool) -> Ending | None:
        """Has the model reply once more. The reply is stored when it is whole."""
        if self._leaving:
            with self.waiting():
                await trio.sleep_forever()
        if number > ROUNDS:
            return Ending("error", f"it used up its {ROUNDS} rounds", self._standing.step)
        if (same := runaway(self._standing.of_this_run)) is not None:
            return Ending("error", same, self._standing.step)
        if (spent := await self._spent()) is not None:
            return Ending("error", spent, self._standing.step, settings=True)
        attempt = 1
        cell = self._notebook.cells.get(self._run.cell_id)
        if resumed and cell is not None and cell.story.round == number:
            attempt = cell.story.attempt + 1
            if attempt > DEATHS:
                return Ending(
                    "error", f"the server died {DEATHS} times while round {number} was asked for", self._standing.step
                )
            await self._retrying(number, attempt, "the server stopped while the model replied")
        else:
            await self._begin_round(number)
        began = self._standing.pending or {}
        self._standing.tell_last(began)
        self._standing.summary = began.get("summary") or self._standing.summary
        self._standing.pending = None
        failures = 0
        full = False  # it was too long once in this round
        while True:
            try:
                reply = await self._reply(number)
                break
            except (FencedStep, Fenced):
                raise
            except ModelFailed as failed:
                failures += 1
                reason = failed.reason[:1000]
                log.warning("notebook %s: turn %s: model: %s", self._notebook.id, self._run.id, reason)
                await self._count(number, attempt, failed.usage)
                if failed.long and not full and (summed := shortened(self._standing.summary, self._standing.exchanges)):
                    full, attempt = True, attempt + 1
                    await self._shorten(number, attempt, reason, began, summed)
                    continue
                pause = max(pause_before(failures), failed.after or 0.0)
                if not failed.again or failures >= TRIES:
                    times = f" (asked {failures} times)" if failures > 1 else ""
                    return Ending("error", f"{reason}{times}", self._standing.step, settings=failed.settings)
                if pause > min(LONGEST_PAUSE, self._left):
                    wait = f"{reason}; it wants {pause:.0f} s of quiet, which is longer than this turn can wait"
                    return Ending("error", wait, self._standing.step)
            except Exception as error:
                failures += 1
                reason = f"{type(error).__name__}: {error}"[:500]
                log.warning("notebook %s: turn %s: model: %s", self._notebook.id, self._run.id, reason)
                if failures >= ATTEMPTS:
                    return Ending("error", f"the model failed {ATTEMPTS} times: {reason}", self._standing.step)
                pause = pause_before(failures)
            attempt += 1
            await self._retrying(number, attempt, reason, pause)
            await trio.sleep(pause)
        await self._store(number, attempt, reply)
        return None

    async def _spent(self) -> str | None:
        """Why it may use no more: its own bound, or what all may use in a day."""
        config = self._config.models.config
        if (spent := used_up(config, self._standing.tokens)) is not None:
            return spent
        if self._standing.model == RUNBOOK or (config.day_tokens is None and config.day_cost is None):
            return None
        return day_used_up(config, await self._host.query(spending.today))

    def _used(self, number: int, attempt: int, usage: Usage) -> tuple[Draft, Row]:
        """What one attempt used, for people and for the books."""
        counted = {"round": number, "model": self._standing.model, **asdict(usage)}
        made = draft(
            "usage", **{**counted, "cached": usage.cached or None, "written": usage.written or None}, **self._at
        )
        return made, Row("usage", {"run_id": self._run.id, "attempt": attempt, **counted})

    async def _count(self, number: int, attempt: int, usage: Usage | None) -> None:
        """What a failed attempt used all the same."""
        if usage is not None:
            made, row = self._used(number, attempt, usage)
            self._standing.tokens += usage.tokens
            await self._host.step(lambda _: ([made], [row]))

    async def _begin_round(self, number: int) -> None:
        """The yield point: takes what was said meanwhile, in the step that begins the round."""
        kernel_before = self._standing.kernel
        opening = sum(len(self._standing.begin.get(part) or "") for part in ("request", "context", "attached"))
        window = self._config.models.config.context_tokens
        summed = compacted(self._standing.summary, self._standing.exchanges, opening, window)
        model = self._standing.model
        cell_before = self._notebook.cells.get(self._run.cell_id)
        waiting = [] if cell_before is None else cell_before.story.messages
        named = {item["message"]: await self._standing.named(item["text"], model) for item in waiting}

        def begin(notebook: Notebook) -> Decided:
            cell = notebook.cells.get(self._run.cell_id)
            # One that came since has its own round: what it names is not looked up yet.
            said = [] if cell is None else [item for item in cell.story.messages if item["message"] in named]
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
            came = [named[item["message"]] for item in said]
            texts = [with_named(item["text"], one) for item, one in zip(said, came, strict=True)]
            remarks, self._remarks = self._remarks, []
            for item, one in zip(said, came, strict=True):
                drafts.append(draft("message", event="taken", message=item["message"], **self._at))
                drafts += self._standing.told_of_mentions(one, number, model)
            if kernel_before is not None and kernel_life(notebook) != kernel_before:
                remarks = [KERNEL_GONE, *remarks]
            for told in remarks:
                texts.append(told)
                drafts.append(
                    draft("message", event="taken", message=new_id(), text=told, **{**self._at, "by": "nightbook"})
                )
            self._standing.kernel = kernel_life(notebook)
            self._standing.pending = {
                "messages": texts, "kernel": self._standing.kernel,
                "pictures": [asdict(picture) for one in came for picture in one.pictures],
                "read": [source for one in came for source in one.sources],
            }  # fmt: skip
            if summed:
                self._standing.pending["summary"] = summed
                drafts.append(self._standing.told_of_summary(number, summed))
            return drafts, [Row("reply", {"run_id": self._run.id, "round": -number, "body": self._standing.pending})]

        await self._host.step(begin)

    async def _retrying(self, number: int, attempt: int, reason: str, pause: float | None = None) -> None:
        self._saying.forget()
        seconds = None if pause is None else round(pause, 1)
        made = draft("run", event="retrying", round=number, attempt=attempt, reason=reason, seconds=seconds, **self._at)
        await self._host.step(lambda _: ([made], ()))

    async def _shorten(
        self, number: int, attempt: int, reason: str, began: Mapping[str, Any], summed: dict[str, Any]
    ) -> None:
        """The round is asked again with a summary for older ones, as the model could not read them all."""
        self._saying.forget()
        self._standing.summary = summed
        again = draft("run", event="retrying", round=number, attempt=attempt, reason=reason, **self._at)
        told = [self._standing.told_of_summary(number, summed), again]
        row = Row("reply", {"run_id": self._run.id, "round": -number, "body": {**began, "summary": summed}})
        await self._host.step(lambda _: (told, [row]))

    async def _reply(self, number: int) -> Reply:
        """Asks the model. What it says is committed as it comes, pieces that come close together in one frame."""
        assert self._model is not None
        conversation = await self._standing.conversation()
        specs = [spec(tool) for tool in self._calls.tools.values()]
        reply: Reply | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._saying.keep_telling)
                async with contextlib.aclosing(self._model.reply(conversation, specs)) as stream:
                    async for item in stream:
                        if isinstance(item, Reply):
                            reply = item
                            continue
                        self._saying.add(number, item)
                nursery.cancel_scope.cancel()
        except ExceptionGroup as group:
            raise _first(group) from None
        if reply is None:
            raise RuntimeError("the reply ended without saying so")
        if conversation.blobs and getattr(self._model, "blind", False) and not self._blind:
            self._blind = True
            told = [{"kind": "pictures", "name": str(len(conversation.blobs)), "problem": "it reads text alone"}]
            self._saying.tell(
                draft("context", event="attached", round=number, model=self._standing.model, mentions=told, **self._at)
            )
        return reply

    async def _store(self, number: int, attempt: int, reply: Reply) -> None:
        """A finished reply, with the last of what it said: from here on it is not asked for again."""
        body = stored_reply(reply, self._run.id, number)
        row = Row("reply", {"run_id": self._run.id, "round": number, "body": body})
        rows, drafts = [row], []
        if reply.usage is not None:
            made, counted = self._used(number, attempt, reply.usage)
            rows, drafts = [row, counted], [made]
            self._standing.tokens += reply.usage.tokens
        await self._host.step(lambda _: ([*self._saying.take(), *drafts], rows))
        self._standing.replied(Exchange(number, body, {}))

    # Calls

    async def _carry_out(self, exchange: Exchange) -> Ending | None:
        """Makes the calls of a reply that have no result yet, in order; says whether the turn ends with them."""
        reply, results = exchange.reply, dict(exchange.results)
        if reply.get("error"):
            return Ending(
                "error", reply["error"], reply.get("error_step"), reply.get("error_line"),
                settings=bool(reply.get("error_settings")),
            )  # fmt: skip
        calls = [call_from(stored) for stored in reply["calls"]]
        names = [stored["id"] for stored in reply["calls"]]
        missing = [call for call, name in zip(calls, names, strict=True) if name not in results]
        if self._standing.model != RUNBOOK:  # a runbook was written by a person, whatever it reads
            self._calls.after = foreign(
                [one for one in self._standing.exchanges if one is not exchange], self._standing.read
            )
        if missing:
            prepared = await self._calls.announce(exchange.round, missing)
            for call, name in zip(calls, names, strict=True):
                if name not in results:
                    results[name] = await self._calls.make(call, prepared.get(call.id))
            self._standing.exchanges[-1] = replace(exchange, reply=reply, results=results)
        ends = next((result.ends for result in results.values() if result.ends is not None), None)
        if ends == "answer":
            return Ending("done", "it asked a question", question=True)
        cell = self._notebook.cells.get(self._run.cell_id)
        more = cell is not None and bool(cell.story.messages)  # what people said meanwhile is answered first
        if (ends == "delivered" or not (calls or reply.get("unfinished"))) and not more:
            return Ending("done")
        return None

    # The end

    async def _end(self, ending: Ending) -> None:
        """Stops what is under way, gives every open call a result, and tells the end, once."""
        if ending.status != "done":
            await self._host.broker.cancel(self._run.id)
        await self._host.code.end_all(self._run.id)
        spent = self._config.seconds - max(0.0, self._left) if math.isfinite(self._scope.deadline) else 0.0
        await self._load()
        own = self._standing.of_this_run
        drafts: list[Draft] = []
        rows: list[Row] = []
        for exchange in own:
            for stored in exchange.reply["calls"]:
                if stored["id"] in exchange.results:
                    continue
                value = kept(Result("cancelled", f"Not finished: {ending.reason or 'the turn ended'}."))
                drafts.append(self._calls.resulted(stored["call"], value))
                settled = {"run_id": self._run.id, "call_id": stored["call"], "result": value}
                reserved = stored["call"] in self._calls.effects
                rows.append(
                    Row("effect_settled", settled)
                    if reserved
                    else self._calls.never(stored["call"], stored["tool"], value)
                )
                ending.step = ending.step or stored["step"]
        if ending.status == "error":
            drafts.append(
                draft(
                    "error", reason=ending.reason, step=ending.step, line=ending.line,
                    settings=ending.settings or None, **self._at,
                )
            )  # fmt: skip
        calls = sum(len(exchange.reply["calls"]) for exchange in own)
        nothing = ending.status == "done" and not any(one.reply["calls"] for one in self._standing.exchanges)
        if nothing and self._model is not None and self._model.name == RUNBOOK:
            drafts.append(draft("error", reason=NO_MODEL, settings=True, **self._at))
        drafts.append(
            draft(
                "done",
                rounds=len(own),
                calls=calls,
                ms=round(spent * 1000),
                tokens=self._standing.tokens or None,
                cost=self._standing.cost,
                **self._at,
            )
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
            return [*self._saying.take(), *drafts, over, *decide.after_end(notebook, run, status)], rows

        await self._host.step(end)

    def _end_anyhow(self, notebook: Notebook) -> Decided:
        run = notebook.runs.get(self._run.id)
        if run is None:
            return (), ()
        return [decide.end(run, "error", FAULT), *decide.after_end(notebook, run, "error")], ()


def servers_named(model: Model, request: str) -> set[str] | None:
    """The tool servers that a turn may call; null: any. A runbook says which before it begins."""
    return RunbookModel.servers(request) if isinstance(model, RunbookModel) else None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group, at whatever depth; one that says that another engine took over before all others."""
    fenced = group.split((FencedStep, Fenced))[0]
    found: BaseException = fenced or group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
