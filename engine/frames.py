"""Frames: the numbered entries of a notebook's journal, and the bodies each kind may carry.

A frame is immutable once committed. An engine first makes a `Draft` (no number yet); the step that commits it hands out
`seq` and `at` and yields a `Frame`. The names of a body's fields are checked when a draft is made, their types by the
tests on every frame they read; a reader takes what is stored, so a kind of a newer version passes through unharmed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

VERSION = 1
TEXT_LIMIT = 64 * 1024  # bytes of text in one body
BODY_LIMIT = 256 * 1024  # bytes of one encoded body

Stream = Literal["stdout", "stderr", "traceback", "terminal"]
Ending = Literal["done", "error", "cancelled"]
CellKind = Literal["agent", "python", "shell", "markdown"]
Policy = Literal["ask", "edits", "all"]
Risk = Literal["read", "write", "run", "network"]
VerdictReason = Literal["person", "rule", "policy", "timeout", "no_operator", "cancelled", "changed", "unused"]


class Body(BaseModel):
    """What every body shares: unknown fields are refused when written."""

    model_config = ConfigDict(extra="forbid")


class SessionBody(Body):
    """The notebook and its engine: created, renamed, archived …; woke, resumed, slept; the sandbox's state."""

    event: Literal[
        "created", "renamed", "archived", "unarchived", "woke", "resumed", "slept", "sandbox", "policy", "rule", "model"
    ]
    title: str | None = None
    policy: Policy | None = None
    model: str | None = None  # what replies to its turns; empty: what the team chose
    rule: dict[str, Any] | None = None  # {"id", "tool", "words" or null, "title"}
    removed: bool | None = None  # the rule of this id is taken back
    epoch: int | None = None
    worker: str | None = None
    state: Literal["starting", "awake", "asleep", "lost"] | None = None
    kernel: Literal["none", "starting", "ready", "gone"] | None = None
    sandbox: str | None = None
    host: str | None = None  # the machine that the sandbox lives on, and what people call it
    machine: str | None = None
    isolation: str | None = None
    reason: str | None = None
    src: tuple[str, int] | None = None


class CellBody(Body):
    """The document: a cell added, edited (a splice on version `base`), moved, split, merged, deleted, restored …

    `at`, and the lengths of `remove` and `insert`, count code points. `after` is the cell that stands before it, null
    for the first place. `beside` names the cell whose overlapping edit made this one. `split` is an edit that takes
    text off (`remove`), of which `source` becomes the cell `other` behind; `merged` is one that puts the text of
    `other` on, which is deleted. Each is one frame, so that nobody ever sees half of it.
    """

    event: Literal["added", "edited", "moved", "split", "merged", "collapsed", "deleted", "restored"]
    kind: CellKind | None = None
    source: str | None = None
    after: str | None = None
    beside: str | None = None
    base: int | None = None
    at: int | None = None
    remove: str | None = None
    insert: str | None = None
    other: str | None = None
    hide_source: bool | None = None
    hide_output: bool | None = None


class RunBody(Body):
    """One execution of a cell. `ended` is the only terminal frame of a run."""

    event: Literal["queued", "started", "round", "retrying", "waiting", "resumed", "yielded", "cancelling", "ended"]
    batch: str | None = None
    kind: Literal["python", "shell"] | None = None  # queued, of a turn's call: what it runs
    attempt: int | None = None  # retrying: which attempt at the round begins
    round: int | None = None
    rounds: int | None = None  # round: how many there may be
    seconds: float | None = None  # round: how much working time is left; retrying: how long it waits before
    waits_for: Literal["input", "ask", "answer", "cell"] | None = None  # waiting; ended: answer, a question was left
    step: int | None = None  # ended: the step at which "go on" would resume; queued: at which it does
    parent: str | None = None  # queued: the turn whose call this run is
    turn: str | None = None  # queued: the turn that had this cell run
    lost: bool | None = None  # ended: how far its program came is not known
    answer: str | None = None  # queued: what a follow-up or an answer says, that this run goes on with
    follows: str | None = None  # queued: the run whose conversation this one continues
    sandbox: str | None = None
    status: Ending | None = None
    reason: str | None = None
    exit: int | None = None
    ms: int | None = None
    whole: dict[str, Any] | None = None
    src: tuple[str, int] | None = None


class OutputBody(Body):
    """What a run printed or displayed: `text` of a `stream`, or `data` (a MIME bundle).

    `left_out` counts bytes of text, `displays_left_out` displays, that no frame before this one has. `clear` empties
    the output.
    """

    text: str | None = None
    stream: Stream | None = None
    data: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    result: bool | None = None
    display: str | None = None
    update: bool | None = None
    left_out: int | None = None
    displays_left_out: int | None = None
    clear: bool | None = None
    src: tuple[str, int] | None = None


class InputBody(Body):
    """A program asks for a line, or got one. What was typed at a password prompt is in no frame."""

    event: Literal["asked", "answered"]
    input: str | None = None
    prompt: str | None = None
    password: bool | None = None
    text: str | None = None
    src: tuple[str, int] | None = None


