"""The notebook as a fold over its frames: `apply(notebook, frame) -> notebook`, pure, the one reducer.

The engine decides on it, pages draw it, the API shows it and snapshots keep it. fold(a + b) == fold(b) on fold(a).
Values are shared between versions: an old `Notebook` stays valid while newer ones are made from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from engine import history, story
from engine.frames import Draft, Frame
from engine.history import History
from engine.output import Output
from engine.splice import Edit
from engine.story import Story

EDITS_KEPT = 200  # edits of a cell that a later splice may be based on


@dataclass(frozen=True, slots=True)
class PendingInput:
    """A line that a program waits for. `id` is null for a terminal, which always takes one."""

    id: str
    prompt: str
    password: bool


@dataclass(frozen=True, slots=True)
class Run:
    """A run that has not ended."""

    id: str
    cell_id: str
    state: str  # queued | running | waiting | cancelling
    batch: str | None = None
    sandbox: str | None = None
    by: str | None = None
    started_at: str | None = None
    answer: str | None = None  # of a turn that goes on: what the person said to it
    follows: str | None = None  # the run whose conversation it continues
    step: int | None = None  # of a turn that goes on: at which step
    kind: str = "python"  # of its cell, or of the code that it runs for a turn
    parent: str | None = None  # the turn whose call this is
    turn: str | None = None  # the turn that had this cell run
    parked: bool = False  # a turn that waits for a person, and needs no engine until then

    @property
    def is_turn(self) -> bool:
        """Whether it has the lane of turns, not that of cells."""
        return self.kind == "agent"


@dataclass(frozen=True, slots=True)
class CallRun:
    """The newest run of code for a turn's call. `status` is null until it ended; what it printed is its cell's output.

    `lost`: its sandbox went away under it, so how far it came is not known.
    """

    id: str
    status: str | None = None
    reason: str | None = None
    exit: int | None = None
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell as it stands. `version` is the seq of the frame that last changed `source`."""

    id: str
    kind: str
    source: str = ""
    version: int = 0
    state: str = "idle"  # idle | queued | running | waiting | cancelling | done | error | cancelled
    run_id: str | None = None
    reason: str | None = None
    count: int | None = None  # execution count
    started_at: str | None = None
    ended_at: str | None = None
    ms: int | None = None
    whole: dict[str, Any] | None = None
    output: Output = field(default_factory=Output)
    input: PendingInput | None = None
    beside: str | None = None
    hide_source: bool = False
    hide_output: bool = False
    edits: tuple[Edit, ...] = ()
    story: Story = field(default_factory=Story)  # of an agent cell
    call: CallRun | None = None  # of an agent cell


@dataclass(frozen=True, slots=True)
class Deleted:
    """A deleted cell and the cell that stood before it, for undo."""

    cell: Cell
    after: str | None


@dataclass(frozen=True, slots=True)
class SandboxState:
    """What is known of the notebook's sandbox. `host` is the machine it lives on, `machine` its name for people."""

    state: str = "asleep"  # asleep | starting | awake | lost
    id: str | None = None
    isolation: str | None = None
    kernel: str = "none"  # none | starting | ready | gone
    reason: str | None = None
    lives: int = 0  # kernels that there have been: variables belong to one of them
    host: str | None = None
    machine: str | None = None


