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
| `file` `check` | `file` / `item`, `done` | the newest version of a file; an item of the checklist |
| `story` | `id`, `set`, `from`, `remove`, `items` | fields of a turn; items from `from` on: `remove` go, `items` come |
| `thought` | `id`, `from`, `text` | the thought at `from` goes on |
| `refused` | `command`, `reason`, `cell` | |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any

from engine.frames import TEXT_LIMIT, Frame
from engine.history import KEPT, History
from engine.images import SIZES
from engine.notebook import Cell, Notebook
from engine.story import Item, Story

Op = dict[str, Any]

ACTIVE = frozenset({"running", "waiting", "cancelling"})
# MIME types that the page draws, the best first. A display goes to the page as one of them.
SHOWN = (
    "application/vnd.nightbook.table+json",
    "application/vnd.plotly.v1+json",
    "text/html",
    "text/markdown",
    "image/svg+xml",
    "image/png",
    "image/jpeg",
    "image/gif",
    "text/latex",
    "application/json",
    "text/plain",
)
PLAIN_LIMIT = 4096  # characters of a display's plain text beside a better kind
_STORY = ("run_id", "round", "rounds", "seconds", "attempt", "waits_for", "progress", "left_out", "resume_step")
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
        "policy": notebook.policy,
        "model": notebook.model,
        "rules": list(notebook.rules.values()),
        "servers": list(notebook.servers.values()),
    }


_HEAD = ("title", "archived", "sandbox", "policy", "model", "rules", "servers")


def between(old: Notebook, new: Notebook, frame: Frame, now: datetime | None = None) -> list[Op]:
    """The operations that lead from `old` to `new`, where `new` is `apply(old, frame)`.

    `now` is when they are drawn, for clocks and countdowns: a frame read late must not start them anew.
    """
    now = frame.at if now is None else max(now, frame.at)
    ops: list[Op] = []
    if any(getattr(old, name) != getattr(new, name) for name in _HEAD):
        before, after = notebook_view(old), notebook_view(new)
        ops.append({"op": "notebook", "set": {key: after[key] for key in after if after[key] != before[key]}})
    if old.history is not new.history and old.history != new.history:
        ops.append(_history(old.history, new.history))
    if frame.kind == "file":
        # One that the fold forgot at once is gone, and was never kept.
        gone = {**frame.body, "at": frame.at.isoformat()}
        ops.append(_file(new.files.get(frame.body["path"], gone), now))
    if frame.kind == "check":
        ops.append({"op": "check", "item": frame.body["item"], "done": new.checks[frame.body["item"]]})
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
        ops.extend(_cell_ops(old, new, frame, frame.cell_id, now))
        if frame.kind == "cell" and (other := frame.body.get("other")) is not None:
            ops.extend(_cell_ops(old, new, frame, other, now))  # in one message, so that nobody sees half of it
    return ops


def _history(old: History, new: History) -> Op:
    """What of the timeline is new: mostly its last entry. What fell off its beginning, the page forgets by itself."""
    gone = 0
    if len(new) == KEPT:
        gone = next((at for at, entry in enumerate(old) if entry.seq >= new[0].seq), len(old))
    same = 0
    for one, other in zip(old[gone:], new, strict=False):
        if one != other:
            break
        same += 1
    dropped = [entry.seq for entry in old[gone + same :]]
    entries = [asdict(entry) for entry in new[same:]]
    return {"op": "history", "from": min([*dropped, *(entry["seq"] for entry in entries)]), "entries": entries}


def _cell_ops(old: Notebook, new: Notebook, frame: Frame, cell_id: str, now: datetime) -> Iterator[Op]:
    was, cell = old.cells.get(cell_id), new.cells.get(cell_id)
    if cell is None:
        if was is not None:
            yield {"op": "remove", "id": cell_id, "by": frame.by}
        return
    if was is None or (cell.version != was.version and not cell.edits):  # new, or put in the place of another
        yield _added(new, cell, now) | {"by": frame.by, "command": frame.command_id}
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
    view_was, view_now = cell_view(was, now), cell_view(cell, now)
    changed = {key: value for key, value in view_now.items() if value != view_was[key]}
    if changed and changed.keys() != {"elapsed"}:
        if view_now["state"] == "queued":
            changed["turn"] = frame.seq
        if cell.state in ACTIVE:
            changed["elapsed"] = view_now["elapsed"]
        yield {"op": "cell", "id": cell_id, "set": changed}
    if cell.story is not was.story:
        yield from _story_ops(was.story, cell, now)
    if cell.output is not was.output:
        body = frame.body
        if frame.kind != "output" or body.get("clear"):
            yield {"op": "clear", "id": cell_id}
        elif body.get("update") and body.get("display") is not None:
            yield {"op": "update", "id": cell_id, "item": _item(body)}
        else:
            yield {"op": "output", "id": cell_id, "item": _item(body)}


def story_view(story: Story, now: datetime) -> dict[str, Any]:
    """A whole story as a page draws it. Asks that wait carry `left`, the seconds until they are denied."""
    view: dict[str, Any] = {name: getattr(story, name) for name in _STORY}
    view["items"] = [_story_item(item, now) for item in story.items]
    return view


def _story_item(item: Item, now: datetime) -> Item:
    if item["t"] != "ask" or item.get("verdict") is not None:
        return item
    waited = (now - datetime.fromisoformat(item["at"])).total_seconds()
    return {**item, "left": round(max(0.0, item["seconds"] - waited), 1)}


