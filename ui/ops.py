"""View operations: what a page has to change to show a newer fold.

The fold is the one reducer; the browser has none. This module says, as plain JSON values, what differs between two
folds (`between`) or what makes a whole page (`snapshot`), and cuts that into pieces that flow control can count.

| op | fields | the page |
| --- | --- | --- |
| `reset` | | forgets all cells (drafts of the person stay) |
| `notebook` | `set` | title, archived, sandbox |
| `add` | `cell`, `after`, `by`, `command` | a cell, with its source and version |
| `move` `remove` | `id`, `after` | |
| `cell` | `id`, `set` | fields of a cell: state, count, reason, input …; `turn` tells queued cells' places in line |
| `edit` | `id`, `base`, `version`, `at`, `remove`, `insert`, `by`, `command` | a splice of the source, in code points |
| `clear` | `id` | a new run starts: the output is emptied |
| `output` | `id`, `item` | text or a display, appended |
| `update` | `id`, `item` | a display shown before, replaced by its id |
| `history` | `from`, `entries` | the timeline: entries from seq `from` on are replaced by these |
| `refused` | `command`, `reason`, `cell` | |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any

from engine.frames import TEXT_LIMIT, Frame
from engine.history import History
from engine.notebook import Cell, Notebook

Op = dict[str, Any]

ACTIVE = frozenset({"running", "waiting", "cancelling"})
SHOWN = ("text/plain", "image/png", "image/jpeg")  # MIME types this page draws
_FIELDS = ("kind", "state", "run_id", "reason", "count", "ms", "whole", "beside", "hide_source", "hide_output")


def cell_view(cell: Cell, now: datetime) -> dict[str, Any]:
    """All a page shows of a cell besides its source and output. `elapsed` is in milliseconds, so that no two clocks
    are ever compared in a browser."""
    view: dict[str, Any] = {name: getattr(cell, name) for name in _FIELDS}
    view["input"] = None if cell.input is None else asdict(cell.input)
    view["elapsed"] = _elapsed(cell, now)
    return view


def _elapsed(cell: Cell, now: datetime) -> int | None:
    if cell.state not in ACTIVE or cell.started_at is None:
        return None
    return max(0, int((now - datetime.fromisoformat(cell.started_at)).total_seconds() * 1000))


def notebook_view(notebook: Notebook) -> dict[str, Any]:
    """What the head of the page shows."""
    sandbox = notebook.sandbox
    return {
        "title": notebook.title,
        "archived": notebook.archived,
        "sandbox": {
            "state": sandbox.state,
            "kernel": sandbox.kernel,
            "isolation": sandbox.isolation,
            "reason": sandbox.reason,
        },
    }


def between(old: Notebook, new: Notebook, frame: Frame) -> list[Op]:
    """The operations that lead from `old` to `new`, where `new` is `apply(old, frame)`."""
    ops: list[Op] = []
    if old.title != new.title or old.archived != new.archived or old.sandbox != new.sandbox:
        before, after = notebook_view(old), notebook_view(new)
        ops.append({"op": "notebook", "set": {key: after[key] for key in after if after[key] != before[key]}})
    if old.history is not new.history and old.history != new.history:
        ops.append(_history(old.history, new.history))
    if frame.kind == "refused":
        body = frame.body
        ops.append(
            {
                "op": "refused",
                "command": body.get("command") or frame.command_id,
                "reason": body.get("reason", ""),
                "cell": frame.cell_id,
            }
        )
    if frame.cell_id is not None:
        ops.extend(_cell_ops(old, new, frame, frame.cell_id))
        if frame.kind == "cell" and (other := frame.body.get("other")) is not None:
            ops.extend(_cell_ops(old, new, frame, other))  # in one message, so that nobody sees half of it
    return ops


def _history(old: History, new: History) -> Op:
    """What of the timeline is new: mostly its last entry. What fell off its beginning, the page forgets by itself."""
    gone = 0 if not new else next((at for at, entry in enumerate(old) if entry.seq >= new[0].seq), len(old))
    same = 0
    for one, other in zip(old[gone:], new, strict=False):
        if one != other:
            break
        same += 1
    dropped = [entry.seq for entry in old[gone + same :]]
    entries = [asdict(entry) for entry in new[same:]]
    return {"op": "history", "from": min([*dropped, *(entry["seq"] for entry in entries)]), "entries": entries}


def _cell_ops(old: Notebook, new: Notebook, frame: Frame, cell_id: str) -> Iterator[Op]:
    was, cell = old.cells.get(cell_id), new.cells.get(cell_id)
    if cell is None:
        if was is not None:
            yield {"op": "remove", "id": cell_id, "by": frame.by}
        return
    if was is None:
        yield _added(new, cell, frame.at) | {"by": frame.by, "command": frame.command_id}
        yield from _outputs(cell)
        return
    if len(old.order) == len(new.order) and old.order != new.order:
        yield {"op": "move", "id": cell_id, "after": _before(new.order, cell_id)}
    if cell is was:
        return
    if cell.version != was.version:
        edit = cell.edits[-1]
        yield {
            "op": "edit",
            "id": cell_id,
            "base": edit.base,
            "version": edit.version,
            "at": edit.at,
            "remove": len(edit.remove),
            "insert": edit.insert,
            "by": frame.by,
            "command": frame.command_id,
        }
    view_was, view_now = cell_view(was, frame.at), cell_view(cell, frame.at)
    changed = {key: value for key, value in view_now.items() if value != view_was[key]}
    if changed and changed.keys() != {"elapsed"}:
        if view_now["state"] == "queued":
            changed["turn"] = frame.seq
        if cell.state in ACTIVE:
            changed["elapsed"] = view_now["elapsed"]
        yield {"op": "cell", "id": cell_id, "set": changed}
    if cell.output is not was.output:
        body = frame.body
        if frame.kind != "output":
            yield {"op": "clear", "id": cell_id}
        elif body.get("update") and body.get("display") is not None:
            yield {"op": "update", "id": cell_id, "item": _item(body)}
        else:
            yield {"op": "output", "id": cell_id, "item": _item(body)}


def _item(body: dict[str, Any]) -> dict[str, Any]:
    """An output body as the page draws it: without what it cannot show."""
    item: dict[str, Any] = {}
    if body.get("left_out"):
        item["left_out"] = body["left_out"]
    if body.get("text") is not None:
        item |= {"stream": body.get("stream") or "stdout", "text": body["text"]}
        return item
    data = body.get("data") or {}
    item["data"] = {mime: data[mime] for mime in SHOWN if mime in data}
    item["kinds"] = sorted(data)
    if body.get("display") is not None:
        item["display"] = body["display"]
    return item


def _before(order: tuple[str, ...], cell_id: str) -> str | None:
    at = order.index(cell_id)
    return order[at - 1] if at else None


def _added(notebook: Notebook, cell: Cell, now: datetime) -> Op:
    view = {"id": cell.id, "source": cell.source, "version": cell.version, **cell_view(cell, now)}
    return {"op": "add", "cell": view, "after": _before(notebook.order, cell.id)}


def _outputs(cell: Cell) -> Iterator[Op]:
    for item in cell.output:
        yield {"op": "output", "id": cell.id, "item": _item(item)}


def snapshot(notebook: Notebook, now: datetime) -> Iterator[Op]:
    """The whole page: first all cells, then their outputs, cell by cell. `now` is for the running clocks."""
    yield {"op": "reset"}
    yield {"op": "notebook", "set": notebook_view(notebook)}
    turns = {run.cell_id: place for place, run in enumerate(notebook.runs.values())}  # the oldest first
    for cell_id in notebook.order:
        added = _added(notebook, notebook.cells[cell_id], now)
        added["cell"]["turn"] = turns.get(cell_id)
        yield added
    yield {"op": "history", "from": 0, "entries": [asdict(entry) for entry in notebook.history]}
    for cell_id in notebook.order:
        yield from _outputs(notebook.cells[cell_id])


def joined(ops: Iterable[Op]) -> Iterator[Op]:
    """The same with neighbours made one: text of one stream (at most `TEXT_LIMIT` characters), fields of one cell."""
    held: Op | None = None
    for op in ops:
        if held is not None and _joins(held, op):
            if op["op"] == "output":
                item = held["item"]
                held = {**held, "item": {**item, "text": item["text"] + op["item"]["text"]}}
            else:
                held = {**held, "set": {**held["set"], **op["set"]}}
            continue
        if held is not None:
            yield held
        held = op
    if held is not None:
        yield held


def _joins(held: Op, op: Op) -> bool:
    if held["op"] != op["op"] or held.get("id") != op.get("id"):
        return False
    if op["op"] == "cell":
        return True
    if op["op"] != "output":
        return False
    first, second = held["item"], op["item"]
    return (
        "text" in first
        and "text" in second
        and first["stream"] == second["stream"]
        and "left_out" not in second
        and len(first["text"]) + len(second["text"]) <= TEXT_LIMIT
    )


def pieces(ops: Iterable[Op], limit: int) -> Iterator[list[Op]]:
    """`ops` in lists of about `limit` bytes of JSON; an operation is never cut, so one may be larger."""
    piece: list[Op] = []
    size = 0
    for op in ops:
        weight = len(json.dumps(op, ensure_ascii=False, separators=(",", ":")).encode()) + 1
        if piece and size + weight > limit:
            yield piece
            piece, size = [], 0
        piece.append(op)
        size += weight
    if piece:
        yield piece
