"""Asks as decisions: what is to be asked, what silence denies and when, and how a verdict is told. Pure.

Nothing here waits, reads a clock or touches a row: `engine/broker.py` does, and hands in what it read.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine import rules
from engine.agent.calls import NOT_RUN, Call, Description
from engine.frames import Draft, Risk, draft
from engine.ids import new_id
from engine.notebook import Notebook
from engine.store.asks import PARK_SECONDS, Ask
from engine.store.steps import Row
from engine.trimming import trimmed

FRESH_SECONDS = 900.0  # an approval that was not begun on within this is asked for again
SHOWN = 24 * 1024  # characters of a command, or of a diff, that a card can hold; the digest covers the whole
LOOK_SECONDS = 5.0  # at the rows, while asks are open: presence tells of itself by no hint
CHANGED = "what it points at changed since it was asked about"
STALE = "the approval was not used within 15 minutes"
USED = "its approval was used already"
AFTER_ALL = "it was denied before; going on with the turn approves it after all"
BY_SILENCE = ("timeout", "no_operator")
RECONSIDERED = (*BY_SILENCE, "person")


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Seconds: how long an ask waits for a person, how long while nobody is there, and how often to look."""

    approval: float = 300.0
    operator_grace: float = 60.0
    look: float = LOOK_SECONDS


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks: a run of an agent cell."""

    run_id: str
    cell_id: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call that is to be made: in words, and bound by `digest` to what exactly would happen.

    `always`: no policy and no rule answers it, only a person does. `after`: content of others that the model had read
    before it proposed this.
    """

    call: Call
    description: Description
    risk: Risk
    digest: str
    always: bool = False
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """How it was decided. `reason` as in the frame, `text` is what a model is told, `ask` null where none was needed.

    `rows` belong into the step that reserves the effect: an approval is used once.
    """

    verdict: str
    reason: str
    text: str
    ask: str | None = None
    message: str | None = None
    by: str | None = None
    scope: str | None = None

    @property
    def approved(self) -> bool:
        return self.verdict == "approve"

    @property
    def rows(self) -> list[Row]:
        return [] if self.ask is None else [Row("ask_changed", {"id": self.ask, "used": True})]