@dataclass(frozen=True, slots=True)
class Notebook:
    """The folded notebook. `cells` holds the cells by id, `order` their places, `runs` those not over, by age."""

    id: str
    title: str = ""
    seq: int = 0
    archived: bool = False
    cells: dict[str, Cell] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    runs: dict[str, Run] = field(default_factory=dict)
    deleted: tuple[Deleted, ...] = ()
    sandbox: SandboxState = field(default_factory=SandboxState)
    cursor: dict[str, int] = field(default_factory=dict)  # sandbox id -> last record taken
    count: int = 0
    epoch: int = 0
    changed_at: str | None = None
    failed: bool = False  # the last run that ended, ended in error
    model: str = ""  # what replies to its turns; empty: what the team chose
    tokens: int = 0  # that its turns used
    cost: float | None = None  # dollars, where a price is known
    policy: str = "ask"  # what tools may do unasked: ask (reads only), edits (files too) or all
    rules: dict[str, dict[str, Any]] = field(default_factory=dict)  # what an approval of "this kind" covers, by id
    checks: dict[str, bool] = field(default_factory=dict)  # the checklist: item -> ticked
    files: dict[str, dict[str, Any]] = field(default_factory=dict)  # path -> newest version, as in its `file` frame
    servers: dict[str, dict[str, Any]] = field(default_factory=dict)  # tool servers by name, with what they listed last
    history: History = ()  # what happened, in few lines

    @property
    def state(self) -> str:
        """One word for a list: running, waiting (for a person), queued, error or idle."""
        states = {run.state for run in self.runs.values()}
        for word in ("waiting", "cancelling", "running", "queued"):
            if word in states:
                return "running" if word == "cancelling" else word
        return "error" if self.failed else "idle"

    @property
    def waiting(self) -> int:
        """How many runs wait for a person, and how many turns ended with a question to one."""
        questions = sum(
            cell.kind == "agent" and cell.story.waits_for == "answer" and cell.run_id not in self.runs
            for cell in self.cells.values()
        )
        return sum(run.state == "waiting" for run in self.runs.values()) + questions


DELETED_KEPT = 20
FILES_KEPT = 25_000  # paths; a walk of the folder finds at most 20,000 files


def fold(notebook: Notebook, frames: Iterable[Frame]) -> Notebook:
    """`apply` over `frames`, in order; a row of outputs of one run, or of files, costs one new notebook."""
    row: list[Frame] = []
    for frame in frames:
        if row and (frame.kind != row[0].kind or (frame.kind == "output" and frame.run_id != row[0].run_id)):
            notebook = _ROWS[row[0].kind](notebook, row)
            row = []
        if frame.kind in _ROWS:
            row.append(frame)
        else:
            notebook = apply(notebook, frame)
    return _ROWS[row[0].kind](notebook, row) if row else notebook


def apply(notebook: Notebook, frame: Frame) -> Notebook:
    """The notebook after `frame`. A frame of an unknown kind or about an unknown cell only moves `seq`."""
    if frame.kind in _ROWS:
        return _ROWS[frame.kind](notebook, [frame])
    changes: dict[str, Any] = {"seq": frame.seq, "history": _history(notebook, frame)}
    src = frame.body.get("src")
    if src is not None:
        changes["cursor"] = {**notebook.cursor, src[0]: src[1]}
    reducer = _REDUCERS.get(frame.kind)
    if reducer is not None:
        changes.update(reducer(notebook, frame))
    return replace(notebook, **changes)


def frames_from(notebook: Notebook, drafts: Sequence[Draft], at: datetime) -> list[Frame]:
    """The drafts as the frames they become at `at`: numbers follow from the head, since nobody else writes."""
    return [
        Frame(seq, at, item.kind, item.cell_id, item.run_id, item.by, item.command_id, item.body, item.fields)
        for seq, item in enumerate(drafts, notebook.seq + 1)
    ]


def preview(notebook: Notebook, drafts: Sequence[Draft]) -> Notebook:
    """The notebook as `drafts` would leave it, but for what cells show and for times: to decide on, never to keep."""
    return fold(notebook, frames_from(notebook, [item for item in drafts if item.kind != "output"], _NEVER))


_NEVER = datetime.fromtimestamp(0, UTC)


def _with_cell(notebook: Notebook, cell_id: str, **changes: Any) -> dict[str, Any]:
    cell = notebook.cells.get(cell_id)
    if cell is None:
        return {}
    return {"cells": {**notebook.cells, cell_id: replace(cell, **changes)}}


