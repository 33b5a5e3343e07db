"""What a command, or the end of a run, means for a notebook: plain functions that return what to do.

Nothing here waits, reads a clock or touches anything. A `Plan` lists the frames to commit and the requests to the
sandbox that follow from them; the session commits first and acts after, and each request can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine import commands as c
from engine.agent.mcp.spec import BadServer, checked, of_notebook
from engine.frames import Draft, draft
from engine.ids import new_id
from engine.notebook import Cell, Notebook, Run
from engine.splice import BaseGone, OutOfRange, Overlap, rebase

RUNS = ("agent", "python", "shell")
CODE = ("python", "shell")
ACTIVE = ("running", "waiting", "cancelling")
MESSAGES = 20  # that may wait for one turn
SERVERS = 50  # of one notebook


class Refused(Exception):
    """The command cannot be applied; the message says why and what would help."""


@dataclass(slots=True)
class Plan:
    """Frames to commit, then runs to stop. `deliver` and `restart` must happen before the command counts as taken;
    `put` takes its time, and commits by itself; `look` names a tool server to be looked at."""

    drafts: list[Draft] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)
    deliver: c.Input | None = None
    restart: bool = False
    put: c.PutFile | None = None
    look: str | None = None


def decide(notebook: Notebook, command: c.Command, by: str) -> Plan:
    """The plan for `command`, asked by member `by`. Raises `Refused`."""
    return _DECISIONS[type(command)](notebook, command, by)


def active(notebook: Notebook, *, turns: bool = False) -> Run | None:
    """The run that has the cell lane, or that of `turns`."""
    return next((run for run in notebook.runs.values() if run.state in ACTIVE and run.is_turn == turns), None)


def next_run(notebook: Notebook, *, turns: bool = False) -> Run | None:
    """The queued run whose turn it is in the cell lane, or in that of `turns`; null while another one has the lane.

    A call of a turn goes before what is queued. A run of a batch waits for those before it in whichever lane they are;
    what was asked for by itself does not wait for them.
    """
    if active(notebook, turns=turns) is not None:
        return None
    batches: set[str] = set()
    first = None
    for run in notebook.runs.values():
        if run.state == "queued" and run.is_turn == turns and (run.batch is None or run.batch not in batches):
            if run.parent is not None or run.turn is not None:
                return run
            first = first or run
        if run.batch is not None:
            batches.add(run.batch)
    return first


def calls_of(notebook: Notebook, run_id: str) -> list[Run]:
    """The runs of code and of cells, not yet over, that turn `run_id` started."""
    return [run for run in notebook.runs.values() if run_id in (run.parent, run.turn)]


def end(run: Run, status: str, reason: str | None, **fields: Any) -> Draft:
    """The one terminal frame of a run."""
    return draft("run", event="ended", run_id=run.id, cell_id=run.cell_id, status=status, reason=reason, **fields)


def after_end(notebook: Notebook, ended: Run, status: str) -> list[Draft]:
    """What the end of a run means for others: a batch stops at the first that is not done."""
    if status == "done" or ended.batch is None:
        return []
    reason = "a cell before it failed" if status == "error" else "a cell before it was stopped"
    return [
        end(run, "cancelled", reason)
        for run in notebook.runs.values()
        if run.state == "queued" and run.batch == ended.batch and run.id != ended.id
    ]


def _cell(notebook: Notebook, cell_id: str) -> Cell:
    cell = notebook.cells.get(cell_id)
    if cell is None:
        raise Refused(f"there is no cell {cell_id}; it may have been deleted meanwhile")
    return cell


def _after(notebook: Notebook, after: str | None) -> str | None:
    """Where to put a cell: behind a known one, first (null), or last when told "end" or the neighbour is gone."""
    if after is None or after in notebook.cells:
        return after
    return notebook.order[-1] if notebook.order else None


def _added(cell_id: str, kind: str, source: str, after: str | None, by: str, command_id: str, **more: Any) -> Draft:
    return draft(
        "cell",
        event="added",
        cell_id=cell_id,
        by=by,
        command_id=command_id,
        kind=kind,
        source=source,
        after=after,
        **more,
    )


def _add_cell(notebook: Notebook, command: c.AddCell, by: str) -> Plan:
    cell_id = command.cell_id or new_id()
    if cell_id in notebook.cells or any(gone.cell.id == cell_id for gone in notebook.deleted):
        raise Refused(f"there is a cell {cell_id} already; choose another id")
    after = _after(notebook, command.after)
    return Plan([_added(cell_id, command.cell_kind, command.source, after, by, command.id)])


def _edit_cell(notebook: Notebook, command: c.EditCell, by: str) -> Plan:
    cell = _cell(notebook, command.cell_id)
    base, at, length, insert = command.base, command.at, command.remove, command.insert
    if command.source is not None:
        base, at, length, insert = command.base or cell.version, 0, len(cell.source), command.source
        if base != cell.version:
            raise Refused("the cell changed meanwhile; send the change as a splice, or the source without a base")
    elif base is None or at is None:
        if command.cell_kind is None:
            raise Refused("an edit needs `base` and `at`, or `source`")
        base, at = cell.version, 0
    try:
        edit = rebase(cell.source, cell.version, cell.edits, base, at, length, insert)
    except OutOfRange:
        raise Refused(f"the edit lies outside the text of version {base}") from None
    except BaseGone:
        raise Refused(f"version {base} of the cell is not known any more; read it again") from None
    except Overlap as overlap:
        beside = _added(new_id(), cell.kind, overlap.mine, cell.id, by, command.id, beside=cell.id)
        return Plan([beside])
    c.check_source(edit.on(cell.source))
    fields: dict[str, Any] = {"base": base, "at": edit.at, "remove": edit.remove, "insert": edit.insert}
    if command.cell_kind is not None and command.cell_kind != cell.kind:
        if cell.run_id in notebook.runs:
            raise Refused("a cell that runs or is queued keeps its kind; stop it first")
        fields["kind"] = command.cell_kind
    return Plan([draft("cell", event="edited", cell_id=cell.id, by=by, command_id=command.id, **fields)])


def _move_cell(notebook: Notebook, command: c.MoveCell, by: str) -> Plan:
    cell = _cell(notebook, command.cell_id)
    if command.after == cell.id:
        raise Refused("a cell cannot stand behind itself")
    if command.after is not None:
        _cell(notebook, command.after)
    return Plan([draft("cell", event="moved", cell_id=cell.id, by=by, command_id=command.id, after=command.after)])


def _split_cell(notebook: Notebook, command: c.SplitCell, by: str) -> Plan:
    cell = _cell(notebook, command.cell_id)
    try:
        at = rebase(cell.source, cell.version, cell.edits, command.base, command.at, 0, "").at
    except (OutOfRange, BaseGone, Overlap):
        raise Refused("the cell changed where it was to be split; look at it again") from None
    into = command.into or new_id()
    if into in notebook.cells:
        raise Refused(f"there is a cell {into} already; choose another id")
    start, end = at, at
    if cell.source[at - 1 : at] == "\n":
        start = at - 1
    elif cell.source[at : at + 1] == "\n":
        end = at + 1
    made = draft(
        "cell",
        event="split",
        cell_id=cell.id,
        by=by,
        command_id=command.id,
        base=cell.version,
        at=start,
        remove=cell.source[start:],
        other=into,
        source=cell.source[end:],
    )
    return Plan([made])


def _merge_cells(notebook: Notebook, command: c.MergeCells, by: str) -> Plan:
    cell, other = _cell(notebook, command.cell_id), _cell(notebook, command.other)
    if cell is other:
        raise Refused("a cell cannot be merged with itself")
    joint = command.joint if cell.source and other.source else ""
    insert = joint + other.source
    c.check_source(cell.source + insert)
    run = notebook.runs.get(other.run_id or "")
    plan = _stop_runs(notebook, [run], by, command.id, "its cell was merged") if run is not None else Plan()
    fields: dict[str, Any] = {"base": cell.version, "at": len(cell.source), "remove": "", "insert": insert}
    plan.drafts.append(
        draft("cell", event="merged", cell_id=cell.id, by=by, command_id=command.id, other=other.id, **fields)
    )
    return plan


def _collapse(notebook: Notebook, command: c.Collapse, by: str) -> Plan:
    cell = _cell(notebook, command.cell_id)
    made = draft(
        "cell",
        event="collapsed",
        cell_id=cell.id,
        by=by,
        command_id=command.id,
        hide_source=command.source,
        hide_output=command.output,
    )
    return Plan([made])


def _delete_cell(notebook: Notebook, command: c.DeleteCell, by: str) -> Plan:
    cell = _cell(notebook, command.cell_id)
    run = notebook.runs.get(cell.run_id or "")
    plan = _stop_runs(notebook, [run], by, command.id, "its cell was deleted") if run is not None else Plan()
    plan.drafts.append(draft("cell", event="deleted", cell_id=cell.id, by=by, command_id=command.id))
    return plan


def _restore_cell(notebook: Notebook, command: c.RestoreCell, by: str) -> Plan:
    for gone in notebook.deleted:
        if gone.cell.id == command.cell_id:
            after = _after(notebook, gone.after)
            return Plan(
                [draft("cell", event="restored", cell_id=gone.cell.id, by=by, command_id=command.id, after=after)]
            )
    raise Refused(f"cell {command.cell_id} was not deleted, or too long ago to bring back")


def _queue(cell: Cell, run_id: str, by: str, command_id: str, batch: str | None = None) -> Draft:
    return draft("run", event="queued", run_id=run_id, cell_id=cell.id, by=by, command_id=command_id, batch=batch)


def _run_cell(notebook: Notebook, command: c.RunCell, by: str) -> Plan:
    cell = _cell(notebook, command.cell_id)
    if cell.kind not in RUNS:
        raise Refused("a text cell does not run")
    if cell.run_id in notebook.runs:
        raise Refused("the cell runs or is queued already")
    run_id = command.run_id or new_id()
    return Plan([_queue(cell, run_id, by, command.id)])


def _run_all(notebook: Notebook, command: c.RunAll, by: str) -> Plan:
    order = notebook.order
    first = 0 if command.since is None else order.index(_cell(notebook, command.since).id)
    last = len(order) if command.until is None else order.index(_cell(notebook, command.until).id) + 1
    cells = [cell for cell in _runnable(notebook, order[first:last], RUNS) if cell.run_id not in notebook.runs]
    if not cells:
        raise Refused("there is no cell to run that is not running or queued already")
    return Plan([_queue(cell, new_id(), by, command.id, command.id) for cell in cells])


def _runnable(notebook: Notebook, order: Sequence[str], kinds: Sequence[str]) -> list[Cell]:
    return [notebook.cells[cell_id] for cell_id in order if notebook.cells[cell_id].kind in kinds]


def _stop_runs(notebook: Notebook, runs: list[Run], by: str, command_id: str, reason: str) -> Plan:
    """Stops runs; one that has begun stops what is queued behind it in its lane and its batch, and a turn its calls.

    The call of a turn goes its own way: it is not queued behind anybody's cell, and stopping it stops no other.
    """
    plan = Plan()
    wanted = {run.id: run for run in runs}
    for stopped in [run for run in runs if run.state in ACTIVE and run.parent is None]:
        wanted |= {
            run.id: run
            for run in notebook.runs.values()
            if stopped.id in (run.parent, run.turn)
            or (run.state == "queued" and run.parent is None and run.turn is None and _behind(run, stopped))
        }
    for run in wanted.values():
        if run.state == "queued":
            plan.drafts.append(end(run, "cancelled", reason, by=by, command_id=command_id))
            continue
        plan.stop.append(run.id)
        if run.state != "cancelling":
            plan.drafts.append(
                draft("run", event="cancelling", run_id=run.id, cell_id=run.cell_id, by=by, command_id=command_id)
            )
    return plan


def _behind(run: Run, stopped: Run) -> bool:
    return run.is_turn == stopped.is_turn or (run.batch is not None and run.batch == stopped.batch)


def _stop(notebook: Notebook, command: c.Stop, by: str) -> Plan:
    if command.run_id is not None:
        runs = [run for run in notebook.runs.values() if run.id == command.run_id]
    elif command.cell_id is not None:
        runs = [run for run in notebook.runs.values() if run.cell_id == command.cell_id and run.parent is None]
    else:
        runs = list(notebook.runs.values())
    return _stop_runs(notebook, runs, by, command.id, "stopped")


def _input(notebook: Notebook, command: c.Input, by: str) -> Plan:
    run = notebook.runs.get(command.run_id)
    if run is None or run.state not in ("running", "waiting"):
        raise Refused("that run takes no input: it is over, queued or being stopped")
    if run.is_turn or run.parent is not None:
        raise Refused("what an agent runs takes no input")
    cell = _cell(notebook, run.cell_id)
    if cell.kind == "shell":
        # A terminal echoes what may be seen. What was typed is in no frame: it may be a password.
        made = draft("input", event="answered", run_id=run.id, cell_id=cell.id, by=by, command_id=command.id)
        return Plan([made], deliver=command)
    pending = cell.input
    if pending is None or (command.input is not None and command.input != pending.id):
        raise Refused("that question was answered already")
    text = None if pending.password else command.text
    echo = pending.prompt + ("" if pending.password else command.text) + "\n"
    return Plan(
        [
            draft(
                "input",
                event="answered",
                run_id=run.id,
                cell_id=cell.id,
                by=by,
                command_id=command.id,
                input=pending.id,
                text=text,
            ),
            draft("output", run_id=run.id, cell_id=cell.id, text=echo, stream="stdout"),
        ],
        deliver=command.model_copy(update={"input": pending.id}),
    )


def _agent(notebook: Notebook, cell_id: str) -> Cell:
    cell = _cell(notebook, cell_id)
    if cell.kind != "agent":
        raise Refused("this cell is no agent's; only an agent cell can be talked to")
    return cell


def _say(notebook: Notebook, command: c.FollowUp | c.AnswerTurn, by: str) -> Plan:
    """To a turn that is not over a message for its next round, else the next part of the conversation."""
    cell = _agent(notebook, command.cell_id)
    if cell.run_id in notebook.runs:
        if len(cell.story.messages) >= MESSAGES:
            raise Refused(f"{MESSAGES} messages wait already; the turn takes them at its next round")
        made = draft(
            "message", event="queued", message=command.id, text=command.text,
            run_id=cell.run_id, cell_id=cell.id, by=by, command_id=command.id,
        )  # fmt: skip
        return Plan([made])
    return Plan([_continued(cell, command, by, answer=command.text)])


def _continued(cell: Cell, command: c.FollowUp | c.AnswerTurn | c.GoOn, by: str, **fields: Any) -> Draft:
    if cell.run_id is None:
        raise Refused("nothing was asked of this agent yet; run the cell first")
    return draft(
        "run", event="queued", run_id=command.run_id or new_id(), cell_id=cell.id, by=by, command_id=command.id,
        follows=cell.run_id, **fields,
    )  # fmt: skip


def _go_on(notebook: Notebook, command: c.GoOn, by: str) -> Plan:
    cell = _agent(notebook, command.cell_id)
    if cell.run_id in notebook.runs:
        raise Refused("the turn runs or is queued already")
    if (step := cell.story.resume_step) is None:
        raise Refused("the turn did not end at a step that it could go on with; send it a message instead")
    return Plan([_continued(cell, command, by, step=step)])


def _withdraw(notebook: Notebook, command: c.Withdraw, by: str) -> Plan:
    for cell in notebook.cells.values():
        for item in cell.story.messages:
            if item["message"] == command.message:
                made = draft(
                    "message", event="withdrawn", message=command.message,
                    run_id=item["run"], cell_id=cell.id, by=by, command_id=command.id,
                )  # fmt: skip
                return Plan([made])
    raise Refused("the turn has taken that message already, or it was taken back")


def _set_model(notebook: Notebook, command: c.SetModel, by: str) -> Plan:
    return Plan([draft("session", event="model", model=command.model, by=by, command_id=command.id)])


def _set_policy(notebook: Notebook, command: c.SetPolicy, by: str) -> Plan:
    return Plan([draft("session", event="policy", policy=command.policy, by=by, command_id=command.id)])


def _remove_rule(notebook: Notebook, command: c.RemoveRule, by: str) -> Plan:
    if (rule := notebook.rules.get(command.rule)) is None:
        raise Refused("that rule is gone already")
    return Plan([draft("session", event="rule", rule=rule, removed=True, by=by, command_id=command.id)])


def _check(notebook: Notebook, command: c.Check, by: str) -> Plan:
    return Plan([draft("check", item=command.item, done=command.done, by=by, command_id=command.id)])


def _put_file(notebook: Notebook, command: c.PutFile, by: str) -> Plan:
    return Plan(put=command)


def _add_server(notebook: Notebook, command: c.AddServer, by: str) -> Plan:
    try:
        spec = checked(of_notebook(command.server, command.command or (), command.url))
    except BadServer as problem:
        raise Refused(str(problem)) from None
    if (known := notebook.servers.get(spec.name)) is not None:
        whose = "the team has" if known.get("team") else "there is"
        raise Refused(f"{whose} a server {spec.name} already; choose another name")
    if len(notebook.servers) >= SERVERS:
        raise Refused(f"a notebook has at most {SERVERS} tool servers")
    words = list(spec.command) or None
    made = {"server": spec.name, "by": by, "command_id": command.id}
    drafts = [
        draft("server", event="added", command=words, url=spec.url, **made),
        draft("server", event="looking", **made),
    ]
    return Plan(drafts, look=spec.name)


def _remove_server(notebook: Notebook, command: c.RemoveServer, by: str) -> Plan:
    known = notebook.servers.get(command.server)
    if known is None or known.get("off"):
        raise Refused("that server is gone already")
    return Plan([draft("server", event="removed", server=command.server, by=by, command_id=command.id)])


def _look_at_server(notebook: Notebook, command: c.LookAtServer, by: str) -> Plan:
    if command.server not in notebook.servers:
        raise Refused(f"there is no server {command.server}; it may have been taken out meanwhile")
    made = draft("server", event="looking", server=command.server, by=by, command_id=command.id)
    return Plan([made], look=command.server)


def _restart_kernel(notebook: Notebook, command: c.RestartKernel, by: str) -> Plan:
    code = [run for run in notebook.runs.values() if not run.is_turn]
    plan = _stop_runs(notebook, code, by, command.id, "the kernel was restarted")
    plan.restart = True
    if command.run_all:  # also cells whose run just ends: they run again behind it, in the new kernel
        plan.drafts += [
            _queue(cell, new_id(), by, command.id, command.id) for cell in _runnable(notebook, notebook.order, CODE)
        ]
    return plan


def _rename(notebook: Notebook, command: c.Rename, by: str) -> Plan:
    return Plan([draft("session", event="renamed", title=command.title, by=by, command_id=command.id)])


def _archive(notebook: Notebook, command: c.Archive, by: str) -> Plan:
    event = "archived" if command.archived else "unarchived"
    return Plan([draft("session", event=event, by=by, command_id=command.id)])


def _comment(notebook: Notebook, command: c.Comment, by: str) -> Plan:
    return Plan([draft("comment", text=command.text, cell_id=command.cell_id, by=by, command_id=command.id)])


_DECISIONS: dict[type[Any], Callable[[Notebook, Any, str], Plan]] = {
    c.AddCell: _add_cell,
    c.EditCell: _edit_cell,
    c.MoveCell: _move_cell,
    c.SplitCell: _split_cell,
    c.MergeCells: _merge_cells,
    c.Collapse: _collapse,
    c.DeleteCell: _delete_cell,
    c.RestoreCell: _restore_cell,
    c.RunCell: _run_cell,
    c.RunAll: _run_all,
    c.Stop: _stop,
    c.Input: _input,
    c.FollowUp: _say,
    c.AnswerTurn: _say,
    c.Withdraw: _withdraw,
    c.GoOn: _go_on,
    c.SetModel: _set_model,
    c.SetPolicy: _set_policy,
    c.RemoveRule: _remove_rule,
    c.Check: _check,
    c.PutFile: _put_file,
    c.AddServer: _add_server,
    c.RemoveServer: _remove_server,
    c.LookAtServer: _look_at_server,
    c.RestartKernel: _restart_kernel,
    c.Rename: _rename,
    c.Archive: _archive,
    c.Comment: _comment,
}


def first_frames(title: str, cells: Sequence[tuple[str, str, str]], by: str) -> list[Draft]:
    """The frames a new notebook begins with; `cells` as (id, kind, source)."""
    drafts = [draft("session", event="created", title=title, by=by)]
    before: str | None = None
    for cell_id, kind, source in cells:
        drafts.append(draft("cell", event="added", cell_id=cell_id, by=by, kind=kind, source=source, after=before))
        before = cell_id
    return drafts
