"""What happened in a notebook, as few lines as tell it: the timeline, a part of the fold.

`after(history, frame)` is pure and looks at nothing else. Frames that belong together become one entry: a run's start
and end, runs that end well one after another, changes by one person. At most `KEPT` entries stay. A kind of frame that
should appear gets a function in `_TELLS`; a kind without one (outputs first of all) is not told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from engine.frames import Frame

KEPT = 200  # entries
TEXT = 160  # characters of a reason, a question, a remark
CELLS = 20  # cells of one entry that are named
TOGETHER = 300.0  # seconds between two things that are told as one


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the timeline.

    `seq` and `until` are its first and last frame, `at` the time of the last. `what` is one of: made, renamed,
    archived, unarchived, run_all, run, edited, deleted, asked, ask, verdict, delivered, file, comment, sandbox,
    restarted. `status` says how it stands (a run: running, done, error, cancelled; asked and ask: open,
    answered; a verdict: approve, deny; the sandbox: awake, asleep, lost, gone). `count` is how many the entry stands
    for, `key` what it is told apart by (a run, a batch, an ask).
    """

    seq: int
    until: int
    at: str
    what: str
    cell: str | None = None
    by: str | None = None
    key: str | None = None
    status: str | None = None
    text: str | None = None
    ms: int | None = None
    count: int = 1
    cells: tuple[str, ...] = ()


History = tuple[Entry, ...]


def after(history: History, frame: Frame) -> History:
    """The timeline after `frame`."""
    tells = _TELLS.get(frame.kind)
    return history if tells is None else tells(history, frame)[-KEPT:]


def _entry(frame: Frame, what: str, **fields: Any) -> Entry:
    if (text := fields.get("text")) is not None:
        fields["text"] = text if len(text) <= TEXT else text[: TEXT - 1] + "…"
    cells = () if frame.cell_id is None else (frame.cell_id,)
    return Entry(frame.seq, frame.seq, frame.at.isoformat(), what, frame.cell_id, frame.by, cells=cells, **fields)


def _add(history: History, entry: Entry) -> History:
    """`history` and `entry`, which becomes one with the last if both tell of the same."""
    if history and _same(history[-1], entry):
        last = history[-1]
        cells = (*(known for known in last.cells if known not in entry.cells), *entry.cells)[-CELLS:]
        joined = replace(entry, seq=last.seq, count=last.count + entry.count, cells=cells)
        if entry.ms is not None or last.ms is not None:
            joined = replace(joined, ms=(last.ms or 0) + (entry.ms or 0))
        return (*history[:-1], joined)
    return (*history, entry)


def _same(last: Entry, entry: Entry) -> bool:
    if last.what != entry.what:
        return False
    near = (datetime.fromisoformat(entry.at) - datetime.fromisoformat(last.at)).total_seconds() <= TOGETHER
    match entry.what:
        case "run":
            return near and last.status == entry.status and entry.status in ("done", "cancelled")
        case "run_all":
            return last.key == entry.key
        case "edited" | "deleted":
            return near and last.by == entry.by
        case "asked":
            return last.key == entry.key and last.status != "open"
        case "file":
            return near and last.text == entry.text and last.by == entry.by
    return False


def _run(history: History, frame: Frame) -> History:
    body, run = frame.body, frame.run_id
    match body.get("event"):
        case "queued" if body.get("batch") is not None:
            return _add(history, _entry(frame, "run_all", key=body["batch"]))
        case "started":
            return (*history, _entry(frame, "run", key=run, status="running"))
        case "ended":
            ended = _entry(frame, "run", key=run, status=body.get("status"), text=body.get("reason"), ms=body.get("ms"))
            if history and history[-1].what == "run" and history[-1].key == run:  # nothing happened meanwhile
                ended = replace(ended, seq=history[-1].seq)
                history = history[:-1]
            else:  # the end tells of the run, as the newest line; that it started is no news any more
                history = tuple(entry for entry in history if not (entry.what == "run" and entry.key == run))
            return _add(history, ended)
    return history


def _input(history: History, frame: Frame) -> History:
    if frame.body.get("event") == "asked":
        prompt = frame.body.get("prompt")
        return _add(history, _entry(frame, "asked", key=frame.run_id, status="open", text=prompt))
    return _settled(history, "asked", frame.run_id)