def _with_run(notebook: Notebook, run: Run, **changes: Any) -> dict[str, Any]:
    """What a run changes of its cell: nothing when the cell was asked to run again meanwhile."""
    cell = notebook.cells.get(run.cell_id)
    return _with_cell(notebook, run.cell_id, **changes) if cell is not None and cell.run_id == run.id else {}


def place(order: tuple[str, ...], cell_id: str, after: str | None) -> tuple[str, ...]:
    """`order` with `cell_id` behind `after`: first when null, last when `after` is not there."""
    rest = [other for other in order if other != cell_id]
    at = 0 if after is None else rest.index(after) + 1 if after in rest else len(rest)
    return (*rest[:at], cell_id, *rest[at:])


def _session(notebook: Notebook, frame: Frame) -> dict[str, Any]:
    body = frame.body
    match body.get("event"):
        case "created" | "renamed":
            return {"title": body.get("title", ""), "changed_at": frame.at.isoformat()}
        case "model":
            return {"model": body.get("model", ""), "changed_at": frame.at.isoformat()}
        case "policy":
            return {"policy": body.get("policy", notebook.policy), "changed_at": frame.at.isoformat()}
        case "rule":
            rule = body.get("rule") or {}
            rules = {known: kept for known, kept in notebook.rules.items() if known != rule.get("id")}
            return {"rules": rules if body.get("removed") else {**rules, rule["id"]: rule}}
        case "archived" | "unarchived":
            return {"archived": body["event"] == "archived", "changed_at": frame.at.isoformat()}
        case "woke" | "resumed":
            return {"epoch": body.get("epoch", notebook.epoch)}
        case "sandbox":
            sandbox = SandboxState(
                state=body.get("state", notebook.sandbox.state),
                id=body.get("sandbox", notebook.sandbox.id),
                isolation=body.get("isolation", notebook.sandbox.isolation),
                kernel=body.get("kernel", notebook.sandbox.kernel),
                reason=body.get("reason"),
                lives=notebook.sandbox.lives + (body.get("kernel") == "ready" != notebook.sandbox.kernel),
                host=body.get("host", notebook.sandbox.host),
                machine=body.get("machine", notebook.sandbox.machine),
            )
            # Only the living sandbox can be resumed: cursors of earlier lives would grow for ever.
            cursor = notebook.cursor
            if sandbox.id is not None and any(known != sandbox.id for known in cursor):
                cursor = {known: upto for known, upto in cursor.items() if known == sandbox.id}
            if (src := body.get("src")) is not None:
                cursor = {**cursor, src[0]: src[1]}
            return {"sandbox": sandbox, "cursor": cursor}
    return {}


def _cell(notebook: Notebook, frame: Frame) -> dict[str, Any]:
    body, cell_id = frame.body, frame.cell_id
    if cell_id is None:
        return {}
    changed = {"changed_at": frame.at.isoformat()}
    cell = notebook.cells.get(cell_id)
    match body.get("event"):
        case "added":
            added = Cell(
                cell_id, body.get("kind", "python"), body.get("source", ""), frame.seq, beside=body.get("beside")
            )
            return {
                "cells": {**notebook.cells, cell_id: added},
                "order": place(notebook.order, cell_id, body.get("after")),
                **changed,
            }
        case "edited" if cell is not None:
            edited = _edited(cell, frame)
            return {"cells": {**notebook.cells, cell_id: replace(edited, kind=body.get("kind", cell.kind))}, **changed}
        case "split" if cell is not None and body["other"] not in notebook.cells:
            other: str = body["other"]
            back = next((gone.cell for gone in notebook.deleted if gone.cell.id == other), Cell(other, cell.kind))
            second = replace(back, source=body.get("source", ""), version=frame.seq, edits=())
            return {
                "cells": {**notebook.cells, cell_id: _edited(cell, frame), other: second},
                "order": place(notebook.order, other, cell_id),
                "deleted": tuple(gone for gone in notebook.deleted if gone.cell.id != other),
                **changed,
            }
        case "merged" if cell is not None and body["other"] != cell_id:
            merged = replace(notebook, cells={**notebook.cells, cell_id: _edited(cell, frame)})
            return {"cells": merged.cells, **_without(merged, body["other"]), **changed}
        case "collapsed" if cell is not None:
            hidden = {name: body[name] for name in ("hide_source", "hide_output") if name in body}
            return _with_cell(notebook, cell_id, **hidden) | changed
        case "moved" if cell is not None:
            return {"order": place(notebook.order, cell_id, body.get("after")), **changed}
        case "deleted" if cell is not None:
            return {**_without(notebook, cell_id), **changed}
        case "restored":
            for gone in notebook.deleted:
                if gone.cell.id == cell_id:
                    return {
                        "cells": {**notebook.cells, cell_id: gone.cell},
                        "order": place(notebook.order, cell_id, body.get("after")),
                        "deleted": tuple(other for other in notebook.deleted if other.cell.id != cell_id),
                        **changed,
                    }
    return {}