def digest(tool: str, arguments: Mapping[str, Any], folder: str, facts: Iterable[str]) -> str:
    """What an approval is bound to: tool, arguments, folder, and what they point at."""
    text = json.dumps([tool, arguments, folder, list(facts)], sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def said(reason: str, *, seconds: float = 0, by: str | None = None, message: str | None = None) -> str:
    """A deny in words that a model understands: it was a decision, and nothing is broken."""
    decision = f"{NOT_RUN}; this is a decision, not a failure of the tool"
    match reason:
        case "timeout":
            return f"nobody answered within {_span(seconds)}, and silence is no{decision}"
        case "no_operator":
            return f"for {_span(seconds)} nobody was there who could have answered{decision}"
        case "cancelled":
            return f"the turn was stopped before anybody answered{NOT_RUN}"
        case "changed":
            return f"what this call points at changed before anybody answered{NOT_RUN}"
    words = f" ({message})" if message else ""
    return f"{by or 'a person'} said no{words}{decision}"


def _span(seconds: float) -> str:
    return f"{seconds / 3600:g} h" if seconds >= 7200 else f"{seconds:g} s"


def verdict_of(ask: Ask, config: BrokerConfig) -> Verdict:
    """The verdict of a decided ask, in words."""
    assert ask.verdict is not None
    assert ask.reason is not None
    if ask.verdict == "approve":
        text = f"approved by {ask.by or 'a person'}" + (f", saying: {ask.message}" if ask.message else "")
    else:
        seconds = PARK_SECONDS if ask.parked else ask.body.get("seconds", config.approval)
        if ask.reason == "no_operator":
            seconds = config.operator_grace
        text = said(ask.reason, seconds=seconds, by=ask.by, message=ask.message)
    return Verdict(ask.verdict, ask.reason, text, ask.id, ask.message, ask.by, ask.scope)


@dataclass(frozen=True, slots=True)
class Silences:
    """What silence decides now, by ask id, and in how many seconds it may decide more."""

    timeout: list[str] = field(default_factory=list)
    no_operator: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    next: float = math.inf


def silences(
    asks: Iterable[Ask],
    *,
    alive: Callable[[str], bool],
    present: bool,
    alone: float,
    deserted: Iterable[str],
    grace: float,
) -> Silences:
    """Which open asks silence denies now.

    `alive(run)`: the run goes on and is not being stopped. `present`: an operator is there now. `alone`: seconds since
    the latest of the last operator seen and the engine's resume. `deserted`: runs that were denied for want of an
    operator, with nobody seen since: their later asks are not waited for. `grace` in seconds.
    """
    found = Silences()
    soonest = math.inf
    gone = set(deserted)
    for ask in asks:
        if not ask.open:
            continue
        if not alive(ask.run_id):
            found.cancelled.append(ask.id)
            continue
        if ask.left <= 0:
            found.timeout.append(ask.id)
            continue
        soonest = min(soonest, ask.left)
        if present or ask.parked:  # who parked it said that nobody will be there
            continue
        left = grace - min(ask.age, alone)
        if left <= 0 or ask.run_id in gone:
            found.no_operator.append(ask.id)
            gone.add(ask.run_id)
        else:
            soonest = min(soonest, left)
    return Silences(found.timeout, found.no_operator, found.cancelled, soonest)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call stands: with a verdict, or waiting for that of `ask`."""

    ask: str | None = None
    verdict: Verdict | None = None
    parked: bool = False


class Round:
    """Finds the place of each call of a round, and gathers what is to be written for those asked about anew."""

    def __init__(self, config: BrokerConfig, notebook: Notebook, turn: Asker, known: Sequence[Ask]) -> None:
        self._config = config
        self._notebook = notebook
        self._turn = turn
        self._run = notebook.runs.get(turn.run_id)
        self._known = known
        self.drafts: list[Draft] = []
        self.rows: list[Row] = []
        self.outdated: list[str] = []  # open asks about something else by now
        self.approved: list[str] = []  # asks that a person approved by going on with the turn

    def place(self, wanted: Wanted) -> Place:
        mine = [ask for ask in self._known if ask.run_id == self._turn.run_id and ask.call_id == wanted.call.id]
        last = mine[-1] if mine else None
        if last is None:
            if (permitted := self._permitted(wanted)) is not None:
                return permitted
            denied = self._reconsidered(wanted)
            return self._anew(wanted, None) if denied is None else self._after_all(denied, wanted)
        if last.open:
            if last.digest == wanted.digest:  # whatever policy and rules became: a pending ask is a person's
                if last.body.get("reconsiders"):  # the crash came before the approval that it was made for
                    self.approved.append(last.id)
                return Place(last.id, parked=last.parked and bool(shown(self._notebook, last).get("parked")))
            self.outdated.append(last.id)
            return self._anew(wanted, CHANGED)
        if last.reason == "changed":
            return self._anew(wanted, CHANGED)
        if last.verdict == "deny":
            return Place(last.id, verdict_of(last, self._config))
        if last.used:
            return self._anew(wanted, USED)
        if last.digest != wanted.digest:
            return self._permitted(wanted) or self._anew(wanted, CHANGED)
        if last.since is not None and last.since > FRESH_SECONDS:
            return self._permitted(wanted) or self._anew(wanted, STALE)
        return Place(last.id, verdict_of(last, self._config))

    def _permitted(self, wanted: Wanted) -> Place | None:
        if wanted.always:
            return None
        reason = rules.permits(
            self._notebook.policy, self._notebook.rules.values(), wanted.risk, wanted.call.tool,
            wanted.description.words,
        )  # fmt: skip
        return None if reason is None else Place(verdict=Verdict("approve", reason, ""))

    def _reconsidered(self, wanted: Wanted) -> Ask | None:
        """The ask of the run before, for exactly this, that was denied and that a person approves by going on."""
        if self._run is None or self._run.step is None:
            return None
        found = [ask for ask in self._known if ask.run_id == self._run.follows and ask.reason in RECONSIDERED]
        used = {ask.body.get("reconsiders") for ask in self._known}
        exact = [ask for ask in found if ask.verdict == "deny" and ask.digest == wanted.digest and ask.id not in used]
        return exact[-1] if exact else None

    def _after_all(self, denied: Ask, wanted: Wanted) -> Place:
        place = self._anew(wanted, AFTER_ALL, denied.id)
        assert place.ask is not None
        self.approved.append(place.ask)
        return place

    def _anew(self, wanted: Wanted, again: str | None, reconsiders: str | None = None) -> Place:
        ask_id, turn, what = new_id(), self._turn, wanted.description
        rule = rules.rule_title(wanted.call.tool, what.words, what.rule)
        made = draft(
            "ask", cell_id=turn.cell_id, run_id=turn.run_id,
            ask=ask_id, call=wanted.call.id, tool=wanted.call.tool, title=what.title,
            command=trimmed(what.command, SHOWN),
            why=wanted.call.why, touches=list(what.touches) or None, risk=wanted.risk, rule=rule,
            words=None if rule is None or what.words is None else list(what.words),
            diff=None if what.diff is None else trimmed(what.diff, SHOWN), seconds=self._config.approval, again=again,
            after=wanted.after, reconsiders=reconsiders,
        )  # fmt: skip
        if not self.rows and self._run is not None and self._run.state == "running":
            self.drafts.append(draft("run", event="waiting", run_id=turn.run_id, cell_id=turn.cell_id, waits_for="ask"))
        self.drafts.append(made)
        self.rows.append(
            Row(
                "ask",
                {
                    "id": ask_id, "cell_id": turn.cell_id, "run_id": turn.run_id, "call_id": wanted.call.id,
                    "digest": wanted.digest, "body": made.fields, "due_seconds": self._config.approval,
                },
            )
        )  # fmt: skip
        return Place(ask_id)


def telling(notebook: Notebook, asks: Sequence[Ask]) -> tuple[list[Draft], list[Row]]:
    """The frames and rows that say what became of `asks`: verdicts, the rules given with them, what was parked.

    A run whose last open ask is told goes on, and one that yielded is not parked any more with its first answer.
    """
    drafts: list[Draft] = []
    rows: list[Row] = []
    for ask in asks:
        about: dict[str, Any] = {"cell_id": ask.cell_id, "run_id": ask.run_id, "by": ask.by}
        if ask.open:
            if ask.parked and not shown(notebook, ask).get("parked"):
                body = {**ask.body, "parked": True, "seconds": round(ask.left)}
                drafts.append(draft("ask", cell_id=ask.cell_id, run_id=ask.run_id, **body))
            continue
        drafts.append(
            draft(
                "verdict", **about, ask=ask.id, call=ask.call_id,
                verdict=ask.verdict, reason=ask.reason, scope=ask.scope, message=ask.message,
            )
        )  # fmt: skip
        rows.append(Row("ask_changed", {"id": ask.id, "told": True}))
        if ask.verdict == "approve" and ask.scope == "kind" and (rule := rules.rule_of(ask.id, ask.body)) is not None:
            drafts.append(draft("session", event="rule", by=ask.by, rule=rule))
    for run_id in dict.fromkeys(ask.run_id for ask in asks if not ask.open):
        run = notebook.runs.get(run_id)
        if run is None or run.state != "waiting":
            continue
        about = {"run_id": run_id, "cell_id": run.cell_id}
        if not any(ask.open and ask.run_id == run_id for ask in asks):
            drafts.append(draft("run", event="resumed", **about))
        elif run.parked:  # others are still open, but it has its answer to go on with
            drafts.append(draft("run", event="waiting", waits_for="ask", **about))
    return drafts, rows


def shown(notebook: Notebook, ask: Ask) -> Mapping[str, Any]:
    """The ask as its cell's story shows it; empty when it does not."""
    cell = notebook.cells.get(ask.cell_id)
    items = () if cell is None else cell.story.items
    return next((item for item in reversed(items) if item["t"] == "ask" and item["ask"] == ask.id), {})
