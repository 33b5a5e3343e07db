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
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import trio

from engine import decide
from engine.agent.attaching import attach
from engine.agent.calls import (
    KERNEL_GONE,
    Call,
    Conversation,
    Exchange,
    Model,
    ModelFailed,
    Picture,
    Reply,
    Result,
    Search,
    Thought,
    Tool,
    ToolSpec,
    Usage,
)
from engine.agent.compacting import compacted, shortened
from engine.agent.context import Shown, shown
from engine.agent.making import Calls, Host, TurnConfig
from engine.agent.mentions import Attached
from engine.agent.models.places import RUNBOOK
from engine.agent.models.runbook import RunbookModel
from engine.effects import call_id, kept, result_from
from engine.frames import Draft, draft
from engine.ids import new_id
from engine.notebook import Notebook, Run
from engine.runs import Decided
from engine.sandbox.client import Fenced
from engine.store import spending
from engine.store import turns as store
from engine.store.steps import FencedStep, Row

log = logging.getLogger(__name__)

ROUNDS = 120  # of one turn
ATTEMPTS = 3  # at one round's reply, while nothing is replied: a model that fails
TRIES = 6  # at one round's reply, when the other side says that asking again may help
DEATHS = 6  # at one round's reply: processes that died while it was asked for
SAME_FAILURES = 3  # of one call with the same arguments, one after the other
PAUSE_SECONDS = (1.0, 4.0, 10.0, 20.0, 40.0)  # before the second attempt, the third …; up to a quarter more
LONGEST_PAUSE = 300.0  # seconds that another side may ask for
STARVED = 3  # calls that ended for want of memory, whatever was done between them
MALFORMED = 3  # rounds in a row whose calls were no calls, or whose reply was cut off
PICTURES = 20  # that a model is shown in one round
THOUGHT_SECONDS = 0.15  # pieces that come within this become one frame
THOUGHT_CHARACTERS = 16_000  # in one frame
NO_MODEL = (
    "No model that reads plain words is chosen here, so nothing was done: a runbook carries out code blocks alone. "
    "Choose a model in Settings, or write what is to be done as blocks."
)
OUT_OF_MEMORY = "[error: Out of memory: "  # the last line of such a call
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
        self._exchanges: list[Exchange] = []
        self._own = 0  # exchanges of this run, at the end of the list
        self._begin: dict[str, Any] = {}
        self._said: list[Draft] = []  # thoughts and searches that are not committed yet
        self._tokens = 0
        self._cost: float | None = None
        self._model: Model | None = None
        self._summary: dict[str, Any] = {}  # what stands for the oldest exchanges: {"upto", "text"}
        self._remarks: list[str] = []  # that the model is told at the next round
        self._read: list[str] = []  # files that came with the request or with messages

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

    async def _load(self) -> None:
        """Reads what the turn did so far, in this run and in those that it continues."""
        notebook, run = self._notebook, self._run
        stored = await self._host.query(store.replies, notebook.id, [run.id, run.follows or run.id])
        begin = stored.get((run.id, 0))
        if begin is None:
            before = stored.get((run.follows, 0)) if run.follows is not None else None
            cell = notebook.cells.get(run.cell_id)
            seen = Shown("", ()) if before else shown(notebook, run.cell_id)
            model = await self._choice()
            request = before["request"] if before else "" if cell is None else cell.source
            named = await self._named(request if not before else run.answer or "", model)
            begin = {
                "request": request,
                "answer": _with(run.answer, named) if before and run.answer is not None else run.answer,
                "context": before["context"] if before else seen.text,
                "chain": [*before["chain"], run.follows] if before else [],
                "model": model,
                "attached": before.get("attached", "") if before else named.text,
                "pictures": before.get("pictures", [])
                if before
                else [asdict(one) for one in (*seen.pictures, *named.pictures)],
                "answer_pictures": [asdict(one) for one in named.pictures] if before else [],
                "read": [*(before.get("read", ()) if before else ()), *named.sources],
            }
            for one in seen.pictures:
                if one.sha256 in seen.inline:
                    await self._host.keep_blob(one.mime, None, seen.inline[one.sha256])
            row = Row("reply", {"run_id": run.id, "round": 0, "body": begin})
            told = self._told_of_mentions(named, 1, model) if before else self._told_of(seen, named, model)
            await self._host.step(lambda _: (told, [row]))
        self._begin = begin
        runs = [*begin["chain"], run.id]
        stored = await self._host.query(store.replies, notebook.id, runs)
        effects = await self._host.query(store.effects, notebook.id, runs)
        self._calls.effects = effects
        self._exchanges = []
        self._read = [*begin.get("read", ())]
        for run_id in runs:
            rounds = sorted(at for of, at in stored if of == run_id and at > 0)
            self._own = len(rounds)
            began = stored.get((run_id, 0), begin)
            if (answer := began.get("answer")) is not None:
                self._tell_last({"messages": [answer], "pictures": began.get("answer_pictures", ())})
            for at in rounds:
                self._tell_last(stored.get((run_id, -at), {}))
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
        used = [reply for (of, at), reply in stored.items() if of == run.id and at > 0]
        self._tokens = sum(reply.get("tokens") or 0 for reply in used)
        costs = [reply["usage"]["cost"] for reply in used if (reply.get("usage") or {}).get("cost") is not None]
        self._cost = sum(costs) if costs else None
        summaries = [kept["summary"] for (_, at), kept in stored.items() if at < 0 and kept.get("summary")]
        self._summary = max(summaries, key=lambda kept: int(kept["upto"]), default={})

    async def _choice(self) -> str:
        """Which model replies in this run: the notebook's, or the team's, or what the settings say."""
        if chosen := self._notebook.model:
            return chosen
        return await self._host.query(spending.team_model) or self._config.models.config.default

    async def _named(self, text: str, model: str) -> Attached:
        """What `text` names with @, as it is now. A runbook takes a request as it stands, word for word."""
        if model == RUNBOOK or "@" not in text:
            return Attached()
        return await attach(self._host, self._run, text, self._config.models.config.context_tokens)

    def _told_of(self, seen: Shown, named: Attached, model: str) -> list[Draft]:
        """What the agent is shown, in a frame."""
        if model == RUNBOOK:
            return []
        return [
            draft(
                "context", event="shown", model=model, cells=list(seen.cells), left_out=seen.left_out or None,
                characters=len(seen.text), names=[one.name for one in seen.pictures] or None,
                mentions=list(named.told) or None, **self._at,
            )
        ]  # fmt: skip

    def _told_of_mentions(self, named: Attached, round_: int, model: str) -> list[Draft]:
        """What came with a message, in a frame."""
        if not named.told:
            return []
        told = list(named.told)
        return [draft("context", event="attached", round=round_, model=model, mentions=told, **self._at)]

    def _told_of_summary(self, number: int, summed: Mapping[str, Any]) -> Draft:
        """What stands for older rounds from now on, in a frame."""
        said = [f"Said to the agent: {text}" for text in summed["said"]]
        text = "\n\n".join([summed["text"], *said])
        return draft("context", event="compacted", round=number, upto=summed["upto"], text=text, **self._at)

    def _tell_last(self, said: Mapping[str, Any]) -> None:
        """`said` was said after the last exchange: messages, and the pictures and files that came with them."""
        messages, pictures = said.get("messages", ()), said.get("pictures", ())
        self._read += said.get("read", ())
        if not messages:
            return
        if not self._exchanges:
            self._begin["messages"] = [*self._begin.get("messages", ()), *messages]
            self._begin["pictures"] = [*self._begin.get("pictures", ()), *pictures]
            return
        last = self._exchanges[-1]
        self._exchanges[-1] = replace(
            last,
            messages=(*last.messages, *messages),
            pictures=(*last.pictures, *(Picture(**one) for one in pictures)),
        )

    async def _work(self) -> Ending:
        cell = self._notebook.cells.get(self._run.cell_id)
        used = cell is not None and cell.story.run_id == self._run.id and cell.story.seconds is not None
        left = (
            cell.story.seconds if cell is not None and used and cell.story.seconds is not None else self._config.seconds
        )
        self._scope.deadline = trio.current_time() + left
        await self._load()
        try:
            self._model = self._config.models.choose(self._begin.get("model", RUNBOOK))
        except ModelFailed as failed:
            return Ending("error", failed.reason, settings=failed.settings)
        self._remarks += await self._host.servers.ready(servers_named(self._model, self._begin["request"]))
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
        if self._leaving:
            with self.waiting():
                await trio.sleep_forever()
        if number > ROUNDS:
            return Ending("error", f"it used up its {ROUNDS} rounds", self._step())
        if (same := runaway(self._exchanges[-self._own :] if self._own else [])) is not None:
            return Ending("error", same, self._step())
        if (spent := await self._spent()) is not None:
            return spent
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
        began = self._pending or {}
        self._tell_last(began)
        self._summary = began.get("summary") or self._summary
        self._pending = None
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
                if failed.long and not full and (summed := shortened(self._summary, self._exchanges)):
                    full, attempt = True, attempt + 1
                    await self._shorten(number, attempt, reason, began, summed)
                    continue
                pause = max(_pause(failures), failed.after or 0.0)
                if not failed.again or failures >= TRIES:
                    times = f" (asked {failures} times)" if failures > 1 else ""
                    return Ending("error", f"{reason}{times}", self._step(), settings=failed.settings)
                if pause > min(LONGEST_PAUSE, self._left):
                    wait = f"{reason}; it wants {pause:.0f} s of quiet, which is longer than this turn can wait"
                    return Ending("error", wait, self._step())
            except Exception as error:
                failures += 1
                reason = f"{type(error).__name__}: {error}"[:500]
                log.warning("notebook %s: turn %s: model: %s", self._notebook.id, self._run.id, reason)
                if failures >= ATTEMPTS:
                    return Ending("error", f"the model failed {ATTEMPTS} times: {reason}", self._step())
                pause = _pause(failures)
            attempt += 1
            await self._retrying(number, attempt, reason, pause)
            await trio.sleep(pause)
        await self._store(number, attempt, reply)
        return None

    async def _spent(self) -> Ending | None:
        """The end of a turn that may use no more: of its own bound, or of what all may use in a day."""
        config = self._config.models.config
        if config.turn_tokens is not None and self._tokens >= config.turn_tokens:
            return Ending(
                "error", f"it used {self._tokens} tokens; NIGHTBOOK_TURN_TOKENS allows a turn {config.turn_tokens}",
                self._step(), settings=True,
            )  # fmt: skip
        if self._begin.get("model") == RUNBOOK or (config.day_tokens is None and config.day_cost is None):
            return None
        day = await self._host.query(spending.today)
        if config.day_tokens is not None and day.tokens >= config.day_tokens:
            used, allowed = f"{day.tokens} tokens", f"NIGHTBOOK_DAY_TOKENS allows {config.day_tokens}"
        elif config.day_cost is not None and (day.cost or 0.0) >= config.day_cost:
            used, allowed = f"${day.cost:.2f}", f"NIGHTBOOK_DAY_COST allows ${config.day_cost:.2f}"
        else:
            return None
        return Ending(
            "error", f"today's turns used {used}; {allowed} a day (UTC). Go on tomorrow, or raise it",
            self._step(), settings=True,
        )  # fmt: skip

    def _used(self, number: int, attempt: int, usage: Usage) -> tuple[Draft, Row]:
        """What one attempt used, for people and for the books."""
        counted = {"round": number, "model": self._begin.get("model", ""), **asdict(usage)}
        made = draft(
            "usage", **{**counted, "cached": usage.cached or None, "written": usage.written or None}, **self._at
        )
        return made, Row("usage", {"run_id": self._run.id, "attempt": attempt, **counted})

    async def _count(self, number: int, attempt: int, usage: Usage | None) -> None:
        """What a failed attempt used all the same."""
        if usage is not None:
            made, row = self._used(number, attempt, usage)
            self._tokens += usage.tokens
            await self._host.step(lambda _: ([made], [row]))

    async def _begin_round(self, number: int) -> None:
        """The yield point: takes what was said meanwhile, in the step that begins the round."""
        kernel_before = self._kernel
        opening = sum(len(self._begin.get(part) or "") for part in ("request", "context", "attached"))
        window = self._config.models.config.context_tokens
        summed = compacted(self._summary, self._exchanges, opening, window)
        model = self._begin.get("model", RUNBOOK)
        cell_before = self._notebook.cells.get(self._run.cell_id)
        waiting = [] if cell_before is None else cell_before.story.messages
        named = {item["message"]: await self._named(item["text"], model) for item in waiting}

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
            texts = [_with(item["text"], one) for item, one in zip(said, came, strict=True)]
            remarks, self._remarks = self._remarks, []
            for item, one in zip(said, came, strict=True):
                drafts.append(draft("message", event="taken", message=item["message"], **self._at))
                drafts += self._told_of_mentions(one, number, model)
            if kernel_before is not None and _kernel(notebook) != kernel_before:
                remarks = [KERNEL_GONE, *remarks]
            for told in remarks:
                texts.append(told)
                drafts.append(
                    draft("message", event="taken", message=new_id(), text=told, **{**self._at, "by": "nightbook"})
                )
            self._kernel = _kernel(notebook)
            self._pending = {
                "messages": texts, "kernel": self._kernel,
                "pictures": [asdict(picture) for one in came for picture in one.pictures],
                "read": [source for one in came for source in one.sources],
            }  # fmt: skip
            if summed:
                self._pending["summary"] = summed
                drafts.append(self._told_of_summary(number, summed))
            return drafts, [Row("reply", {"run_id": self._run.id, "round": -number, "body": self._pending})]

        await self._host.step(begin)

    async def _retrying(self, number: int, attempt: int, reason: str, pause: float | None = None) -> None:
        self._said.clear()
        seconds = None if pause is None else round(pause, 1)
        made = draft("run", event="retrying", round=number, attempt=attempt, reason=reason, seconds=seconds, **self._at)
        await self._host.step(lambda _: ([made], ()))

    async def _shorten(
        self, number: int, attempt: int, reason: str, began: Mapping[str, Any], summed: dict[str, Any]
    ) -> None:
        """The round is asked again with a summary for older ones, as the model could not read them all."""
        self._said.clear()
        self._summary = summed
        again = draft("run", event="retrying", round=number, attempt=attempt, reason=reason, **self._at)
        told = [self._told_of_summary(number, summed), again]
        row = Row("reply", {"run_id": self._run.id, "round": -number, "body": {**began, "summary": summed}})
        await self._host.step(lambda _: (told, [row]))

    async def _reply(self, number: int) -> Reply:
        """Asks the model. What it says is committed as it comes, pieces that come close together in one frame."""
        begin = self._begin
        assert self._model is not None
        exchanges = self._exchanges[int(self._summary.get("upto", 0)) :]
        pictures = [Picture(**one) for one in begin.get("pictures", ())]
        conversation = Conversation(
            begin["request"],
            begin["context"],
            tuple(exchanges),
            tuple(begin.get("messages", ())),
            start_step=self._run.step if not self._own else None,
            summary=self._summary.get("text"),
            said=self._summary.get("said", ()),
            attached=begin.get("attached", ""),
            pictures=pictures,
            blobs=await self._bytes_of(pictures, exchanges),
        )
        specs = [spec(tool) for tool in self._calls.tools.values()]
        reply: Reply | None = None
        try:
            async with trio.open_nursery() as nursery:
                more = _Flag()
                nursery.start_soon(self._tell_thoughts, more)
                async with contextlib.aclosing(self._model.reply(conversation, specs)) as stream:
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
        if conversation.blobs and getattr(self._model, "blind", False) and not self._blind:
            self._blind = True
            told = [{"kind": "pictures", "name": str(len(conversation.blobs)), "problem": "it reads text alone"}]
            self._said.append(
                draft("context", event="attached", round=number, model=begin["model"], mentions=told, **self._at)
            )
        return reply

    async def _bytes_of(self, pictures: Sequence[Picture], exchanges: Sequence[Exchange]) -> dict[str, bytes]:
        """The bytes of the pictures that a model is shown: those with the request, and the newest of what followed."""
        wanted = [one.sha256 for one in pictures]
        for exchange in reversed(exchanges):
            wanted += [one.sha256 for one in exchange.pictures]
            wanted += [one.sha256 for result in exchange.results.values() for one in result.pictures]
        if not wanted or self._begin.get("model") == RUNBOOK:
            return {}
        return await self._host.query(store.pictures, self._notebook.id, wanted[:PICTURES])

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

    async def _store(self, number: int, attempt: int, reply: Reply) -> None:
        """A finished reply, with the last of what it said: from here on it is not asked for again."""
        body = {
            "calls": [
                {
                    "id": call.id, "call": call_id(self._run.id, number, index), "tool": call.tool,
                    "arguments": call.arguments, "why": call.why, "step": call.step, "line": call.line,
                    "malformed": call.malformed,
                }
                for index, call in enumerate(reply.calls, 1)
            ],
            "state": reply.state,
            "tokens": reply.usage.tokens if reply.usage else None,
            "usage": asdict(reply.usage) if reply.usage else None,
            "unfinished": reply.unfinished,
            "error": reply.error,
            "error_step": reply.error_step,
            "error_line": reply.error_line,
            "error_settings": reply.error_settings,
        }  # fmt: skip
        row = Row("reply", {"run_id": self._run.id, "round": number, "body": body})
        rows, drafts = [row], []
        if reply.usage is not None:
            made, counted = self._used(number, attempt, reply.usage)
            rows, drafts = [row, counted], [made]
            self._tokens += reply.usage.tokens
        await self._host.step(lambda _: ([*self._take_said(), *drafts], rows))
        self._exchanges.append(Exchange(number, body, {}))
        self._own += 1

    # Calls

    async def _carry_out(self, exchange: Exchange) -> Ending | None:
        """Makes the calls of a reply that have no result yet, in order; says whether the turn ends with them."""
        reply, results = exchange.reply, dict(exchange.results)
        if reply.get("error"):
            return Ending(
                "error", reply["error"], reply.get("error_step"), reply.get("error_line"),
                settings=bool(reply.get("error_settings")),
            )  # fmt: skip
        calls = [_call(stored) for stored in reply["calls"]]
        names = [stored["id"] for stored in reply["calls"]]
        missing = [call for call, name in zip(calls, names, strict=True) if name not in results]
        if self._begin.get("model") != RUNBOOK:  # a runbook was written by a person, whatever it reads
            self._calls.after = foreign([one for one in self._exchanges if one is not exchange], self._read)
        if missing:
            prepared = await self._calls.announce(exchange.round, missing)
            for call, name in zip(calls, names, strict=True):
                if name not in results:
                    results[name] = await self._calls.make(call, prepared.get(call.id))
            self._exchanges[-1] = replace(exchange, reply=reply, results=results)
        ends = next((result.ends for result in results.values() if result.ends is not None), None)
        if ends == "answer":
            return Ending("done", "it asked a question", question=True)
        cell = self._notebook.cells.get(self._run.cell_id)
        more = cell is not None and bool(cell.story.messages)  # what people said meanwhile is answered first
        if (ends == "delivered" or not (calls or reply.get("unfinished"))) and not more:
            return Ending("done")
        return None

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
        nothing = ending.status == "done" and not any(one.reply["calls"] for one in self._exchanges)
        if nothing and self._model is not None and self._model.name == RUNBOOK:
            drafts.append(draft("error", reason=NO_MODEL, settings=True, **self._at))
        drafts.append(
            draft(
                "done",
                rounds=len(own),
                calls=calls,
                ms=round(spent * 1000),
                tokens=self._tokens or None,
                cost=self._cost,
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
            return [*self._take_said(), *drafts, over, *decide.after_end(notebook, run, status)], rows

        await self._host.step(end)

    def _end_anyhow(self, notebook: Notebook) -> Decided:
        run = notebook.runs.get(self._run.id)
        if run is None:
            return (), ()
        return [decide.end(run, "error", FAULT), *decide.after_end(notebook, run, "error")], ()

    _blind = False  # whether people were told that its model takes no pictures
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
    """Why a turn that repeats itself must end: the same call with the same arguments failed so often in a row; or what
    it runs took all memory again and again, which looks new each time, and is no progress whatever lies between."""
    last: str | None = None
    failures = malformed = starved = 0
    for exchange in exchanges:
        wrong = [call for call in exchange.reply["calls"] if call.get("malformed")]
        malformed = malformed + 1 if wrong or exchange.reply.get("unfinished") else 0
        if malformed >= MALFORMED:
            if wrong:
                last_wrong = wrong[-1]["malformed"]
                return f"the model wrote arguments that are no JSON {MALFORMED} times in a row; {last_wrong}"
            return f"the model's reply was cut off {MALFORMED} times in a row; raise NIGHTBOOK_REPLY_TOKENS"
        for call in exchange.reply["calls"]:
            result = exchange.results.get(call["id"])
            name = json.dumps([call["tool"], call["arguments"]], sort_keys=True)
            if result is None or result.status == "done":
                last, failures = None, 0
            else:
                last, failures = name, failures + 1 if name == last else 1
            if result is not None and result.status == "error" and OUT_OF_MEMORY in result.text.rpartition("\n")[2]:
                starved += 1
            if starved >= STARVED:
                return f"memory ran out {STARVED} times in this turn; have it take less, or raise the sandbox's limit"
            if failures >= SAME_FAILURES:
                return f"the same call of {call['tool']} failed {SAME_FAILURES} times in a row, with the same arguments"
    return None


def foreign(exchanges: Sequence[Exchange], named: Sequence[str] = ()) -> str | None:
    """What content of others a model has read, newest first, in a few words; null when it read none. `named`: what came
    with the request or with messages."""
    found: dict[str, None] = {}
    for exchange in reversed(exchanges):
        found.update((result.source, None) for result in exchange.results.values() if result.source is not None)
    found.update(dict.fromkeys(named))
    if not found:
        return None
    names = list(found)
    more = f", and {len(names) - 2} more" if len(names) > 2 else ""
    return f"{', '.join(name[:120] for name in names[:2])}{more}"


def _pause(failures: int) -> float:
    """Seconds before the next attempt; not the same for all who were turned away at once."""
    return PAUSE_SECONDS[min(failures, len(PAUSE_SECONDS)) - 1] * random.uniform(1.0, 1.25)


def servers_named(model: Model, request: str) -> set[str] | None:
    """The tool servers that a turn may call; null: any. A runbook says which before it begins."""
    return RunbookModel.servers(request) if isinstance(model, RunbookModel) else None


def spec(tool: Tool) -> ToolSpec:
    """A tool as a model is told of it."""
    return ToolSpec(tool.name, (tool.Arguments.__doc__ or "").strip(), tool.Arguments.model_json_schema())


def _with(text: str, named: Attached) -> str:
    """A message, and behind it what it names."""
    return f"{text}\n\n{named.text}" if named.text else text


def _call(stored: Mapping[str, Any]) -> Call:
    """A stored call under its name in the notebook."""
    return Call(
        stored["call"], stored["tool"], stored["arguments"], stored.get("why"), stored.get("step"), stored.get("line"),
        stored.get("malformed"),
    )  # fmt: skip


def _kernel(notebook: Notebook) -> int | None:
    """Which life of the kernel holds variables now; null without one."""
    sandbox = notebook.sandbox
    return sandbox.lives if sandbox.state == "awake" and sandbox.kernel == "ready" else None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group, at whatever depth; one that says that another engine took over before all others."""
    fenced = group.split((FencedStep, Fenced))[0]
    found: BaseException = fenced or group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