def _settled(history: History, what: str, key: str | None) -> History:
    return tuple(
        replace(entry, status="answered") if entry.what == what and entry.key == key else entry for entry in history
    )


def _cell(history: History, frame: Frame) -> History:
    what = "deleted" if frame.body.get("event") == "deleted" else "edited"
    return _add(history, _entry(frame, what))


def _session(history: History, frame: Frame) -> History:
    body = frame.body
    match body.get("event"):
        case "created":
            return (*history, _entry(frame, "made"))
        case "renamed":
            return (*history, _entry(frame, "renamed", text=body.get("title")))
        case "archived" | "unarchived":
            return (*history, _entry(frame, body["event"]))
        case "resumed":
            return (*history, _entry(frame, "restarted"))
        case "sandbox":
            state = "gone" if body.get("kernel") == "gone" else body.get("state")
            told = next((entry.status for entry in reversed(history) if entry.what == "sandbox"), "asleep")
            if state in ("awake", "asleep", "lost", "gone") and state != told:
                return (*history, _entry(frame, "sandbox", status=state, text=body.get("reason")))
    return history


def _comment(history: History, frame: Frame) -> History:
    return (*history, _entry(frame, "comment", text=frame.body.get("text")))


def _ask(history: History, frame: Frame) -> History:
    body = frame.body
    if any(entry.what == "ask" and entry.key == body.get("ask") for entry in history):  # it was parked
        return history
    return (*history, _entry(frame, "ask", key=body.get("ask"), status="open", text=body.get("title")))


def _verdict(history: History, frame: Frame) -> History:
    body = frame.body
    asked = next((entry for entry in history if entry.what == "ask" and entry.key == body.get("ask")), None)
    if asked is None:  # a call that no person was asked about
        return history
    verdict = _entry(frame, "verdict", key=body.get("ask"), status=body.get("verdict"), text=body.get("reason"))
    return (*_settled(history, "ask", body.get("ask")), verdict)


def _delivered(history: History, frame: Frame) -> History:
    return (*history, _entry(frame, "delivered", text=frame.body.get("text")))


def _file(history: History, frame: Frame) -> History:
    return _add(history, _entry(frame, "file", text=frame.body.get("path")))


_TELLS: dict[str, Callable[[History, Frame], History]] = {
    "session": _session,
    "cell": _cell,
    "run": _run,
    "input": _input,
    "comment": _comment,
    "ask": _ask,
    "verdict": _verdict,
    "delivered": _delivered,
    "file": _file,
}


@dataclass(frozen=True, slots=True)
class Absence:
    """What happened while someone was away: how many cells' last run ended how, what others changed, and more."""

    finished: int = 0
    failed: int = 0
    stopped: int = 0
    changed: int = 0  # cells that others changed
    remarks: int = 0
    decided: int = 0  # asks that ended, by whomever
    delivered: int = 0
    restarted: int = 0


def absence(frames: list[Frame], member: str) -> Absence:
    """What `frames`, all that came since `member` left, tell. A cell counts once, by its last run."""
    ends: dict[str | None, Any] = {}
    changed: set[str | None] = set()
    counts = dict.fromkeys(("comment", "verdict", "delivered", "resumed"), 0)
    calls = {frame.run_id for frame in frames if frame.kind == "run" and frame.body.get("parent") is not None}
    for frame in frames:
        event = frame.body.get("event")
        if frame.kind == "run" and frame.run_id in calls:  # the turn tells of them
            continue
        if frame.kind == "run" and event == "ended":
            ends[frame.cell_id] = frame.body.get("status")
        elif frame.kind == "cell" and frame.by != member:
            changed.add(frame.cell_id)
        elif frame.kind in counts and frame.by != member:
            counts[frame.kind] += 1
        elif frame.kind == "session" and event == "resumed":
            counts["resumed"] += 1
    how = list(ends.values())
    return Absence(
        finished=how.count("done"),
        failed=how.count("error"),
        stopped=how.count("cancelled"),
        changed=len(changed),
        remarks=counts["comment"],
        decided=counts["verdict"],
        delivered=counts["delivered"],
        restarted=counts["resumed"],
    )