def _edited(cell: Cell, frame: Frame) -> Cell:
    """The cell after the splice that the frame holds."""
    body = frame.body
    edit = Edit(cell.version, frame.seq, body.get("at", 0), body.get("remove", ""), body.get("insert", ""), frame.by)
    return replace(cell, source=edit.on(cell.source), version=frame.seq, edits=(*cell.edits, edit)[-EDITS_KEPT:])


def _without(notebook: Notebook, cell_id: str) -> dict[str, Any]:
    """What changes when a cell goes to those that can be brought back."""
    cell = notebook.cells.get(cell_id)
    if cell is None:
        return {}
    at = notebook.order.index(cell_id)
    if cell.run_id in notebook.runs:  # its run is being stopped, and ends unseen
        cell = replace(cell, state="cancelled", input=None)
    gone = Deleted(cell, notebook.order[at - 1] if at else None)
    return {
        "cells": {key: value for key, value in notebook.cells.items() if key != cell_id},
        "order": tuple(other for other in notebook.order if other != cell_id),
        "deleted": (*notebook.deleted, gone)[-DELETED_KEPT:],
    }


def _run(notebook: Notebook, frame: Frame) -> dict[str, Any]:
    body, run_id, cell_id = frame.body, frame.run_id, frame.cell_id
    if run_id is None or cell_id is None:
        return {}
    event, at = body.get("event"), frame.at.isoformat()
    known = notebook.runs.get(run_id)
    parent: str | None = body.get("parent") if known is None else known.parent
    if parent is not None:
        return _call_run(notebook, frame, run_id, cell_id, parent)
    if event == "queued":
        asked = notebook.cells.get(cell_id)
        run = Run(
            run_id,
            cell_id,
            "queued",
            body.get("batch"),
            by=frame.by,
            answer=body.get("answer"),
            follows=body.get("follows"),
            step=body.get("step"),
            turn=body.get("turn"),
            kind="python" if asked is None else asked.kind,
        )
        return {
            "runs": {**notebook.runs, run_id: run},
            "changed_at": at,
            **_with_cell(notebook, cell_id, state="queued", run_id=run_id, reason=None, input=None),
        }
    current = notebook.runs.get(run_id)
    if current is None:
        return {}
    if event == "started":
        run = replace(current, state="running", sandbox=body.get("sandbox"), started_at=at)
        if run.is_turn:
            cell = notebook.cells.get(cell_id)
            fresh = {} if cell is None else {"story": story.began(cell.story, frame, current, cell.source)}
            return {
                "runs": {**notebook.runs, run_id: run},
                "changed_at": at,
                **_with_cell(
                    notebook, cell_id, state="running", started_at=at, ended_at=None, ms=None, reason=None, **fresh
                ),
            }
        count = notebook.count + 1
        return {
            "runs": {**notebook.runs, run_id: run},
            "count": count,
            "changed_at": at,
            **_with_run(
                notebook,
                current,
                state="running",
                count=count,
                started_at=at,
                ended_at=None,
                ms=None,
                whole=None,
                output=Output(),
                reason=None,
                input=None,
            ),
        }
    if event in ("round", "retrying", "waiting", "resumed", "yielded"):
        state = {"waiting": "waiting", "resumed": "running", "yielded": "waiting"}.get(event, current.state)
        current = replace(current, parked=event == "yielded")
        return _run_state(notebook, current, state, **_story(notebook, cell_id, story.waits, frame))
    if event == "cancelling":
        return {
            "runs": {**notebook.runs, run_id: replace(current, state="cancelling")},
            **_with_run(notebook, current, state="cancelling"),
        }
    if event == "ended":
        status = body.get("status", "error")
        return {
            "runs": {key: value for key, value in notebook.runs.items() if key != run_id},
            "changed_at": at,
            "failed": status == "error",
            **_with_run(
                notebook,
                current,
                state=status,
                reason=body.get("reason"),
                ended_at=at,
                ms=body.get("ms"),
                whole=body.get("whole"),
                input=None,
                **_story(notebook, cell_id, story.ended, frame),
            ),
        }
    return {}