def _story_ops(was: Story, cell: Cell, now: datetime) -> Iterator[Op]:
    """What leads from one story to the next. Items are shared between the two, so the same object is the same item."""
    story, old = cell.story, list(was.items)
    fields = {name: getattr(story, name) for name in _STORY if getattr(story, name) != getattr(was, name)}
    new = story.items
    if story.left_out > was.left_out and old:  # one went to make room: two small changes, not one over everything
        gone = next((at for at, item in enumerate(old) if at >= len(new) or item is not new[at]), 0)
        yield {"op": "story", "id": cell.id, "set": {}, "from": gone, "remove": 1, "items": []}
        del old[gone]
    start = 0
    while start < min(len(old), len(new)) and old[start] is new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] is new[-1 - end]:
        end += 1
    before, after = old[start : len(old) - end], new[start : len(new) - end]
    if len(before) == len(after) == 1 and (more := _grown(before[0], after[0])):
        yield {"op": "thought", "id": cell.id, "from": start, "text": more}
        before, after = [], ()
    if fields or before or after:
        items = [_story_item(item, now) for item in after]
        yield {"op": "story", "id": cell.id, "set": fields, "from": start, "remove": len(before), "items": items}


def _grown(before: Item, after: Item) -> str:
    """What was added to a thought, or nothing when more than its end changed."""
    if before["t"] != "thought" or not after.get("text", "").startswith(before["text"]):
        return ""
    same = {**before, "text": ""} == {**after, "text": ""}
    return str(after["text"][len(before["text"]) :]) if same else ""


def _file(file: dict[str, Any], now: datetime) -> Op:
    ago = max(0, int((now - datetime.fromisoformat(file["at"])).total_seconds()))
    return {"op": "file", "file": {**file, "ago": ago}}


def _item(body: dict[str, Any]) -> dict[str, Any]:
    """An output body as the page draws it: without what it cannot show."""
    item: dict[str, Any] = {}
    item |= {name: body[name] for name in ("left_out", "displays_left_out") if body.get(name)}
    if body.get("text") is not None:
        item |= {"stream": body.get("stream") or "stdout", "text": body["text"]}
        return item
    data = body.get("data") or {}
    mime = best(data)
    if mime is None:
        item["kinds"] = sorted(data)
    else:
        item |= {"mime": mime, "value": data[mime]}
        sides = (body.get("metadata") or {}).get(SIZES, {}).get(mime)
        if sides is not None:
            item["size"] = sides
    plain = data.get("text/plain")
    if mime != "text/plain" and isinstance(plain, str):
        item["plain"] = plain[:PLAIN_LIMIT]
    if body.get("display") is not None:
        item["display"] = body["display"]
    return item


def best(data: dict[str, Any]) -> str | None:
    """The MIME type of a bundle that says most."""
    return next((mime for mime in SHOWN if mime in data), None)


def _before(order: tuple[str, ...], cell_id: str) -> str | None:
    at = order.index(cell_id)
    return order[at - 1] if at else None


def _added(notebook: Notebook, cell: Cell, now: datetime) -> Op:
    view = {"id": cell.id, "source": cell.source, "version": cell.version, **cell_view(cell, now)}
    told = cell.story.run_id is not None or cell.story.items
    view["story"] = story_view(cell.story, now) if told else None
    return {"op": "add", "cell": view, "after": _before(notebook.order, cell.id)}


def _outputs(cell: Cell) -> Iterator[Op]:
    for item in cell.output:
        yield {"op": "output", "id": cell.id, "item": _item(item)}


def snapshot(notebook: Notebook, now: datetime) -> Iterator[Op]:
    """The whole page: first all cells, then their outputs, cell by cell. `now` is for the running clocks."""
    yield {"op": "reset"}
    yield {"op": "notebook", "set": notebook_view(notebook)}
    turns = {run.cell_id: place for place, run in enumerate(notebook.runs.values())}  # the oldest first
    for item, done in notebook.checks.items():
        yield {"op": "check", "item": item, "done": done}
    for file in notebook.files.values():
        yield _file(file, now)
    for cell_id in notebook.order:
        added = _added(notebook, notebook.cells[cell_id], now)
        added["cell"]["turn"] = turns.get(cell_id)
        yield added
    yield {"op": "history", "from": 0, "entries": [asdict(entry) for entry in notebook.history]}
    for cell_id in notebook.order:
        yield from _outputs(notebook.cells[cell_id])


def joined(ops: Iterable[Op]) -> Iterator[Op]:
    """The same with neighbours made one: text of one stream or thought (at most `TEXT_LIMIT` characters), fields of
    one cell, items of a story that replace each other."""
    held: Op | None = None
    for op in ops:
        if held is not None and _joins(held, op):
            if op["op"] == "output":
                item = held["item"]
                held = {**held, "item": {**item, "text": item["text"] + op["item"]["text"]}}
            elif op["op"] == "thought":
                held = {**held, "text": held["text"] + op["text"]}
            elif op["op"] == "story":
                held = {**held, "set": held["set"] | op["set"], "items": op["items"]}
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
    if op["op"] == "thought":
        return bool(held["from"] == op["from"]) and len(held["text"]) + len(op["text"]) <= TEXT_LIMIT
    if op["op"] == "story":  # the same items once more: the newer ones stand
        return bool(held["from"] == op["from"] and len(held["items"]) == op["remove"])
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