class ThoughtBody(Body):
    """What a model says, as it comes: `text` is appended to what it said in this round. `thinking`: folded on pages."""

    round: int
    text: str
    thinking: bool | None = None


class SearchBody(Body):
    """A search that the model's provider made: the query and what it found, as {"title", "url"}."""

    round: int
    query: str
    sources: list[dict[str, Any]]


class ContextBody(Body):
    """What the model is shown: the cells above (id, number, kind, characters) and how many are left out; or a summary
    that stands for older rounds from now on (`upto`, the last of them, counted over the whole conversation).

    `mentions`: what the request names with @ (`shown`), or what a message that was added to it does (`attached`): kind
    cell or file, name, number or version, characters or picture, and the problem with one that could not be given."""

    event: Literal["shown", "attached", "compacted"]
    model: str | None = None
    cells: list[dict[str, Any]] | None = None
    left_out: int | None = None
    characters: int | None = None
    names: list[str] | None = None  # files and pictures shown with the request
    mentions: list[dict[str, Any]] | None = None
    round: int | None = None
    upto: int | None = None
    text: str | None = None


class UsageBody(Body):
    """What one attempt at a reply used: tokens, and dollars where a price is known. `cached` and `written` are parts of
    `input`."""

    round: int
    model: str
    input: int
    output: int
    cached: int | None = None
    written: int | None = None
    cost: float | None = None


class ToolBody(Body):
    """A tool call, and how it ended. Every call gets exactly one result.

    `arguments` are as the tool understood them; `title` is one line for people; `status` denied: a verdict said no;
    unknown: whether it happened cannot be found out. `diff` is a unified diff; `left_out` counts bytes that `text`
    leaves out of what the tool gave.
    """

    event: Literal["call", "begun", "result"]
    call: str
    round: int | None = None
    tool: str | None = None
    arguments: dict[str, Any] | None = None
    title: str | None = None
    risk: Risk | None = None
    effect: Literal["pure", "keyed", "once"] | None = None
    status: Literal["done", "error", "denied", "unknown", "cancelled"] | None = None
    text: str | None = None
    left_out: int | None = None
    diff: str | None = None
    ms: int | None = None
    output: str | None = None  # begun: the run whose output frames belong to this call


class ProgressBody(Body):
    """How far the turn is, in its own words; `fraction` from 0 to 1."""

    text: str
    call: str | None = None
    fraction: float | None = None


class AskBody(Body):
    """A tool call waits for a person: what exactly, why, and what it may touch.

    `seconds`: after so long without an answer it is denied. `rule`: what an approval of "this kind" would cover, in
    words for people; null when it cannot be given. `words`: the same for the machine.
    """

    ask: str
    call: str
    tool: str
    title: str
    command: str
    why: str | None = None
    touches: list[str] | None = None
    risk: Risk | None = None
    rule: str | None = None
    words: list[str] | None = None
    diff: str | None = None
    seconds: float
    parked: bool | None = None
    after: str | None = None  # content of others that the model had read before it proposed this
    again: str | None = None  # why the same call is asked about once more
    reconsiders: str | None = None  # the ask that silence had denied, and a person approved after all


class VerdictBody(Body):
    """How an ask ended; `by` of the frame is who decided. A call that needs no ask gets none."""

    ask: str
    call: str
    verdict: Literal["approve", "deny"]
    reason: VerdictReason
    scope: Literal["once", "kind"] | None = None
    message: str | None = None


class MessageBody(Body):
    """A follow-up for a turn that runs: queued, taken back, or taken by the turn at a round boundary."""

    event: Literal["queued", "withdrawn", "taken"]
    message: str
    text: str | None = None


class CheckBody(Body):
    """An item of the checklist, new or changed. A machine ticks; only a person closes."""

    item: str
    done: bool | None = None


class FileBody(Body):
    """A version of a file was stored (`deleted`: it is not there any more), or why it is not kept (`skipped`)."""

    path: str
    version: int | None = None
    bytes: int | None = None
    sha256: str | None = None
    mime: str | None = None
    added: int | None = None  # lines, against the version before
    removed: int | None = None
    deleted: bool | None = None
    skipped: str | None = None
    call: str | None = None


class ServerBody(Body):
    """A tool server of the notebook: added, taken out or turned off (`removed`), looked at; then what it listed, or why
    that failed. `tools` as {"name", "title", "about", "reads"}: the server's own words, and a hint at most."""

    event: Literal["added", "removed", "looking", "listed", "failed"]
    server: str
    command: list[str] | None = None
    url: str | None = None
    team: bool | None = None  # of the team's setting
    tools: list[dict[str, Any]] | None = None
    left_out: int | None = None  # tools that it has beyond those
    problems: list[str] | None = None  # with single tools
    reason: str | None = None


class DeliveredBody(Body):
    """What a turn hands over: text (Markdown) and files, by path."""

    text: str
    files: list[str] | None = None


class ErrorBody(Body):
    """What went wrong in a turn: the step (from 1) and the line of the request (from 1), where they are known.
    `settings`: the way out leads over the page of settings."""

    reason: str
    settings: bool | None = None
    step: int | None = None
    line: int | None = None