def _history(notebook: Notebook, frame: Frame) -> History:
    """The timeline after `frame`. It tells of a turn, and not of the runs of the turn's calls."""
    run = notebook.runs.get(frame.run_id or "") if frame.kind == "run" else None
    if run is not None and run.parent is not None:
        return notebook.history
    return history.after(notebook.history, frame)


def _call_run(notebook: Notebook, frame: Frame, run_id: str, cell_id: str, parent: str) -> dict[str, Any]:
    """A run of code for a call of turn `parent`: what it prints is its cell's output until the next one starts."""
    body = frame.body
    event, current = body.get("event"), notebook.runs.get(run_id)
    if event == "queued":
        run = Run(run_id, cell_id, "queued", by=frame.by, kind=body.get("kind", "python"), parent=parent)
        fresh = _with_cell(notebook, cell_id, call=CallRun(run_id), output=Output())
        return {"runs": {**notebook.runs, run_id: run}, **fresh}
    if current is None:
        return {}
    if event == "started":
        run = replace(current, state="running", sandbox=body.get("sandbox"), started_at=frame.at.isoformat())
        return {"runs": {**notebook.runs, run_id: run}}
    if event == "cancelling":
        return {"runs": {**notebook.runs, run_id: replace(current, state="cancelling")}}
    if event == "ended":
        call = CallRun(
            run_id, body.get("status", "error"), body.get("reason"), body.get("exit"), bool(body.get("lost"))
        )
        return {
            "runs": {key: value for key, value in notebook.runs.items() if key != run_id},
            **_with_cell(notebook, cell_id, call=call),
        }
    return {}


def _story(
    notebook: Notebook, cell_id: str, reducer: Callable[[Story, Frame], Story], frame: Frame
) -> dict[str, Story]:
    """The change of a cell that `reducer` makes of its story; none for a cell that has no story."""
    cell = notebook.cells.get(cell_id)
    return {} if cell is None or cell.kind != "agent" else {"story": reducer(cell.story, frame)}


def _usage(notebook: Notebook, frame: Frame) -> dict[str, Any]:
    """What a reply used counts for its story, and for the notebook."""
    body = frame.body
    cost = notebook.cost if body.get("cost") is None else (notebook.cost or 0.0) + body["cost"]
    return {**_told(notebook, frame), "tokens": notebook.tokens + body["input"] + body["output"], "cost": cost}


def _told(notebook: Notebook, frame: Frame) -> dict[str, Any]:
    """What a turn tells: a part of its cell's story."""
    if frame.cell_id is None or not (changed := _story(notebook, frame.cell_id, story.told, frame)):
        return {}
    return _with_cell(notebook, frame.cell_id, **changed)


def _check(notebook: Notebook, frame: Frame) -> dict[str, Any]:
    return {"checks": {**notebook.checks, frame.body["item"]: bool(frame.body.get("done"))}}


