"""Asks over HTTP: what waits for a person's yes, in all notebooks, and the answer to one.

The row decides (`engine/store/asks.py`): whoever comes first. Everybody else is told who and when.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from app.api.notebooks import body_of, body_schema, member
from app.api.problems import RESPONSES, Problem, problem
from engine import commands
from engine.asks import BY_SILENCE
from engine.feed import Feed
from engine.frames import Risk, VerdictReason
from engine.notebook import Notebook
from engine.store import asking
from engine.store import asks as store
from engine.store.asks import Ask

MESSAGE_LIMIT = 2000  # characters


class AskLine(BaseModel):
    """An ask that waits. `command` is exactly what would be done; `rule`: what an approval of the kind would cover."""

    id: str
    notebook_id: str
    notebook_title: str
    cell_id: str
    run_id: str
    call: str
    tool: str
    title: str
    command: str
    why: str | None = None
    touches: list[str] | None = None
    risk: Risk | None = None
    rule: str | None = None
    diff: str | None = None
    again: str | None = None
    reconsiders: str | None = None
    parked: bool
    asked_at: str
    seconds_left: float = Field(description="Then silence decides, and silence is no")


class Answer(BaseModel):
    """A verdict. `kind`: what the ask's `rule` says needs no ask from now on. `message` is told to the agent, too."""

    model_config = ConfigDict(extra="forbid")
    verdict: Literal["approve", "deny"]
    scope: Literal["once", "kind"] = "once"
    message: Annotated[str, StringConstraints(strip_whitespace=True, max_length=MESSAGE_LIMIT)] | None = None


class Decided(BaseModel):
    """How an ask ended. `by` is null where silence decided."""

    id: str
    notebook_id: str
    verdict: Literal["approve", "deny"]
    reason: VerdictReason
    scope: Literal["once", "kind"] | None = None
    message: str | None = None
    by: str | None = None
    decided_at: str


class Parked(BaseModel):
    id: str
    notebook_id: str
    seconds_left: float


class GoingOn(BaseModel):
    """The command that goes on with the turn."""

    id: str
    notebook_id: str


class DecidedProblem(Problem):
    """The ask is decided already: how, by whom (null: by silence) and when."""

    verdict: Literal["approve", "deny"] | None = None
    reason: VerdictReason | None = None
    message: str | None = None
    by: str | None = None
    decided_at: str | None = None


def may_decide(name: str) -> bool:
    """Whether a member may answer asks. There is one owner so far; roles will decide here."""
    return name == "owner"


def router(feed: Feed) -> APIRouter:
    """The routes below /api/v1/asks."""
    conflict = {
        "description": "Decided already, by whom and when; or out of time",
        "content": {"application/problem+json": {"schema": DecidedProblem.model_json_schema()}},
    }
    forbidden = {**RESPONSES[404], "description": "This member may not decide"}
    answers: dict[int | str, dict[str, Any]] = {**RESPONSES, 403: forbidden, 409: conflict}
    routes = APIRouter(prefix="/api/v1/asks", tags=["asks"], responses=RESPONSES)

    @routes.get("", summary="List what waits for an answer, the most urgent first")
    async def asks() -> list[AskLine]:
        return [line(row.ask, row.title) for row in await feed.asks()]

    @routes.post(
        "/{ask_id}",
        summary="Approve or deny",
        description=(
            "The first verdict counts, and only before the ask's time is over: anybody else gets 409 with who decided "
            "and when. The same verdict by the same member again is answered as the first time."
        ),
        response_model=Decided,
        responses=answers,
        openapi_extra=body_schema(Answer),
    )
    async def answer(ask_id: str, request: Request) -> Decided | Response:
        wanted, who = commands.validate(Answer, await body_of(request)), member(request)
        if not may_decide(who):
            return _forbidden()
        if wanted.scope == "kind":
            if wanted.verdict == "deny":
                raise commands.Invalid("scope: only an approval can be for the kind; deny without it")
            if (known := await store.find(feed.pool, ask_id)) is not None and known.body.get("rule") is None:
                raise commands.Invalid("scope: no rule can cover this call; approve it once")
        scope = wanted.scope if wanted.verdict == "approve" else None
        ask = await store.decide(feed.pool, ask_id, wanted.verdict, scope, wanted.message or None, who)
        if ask is None:
            ask = await store.find(feed.pool, ask_id)
            if ask is None:
                return _unknown(ask_id)
            if (ask.by, ask.verdict, ask.scope) != (who, wanted.verdict, scope):
                return _too_late(ask)
        return decided(ask)

    @routes.post(
        "/{ask_id}/park",
        summary="Put an ask off",
        description="It waits for a day then, whoever is there, and its turn frees what it holds until it is decided.",
        response_model=Parked,
        responses=answers,
    )
    async def park(ask_id: str, request: Request) -> Parked | Response:
        if not may_decide(member(request)):
            return _forbidden()
        ask = await store.park(feed.pool, ask_id) or await store.find(feed.pool, ask_id)
        if ask is None:
            return _unknown(ask_id)
        if not ask.open or ask.left <= 0:
            return _too_late(ask)
        return Parked(id=ask.id, notebook_id=ask.notebook_id, seconds_left=ask.left)

    @routes.post(
        "/{ask_id}/reconsider",
        status_code=202,
        summary="Approve what silence has denied",
        description=(
            "The turn goes on at the denied step, approved if what it would do is still exactly what was asked. "
            "Possible once that turn has ended, as long as nothing else was asked of its cell."
        ),
        response_model=GoingOn,
        responses=answers,
    )
    async def reconsider(ask_id: str, request: Request) -> GoingOn | Response:
        who = member(request)
        if not may_decide(who):
            return _forbidden()
        ask = await store.find(feed.pool, ask_id)
        if ask is None:
            return _unknown(ask_id)
        if not ask.open and ask.reason not in BY_SILENCE:
            return _too_late(ask)
        going_on = GoingOn(id=f"go-on.{ask.id}", notebook_id=ask.notebook_id)
        asked_by = await asking.asked_by(feed.pool, ask.notebook_id, going_on.id)
        if asked_by == who:
            return going_on
        if asked_by is not None:
            return problem(409, f"{asked_by} has gone on with this turn already", by=asked_by)
        subscription = await feed.attach(ask.notebook_id, after=None, member=who, operator=False)
        try:
            obstacle = obstacle_to_going_on(ask, await subscription.snapshot())
        finally:
            subscription.close()
        if obstacle is not None:
            return problem(409, obstacle, **_members(ask))
        body = commands.GoOn(id=going_on.id, kind="go_on", cell_id=ask.cell_id)
        await asking.ask(feed.pool, ask.notebook_id, who, body.id, body.model_dump(mode="json", exclude_defaults=True))
        return going_on

    return routes


