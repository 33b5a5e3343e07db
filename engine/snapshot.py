"""A folded notebook as plain JSON and back, for snapshots in the database and for readers of the API.

`FORMAT` belongs to the stored form: a snapshot of another format is ignored and the journal read from its start.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from engine.history import Entry
from engine.notebook import CallRun, Cell, Deleted, Notebook, PendingInput, Run, SandboxState
from engine.output import Output
from engine.splice import Edit
from engine.story import Story

FORMAT = 7


def _plain(value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


_RUN = tuple(item.name for item in fields(Run))
_SANDBOX = tuple(item.name for item in fields(SandboxState))
_INPUT = tuple(item.name for item in fields(PendingInput))
_EDIT = tuple(item.name for item in fields(Edit))
_CELL = tuple(item.name for item in fields(Cell) if item.name not in ("output", "input", "edits", "story", "call"))
_CALL = tuple(item.name for item in fields(CallRun))
_ENTRY = tuple(item.name for item in fields(Entry))
_STORY = tuple(item.name for item in fields(Story))
_UNTOLD = Story()
_NOTEBOOK = (
    *("id", "title", "seq", "archived", "cursor", "count", "epoch", "changed_at", "failed"),
    *("model", "tokens", "cost", "policy", "rules", "checks", "files", "servers"),
)


def dump_cell(cell: Cell, *, edits: bool = True) -> dict[str, Any]:
    """A cell as JSON; without `edits` as a reader sees it."""
    value = _plain(cell, _CELL)
    value["input"] = None if cell.input is None else _plain(cell.input, _INPUT)
    value["call"] = None if cell.call is None else _plain(cell.call, _CALL)
    value["output"] = cell.output.to_json() if edits else list(cell.output)
    # A cell that was an agent's and has another kind now keeps its story: its kind may be changed back.
    value["story"] = _plain(cell.story, _STORY) if cell.kind == "agent" or cell.story != _UNTOLD else None
    if edits:
        value["edits"] = [_plain(edit, _EDIT) for edit in cell.edits]
    return value


def dump(notebook: Notebook) -> dict[str, Any]:
    """The whole fold: `load(dump(n)) == n`."""
    value = _plain(notebook, _NOTEBOOK)
    value["cells"] = [dump_cell(notebook.cells[cell_id]) for cell_id in notebook.order]
    value["runs"] = [_plain(run, _RUN) for run in notebook.runs.values()]
    value["deleted"] = [{"cell": dump_cell(gone.cell), "after": gone.after} for gone in notebook.deleted]
    value["sandbox"] = _plain(notebook.sandbox, _SANDBOX)
    value["history"] = [_plain(entry, _ENTRY) | {"cells": list(entry.cells)} for entry in notebook.history]
    return value


def view(notebook: Notebook) -> dict[str, Any]:
    """What a reader of the API gets: the cells in order with what they show, and what runs."""
    return {
        "id": notebook.id,
        "title": notebook.title,
        "seq": notebook.seq,
        "state": notebook.state,
        "waiting": notebook.waiting,
        "archived": notebook.archived,
        "changed_at": notebook.changed_at,
        "model": notebook.model,
        "tokens": notebook.tokens,
        "cost": notebook.cost,
        "policy": notebook.policy,
        "rules": list(notebook.rules.values()),
        "checks": notebook.checks,
        "files": list(notebook.files.values()),
        "servers": list(notebook.servers.values()),
        "sandbox": _plain(notebook.sandbox, _SANDBOX),
        "runs": [_plain(run, _RUN) for run in notebook.runs.values()],
        "cells": [dump_cell(notebook.cells[cell_id], edits=False) for cell_id in notebook.order],
    }


def _cell(value: dict[str, Any]) -> Cell:
    known = {name: value[name] for name in _CELL}
    return Cell(
        **known,
        input=None if value["input"] is None else PendingInput(**value["input"]),
        call=None if value["call"] is None else CallRun(**value["call"]),
        output=Output.from_json(value["output"]),
        edits=tuple(Edit(**edit) for edit in value["edits"]),
        story=Story() if (story := value["story"]) is None else Story(**{**story, "items": tuple(story["items"])}),
    )


def load(value: dict[str, Any]) -> Notebook:
    """The fold that `dump` wrote."""
    cells = [_cell(item) for item in value["cells"]]
    return Notebook(
        **{name: value[name] for name in _NOTEBOOK},
        cells={cell.id: cell for cell in cells},
        order=tuple(cell.id for cell in cells),
        runs={item["id"]: Run(**item) for item in value["runs"]},
        deleted=tuple(Deleted(_cell(item["cell"]), item["after"]) for item in value["deleted"]),
        sandbox=SandboxState(**value["sandbox"]),
        history=tuple(Entry(**{**entry, "cells": tuple(entry["cells"])}) for entry in value["history"]),
    )