class DoneBody(Body):
    """Closes a turn's story, just before `run ended`: what it took. `ms` is working time, no waiting for people."""

    rounds: int
    calls: int
    ms: int
    tokens: int | None = None
    cost: float | None = None  # dollars, where a price is known


class RefusedBody(Body):
    """A command that could not be applied, and why."""

    command: str
    reason: str


class CommentBody(Body):
    """A remark by a member."""

    text: str


BODIES: dict[str, type[Body]] = {
    "session": SessionBody,
    "cell": CellBody,
    "run": RunBody,
    "output": OutputBody,
    "input": InputBody,
    "refused": RefusedBody,
    "comment": CommentBody,
    "thought": ThoughtBody,
    "search": SearchBody,
    "context": ContextBody,
    "usage": UsageBody,
    "tool": ToolBody,
    "progress": ProgressBody,
    "ask": AskBody,
    "verdict": VerdictBody,
    "message": MessageBody,
    "check": CheckBody,
    "file": FileBody,
    "server": ServerBody,
    "delivered": DeliveredBody,
    "error": ErrorBody,
    "done": DoneBody,
}


class FrameOut(BaseModel):
    """A frame as the API sends it. `body` follows the model of its kind; kinds of a newer version carry any object."""

    seq: int = Field(description="Number in the notebook, from 1, without gaps")
    at: str = Field(description="Commit time, ISO 8601 with offset, database clock")
    kind: str
    cell_id: str | None = None
    run_id: str | None = None
    by: str | None = Field(default=None, description="Member or engine that caused it")
    command_id: str | None = None
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Draft:
    """A frame before its commit; `body` is `fields` as encoded JSON, at most `BODY_LIMIT` bytes."""

    kind: str
    body: str
    fields: dict[str, Any]
    cell_id: str | None = None
    run_id: str | None = None
    by: str | None = None
    command_id: str | None = None


# Frames of one step share their time, and those of one run their ids: most lookups hit.
@lru_cache(1024)
def _quoted(text: str | None) -> str:
    return json.dumps(text, ensure_ascii=False)


@lru_cache(256)
def _stamp(at: datetime) -> str:
    return f'"{at.astimezone(UTC).isoformat(timespec="milliseconds")}"'


@dataclass(slots=True)
class Frame:
    """A committed frame, its fields in the order of the columns.

    `text` is the body as stored JSON; `body` decodes it once, when asked.
    """

    seq: int
    at: datetime
    kind: str
    cell_id: str | None
    run_id: str | None
    by: str | None
    command_id: str | None
    text: str
    _body: dict[str, Any] | None = None
    _line: str | None = None

    @property
    def body(self) -> dict[str, Any]:
        if self._body is None:
            self._body = json.loads(self.text)
        return self._body

    @property
    def line(self) -> str:
        """The whole frame as one line of JSON (the shape of `FrameOut`), encoded once for all viewers."""
        if self._line is None:
            self._line = (
                f'{{"seq": {self.seq}, "at": {_stamp(self.at)}, "kind": {_quoted(self.kind)}, '
                f'"cell_id": {_quoted(self.cell_id)}, "run_id": {_quoted(self.run_id)}, "by": {_quoted(self.by)}, '
                f'"command_id": {_quoted(self.command_id)}, "body": {self.text}}}'
            )
        return self._line


_UNSAFE = re.compile("[\x00\ud800-\udfff]")


def clean(value: Any) -> Any:
    """`value` with NUL and lone surrogates replaced by U+FFFD: neither PostgreSQL nor a browser takes them."""
    if isinstance(value, str):
        return _UNSAFE.sub("�", value)
    if isinstance(value, dict):
        return {clean(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def encode(body: dict[str, Any]) -> str:
    """`body` as JSON text that any JSON reader and PostgreSQL accept (no NUL, no lone surrogate, no NaN)."""
    return _safe(body)[0]


def _safe(body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """`body` as safe JSON text, and the value which that text stands for."""
    try:
        text = _encode(body)
    except ValueError:
        body = _finite(body)
        text = _encode(body)
    if "\\u0000" in text or _UNSAFE.search(text):
        body = clean(body)
        text = _encode(body)
    return text, body


def _finite(value: Any) -> Any:
    """`value` with NaN and infinities as their names, which JSON has no numbers for."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def draft(
    kind: str,
    /,
    *,
    cell_id: str | None = None,
    run_id: str | None = None,
    by: str | None = None,
    command_id: str | None = None,
    **body: Any,
) -> Draft:
    """A frame of `kind` with the fields of its body; fields that are None are left out.

    Raises `TypeError` for a field its kind does not have: that is a fault of the caller, not of input.
    """
    text, fields = _safe({key: value for key, value in body.items() if value is not None})
    if not _FIELDS[kind].issuperset(fields):
        raise TypeError(f"a {kind} frame has no {', '.join(sorted(set(fields) - _FIELDS[kind]))}")
    return Draft(kind, text, fields, cell_id, run_id, by, command_id)


_FIELDS = {kind: frozenset(model.model_fields) for kind, model in BODIES.items()}