def obstacle_to_going_on(ask: Ask, notebook: Notebook) -> str | None:
    """Why the turn that was denied by silence cannot go on; null: it can."""
    if ask.open and ask.left > 0:
        return "this ask still waits: approve it, and its turn goes on"
    cell = notebook.cells.get(ask.cell_id)
    if cell is None:
        return "the cell of this turn was deleted; restore it first"
    if cell.run_id != ask.run_id:
        return "the cell was run again since, or went on; answer what it asks now"
    if ask.run_id in notebook.runs:
        return "the turn has not ended: it goes on without this step; send it a message, or wait for its end"
    last = next((item for item in reversed(cell.story.items) if item["t"] == "ask"), None)
    if cell.story.resume_step is None or last is None or last["ask"] != ask.id:
        return "the turn went on without this step and ended elsewhere; send it a message instead"
    return None


def line(ask: Ask, notebook_title: str) -> AskLine:
    """An open ask for lists."""
    return AskLine.model_validate(
        {
            **{name: ask.body.get(name) for name in _SHOWN},
            "id": ask.id,
            "notebook_id": ask.notebook_id,
            "notebook_title": notebook_title,
            "cell_id": ask.cell_id,
            "run_id": ask.run_id,
            "call": ask.call_id,
            "parked": ask.parked,
            "asked_at": ask.asked_at.isoformat(),
            "seconds_left": max(0.0, ask.left),
        }
    )


_SHOWN = ("tool", "title", "command", "why", "touches", "risk", "rule", "diff", "again", "reconsiders")


def decided(ask: Ask) -> Decided:
    """A decided ask, as it is answered."""
    return Decided.model_validate({"id": ask.id, "notebook_id": ask.notebook_id, "scope": ask.scope, **_members(ask)})


def _members(ask: Ask) -> dict[str, Any]:
    """How an ask ended. One whose time is over has ended, though no engine has said so yet."""
    if ask.open and ask.left > 0:
        return {}
    if ask.open:
        return {"verdict": "deny", "reason": "timeout", "by": None, "decided_at": ask.due_at.isoformat()}
    assert ask.decided_at is not None
    return {
        "verdict": ask.verdict,
        "reason": ask.reason,
        "message": ask.message,
        "by": ask.by,
        "decided_at": ask.decided_at.isoformat(),
    }


_SILENCES = {
    "timeout": "nobody answered in time",
    "no_operator": "nobody was there who could answer",
    "cancelled": "the turn was stopped",
    "changed": "what it would touch changed, so it was asked again",
}


def _too_late(ask: Ask) -> Response:
    how = _members(ask)
    was = "approved" if how["verdict"] == "approve" else "denied"
    why = f"by {how['by']}" if how["by"] else f"because {_SILENCES.get(how['reason'], how['reason'])}"
    return problem(409, f"this ask is decided: {was} {why}, at {how['decided_at']}", **how)


def _unknown(ask_id: str) -> Response:
    return problem(404, f"there is no ask {ask_id!r}")


def _forbidden() -> Response:
    return problem(403, "you may look on, but not answer; ask somebody who may decide")