def _server(notebook: Notebook, frame: Frame) -> dict[str, Any]:
    """`told` is what the server itself gave reason for last: what it listed, or how that failed."""
    body, servers = frame.body, dict(notebook.servers)
    name: str = body["server"]
    known = servers.get(name)
    match body.get("event"):
        case "added":
            where: dict[str, Any] = {key: body[key] for key in ("command", "url", "team") if key in body}
            servers[name] = {"name": name, **where, "by": frame.by, "state": "new"}
        case "removed" if known is not None and known.get("team") and not body.get("team"):
            servers[name] = {**known, "off": True, "state": "off", "told": None}
        case "removed":
            servers.pop(name, None)
        case "looking" if known is not None:
            servers[name] = {**{key: value for key, value in known.items() if key != "off"}, "state": "looking"}
        case "listed" | "failed" if known is not None:
            servers[name] = {**known, "state": body["event"], "told": body}
    return {"servers": servers}


def _files(notebook: Notebook, frames: list[Frame]) -> Notebook:
    """The notebook after changes of files. One that is not kept any more keeps its last version; of those that are
    deleted only the newest are remembered."""
    files = dict(notebook.files)
    for frame in frames:
        body = {**frame.body, "by": frame.by, "at": frame.at.isoformat()}
        path = body["path"]
        if body.get("skipped"):
            body = {**files.get(path, {}), **body}
        if body.get("deleted") and body.get("version") is None:  # it never had one
            files.pop(path, None)
        else:
            files[path] = body
    if len(files) > FILES_KEPT:
        deleted = [path for path, file in files.items() if file.get("deleted")]
        for path in deleted[: len(files) - FILES_KEPT]:
            del files[path]
    return replace(notebook, seq=frames[-1].seq, files=files)


def _outputs(notebook: Notebook, frames: list[Frame]) -> Notebook:
    """The notebook after outputs of one run, which are most of all frames."""
    last = frames[-1]
    cells, cursor = notebook.cells, notebook.cursor
    cell = cells.get(last.cell_id or "")
    if cell is not None and last.run_id in (cell.run_id, cell.call and cell.call.id):
        output = cell.output
        for frame in frames:
            output = output.add(frame.body)
        cells = {**cells, cell.id: replace(cell, output=output)}
    for frame in reversed(frames):
        if (src := frame.body.get("src")) is not None:
            cursor = {**cursor, src[0]: src[1]}
            break
    return replace(notebook, seq=last.seq, cells=cells, cursor=cursor)


def _input(notebook: Notebook, frame: Frame) -> dict[str, Any]:
    cell, run = notebook.cells.get(frame.cell_id or ""), notebook.runs.get(frame.run_id or "")
    if cell is None or run is None or run.parent is not None:
        return {}
    body = frame.body
    if body.get("event") == "asked":
        pending = PendingInput(body.get("input", ""), body.get("prompt", ""), bool(body.get("password")))
        return _run_state(notebook, run, "waiting", input=pending)
    if cell.input is None:  # a line for a terminal: nothing was waiting
        return {}
    return _run_state(notebook, run, "running", input=None)


def _run_state(notebook: Notebook, run: Run, state: str, **cell: Any) -> dict[str, Any]:
    """A run that is being stopped stays `cancelling`, whatever its program still asks."""
    state = run.state if run.state == "cancelling" else state
    return {
        "runs": {**notebook.runs, run.id: replace(run, state=state)},
        **_with_run(notebook, run, state=state, **cell),
    }


_REDUCERS = {
    "session": _session,
    "cell": _cell,
    "run": _run,
    "input": _input,
    "check": _check,
    "usage": _usage,
    "server": _server,
    **dict.fromkeys(
        ("thought", "search", "context", "tool", "progress", "ask", "verdict", "message", "delivered", "error", "done"),
        _told,
    ),
}

_ROWS: dict[str, Callable[[Notebook, list[Frame]], Notebook]] = {"output": _outputs, "file": _files}
