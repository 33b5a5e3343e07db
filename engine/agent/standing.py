"""Where a turn stands: what it was asked, what was said and done since, what it used.

Read from the database when a turn is taken up, by whatever process, and kept up to date while it goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from engine.agent.attaching import attach
from engine.agent.calls import Conversation, Exchange, Picture
from engine.agent.context import Shown, shown
from engine.agent.making import Host, TurnConfig
from engine.agent.mentions import Attached
from engine.agent.models.places import RUNBOOK
from engine.effects import result_from
from engine.frames import Draft, draft
from engine.notebook import Notebook, Run
from engine.store import spending
from engine.store import turns as store
from engine.store.steps import Row
from engine.store.turns import StoredEffect

PICTURES = 20  # that a model is shown in one round


class Standing:
    """Of one run of an agent cell. `begin` is what it began with, `exchanges` its rounds and those of the runs that it
    continues, of which the last `own` are its own; `pending` what was said at the round that has no reply yet."""

    def __init__(self, host: Host, run: Run, config: TurnConfig) -> None:
        self._host = host
        self._run = run
        self._config = config
        self._at: dict[str, Any] = {"run_id": run.id, "cell_id": run.cell_id, "by": "agent"}
        self.begin: dict[str, Any] = {}
        self.exchanges: list[Exchange] = []
        self.own = 0
        self.pending: dict[str, Any] | None = None
        self.effects: Mapping[str, StoredEffect] = {}
        self.summary: dict[str, Any] = {}  # what stands for the oldest exchanges: {"upto", "text", "said"}
        self.read: list[str] = []  # files that came with the request or with messages
        self.kernel: int | None = None  # the life of the kernel that the agent knows of
        self.tokens = 0
        self.cost: float | None = None  # in dollars, where a price is known

    @property
    def model(self) -> str:
        """Which model replies, as PLACE:MODEL."""
        name: str = self.begin.get("model", RUNBOOK)
        return name

    @property
    def of_this_run(self) -> list[Exchange]:
        """Its own exchanges."""
        return self.exchanges[-self.own :] if self.own else []

    @property
    def step(self) -> int | None:
        """The step of the newest call, where there are steps."""
        calls = self.exchanges[-1].reply["calls"] if self.own else []
        return calls[-1]["step"] if calls else None

    def replied(self, exchange: Exchange) -> None:
        """One round more."""
        self.exchanges.append(exchange)
        self.own += 1

    async def load(self) -> None:
        """Reads what the turn did so far, in this run and in those that it continues."""
        notebook, run = self._host.notebook, self._run
        stored = await self._host.query(store.replies, notebook.id, [run.id, run.follows or run.id])
        begin = stored.get((run.id, 0))
        if begin is None:
            before = stored.get((run.follows, 0)) if run.follows is not None else None
            cell = notebook.cells.get(run.cell_id)
            seen = Shown("", ()) if before else shown(notebook, run.cell_id)
            model = await self._choice()
            request = before["request"] if before else "" if cell is None else cell.source
            named = await self.named(request if not before else run.answer or "", model)
            begin = {
                "request": request,
                "answer": with_named(run.answer, named) if before and run.answer is not None else run.answer,
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
            told = self.told_of_mentions(named, 1, model) if before else self._told_of(seen, named, model)
            await self._host.step(lambda _: (told, [row]))
        self.begin = begin
        runs = [*begin["chain"], run.id]
        stored = await self._host.query(store.replies, notebook.id, runs)
        effects = await self._host.query(store.effects, notebook.id, runs)
        self.effects = effects
        self.exchanges = []
        self.read = [*begin.get("read", ())]
        for run_id in runs:
            rounds = sorted(at for of, at in stored if of == run_id and at > 0)
            self.own = len(rounds)
            began = stored.get((run_id, 0), begin)
            if (answer := began.get("answer")) is not None:
                self.tell_last({"messages": [answer], "pictures": began.get("answer_pictures", ())})
            for at in rounds:
                self.tell_last(stored.get((run_id, -at), {}))
                reply = stored[run_id, at]
                results = {
                    call["id"]: result_from(effect.result)
                    for call in reply["calls"]
                    if (effect := effects.get(call["call"])) is not None and effect.result is not None
                }
                self.exchanges.append(Exchange(at, reply, results))
        self.pending = stored.get((run.id, -(self.own + 1)))
        newest = self.pending or stored.get((run.id, -self.own), {})
        self.kernel = newest.get("kernel")
        used = [reply for (of, at), reply in stored.items() if of == run.id and at > 0]
        self.tokens = sum(reply.get("tokens") or 0 for reply in used)
        costs = [reply["usage"]["cost"] for reply in used if (reply.get("usage") or {}).get("cost") is not None]
        self.cost = sum(costs) if costs else None
        summaries = [kept["summary"] for (_, at), kept in stored.items() if at < 0 and kept.get("summary")]
        self.summary = max(summaries, key=lambda kept: int(kept["upto"]), default={})

    async def conversation(self) -> Conversation:
        """What a model is told for the next reply."""
        begin = self.begin
        exchanges = self.exchanges[int(self.summary.get("upto", 0)) :]
        pictures = [Picture(**one) for one in begin.get("pictures", ())]
        return Conversation(
            begin["request"],
            begin["context"],
            tuple(exchanges),
            tuple(begin.get("messages", ())),
            start_step=self._run.step if not self.own else None,
            summary=self.summary.get("text"),
            said=self.summary.get("said", ()),
            attached=begin.get("attached", ""),
            pictures=pictures,
            blobs=await self._bytes_of(pictures, exchanges),
        )

    async def _bytes_of(self, pictures: Sequence[Picture], exchanges: Sequence[Exchange]) -> dict[str, bytes]:
        """The bytes of the pictures that a model is shown: those with the request, and the newest of what followed."""
        wanted = [one.sha256 for one in pictures]
        for exchange in reversed(exchanges):
            wanted += [one.sha256 for one in exchange.pictures]
            wanted += [one.sha256 for result in exchange.results.values() for one in result.pictures]
        if not wanted or self.model == RUNBOOK:
            return {}
        return await self._host.query(store.pictures, self._host.notebook.id, wanted[:PICTURES])

    async def _choice(self) -> str:
        """Which model replies in this run: the notebook's, or the team's, or what the settings say."""
        if chosen := self._host.notebook.model:
            return chosen
        return await self._host.query(spending.team_model) or self._config.models.config.default

    async def named(self, text: str, model: str) -> Attached:
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

    def told_of_mentions(self, named: Attached, round_: int, model: str) -> list[Draft]:
        """What came with a message, in a frame."""
        if not named.told:
            return []
        told = list(named.told)
        return [draft("context", event="attached", round=round_, model=model, mentions=told, **self._at)]

    def told_of_summary(self, number: int, summed: Mapping[str, Any]) -> Draft:
        """What stands for older rounds from now on, in a frame."""
        said = [f"Said to the agent: {text}" for text in summed["said"]]
        text = "\n\n".join([summed["text"], *said])
        return draft("context", event="compacted", round=number, upto=summed["upto"], text=text, **self._at)

    def tell_last(self, said: Mapping[str, Any]) -> None:
        """`said` was said after the last exchange: messages, and the pictures and files that came with them."""
        messages, pictures = said.get("messages", ()), said.get("pictures", ())
        self.read += said.get("read", ())
        if not messages:
            return
        if not self.exchanges:
            self.begin["messages"] = [*self.begin.get("messages", ()), *messages]
            self.begin["pictures"] = [*self.begin.get("pictures", ()), *pictures]
            return
        last = self.exchanges[-1]
        self.exchanges[-1] = replace(
            last,
            messages=(*last.messages, *messages),
            pictures=(*last.pictures, *(Picture(**one) for one in pictures)),
        )


def with_named(text: str, named: Attached) -> str:
    """A message, and behind it what it names."""
    return f"{text}\n\n{named.text}" if named.text else text


def kernel_life(notebook: Notebook) -> int | None:
    """Which life of the kernel holds variables now; null without one."""
    sandbox = notebook.sandbox
    return sandbox.lives if sandbox.state == "awake" and sandbox.kernel == "ready" else None
