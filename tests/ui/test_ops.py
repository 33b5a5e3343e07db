"""View operations: drawing the differences one after the other shows what a snapshot of the end shows."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import story
from engine.frames import Frame
from engine.history import KEPT
from engine.notebook import Notebook, fold
from engine.story import Story
from tests.ui.scripted import BEGIN, frames_of, steps
from ui import ops

CELLS = ("a", "b", "c")


class Page:
    """The least that a page does with operations: put things where it is told."""

    def __init__(self) -> None:
        self.head: dict[str, Any] = {}
        self.cells: dict[str, dict[str, Any]] = {}
        self.order: list[str] = []
        self.refused: list[str] = []
        self.told: list[dict[str, Any]] = []
        self.files: dict[str, Any] = {}
        self.checks: dict[str, bool] = {}

    def draw(self, drawn: list[ops.Op]) -> Page:
        for op in drawn:
            getattr(self, op["op"])(op)
        return self

    def reset(self, op: ops.Op) -> None:
        self.__init__()  # type: ignore[misc]

    def notebook(self, op: ops.Op) -> None:
        self.head |= op["set"]

    def add(self, op: ops.Op) -> None:
        cell = dict(op["cell"])
        self.cells[cell["id"]] = cell | {"text": "", "displays": []}
        self._place(cell["id"], op["after"])

    def _place(self, cell_id: str, after: str | None) -> None:
        rest = [other for other in self.order if other != cell_id]
        rest.insert(0 if after is None else rest.index(after) + 1, cell_id)
        self.order = rest

    def move(self, op: ops.Op) -> None:
        self._place(op["id"], op["after"])

    def remove(self, op: ops.Op) -> None:
        del self.cells[op["id"]]
        self.order.remove(op["id"])

    def cell(self, op: ops.Op) -> None:
        self.cells[op["id"]] |= op["set"]

    def edit(self, op: ops.Op) -> None:
        cell = self.cells[op["id"]]
        assert op["base"] == cell["version"]
        source = cell["source"]
        cell["source"] = source[: op["at"]] + op["insert"] + source[op["at"] + op["remove"] :]
        cell["version"] = op["version"]

    def clear(self, op: ops.Op) -> None:
        self.cells[op["id"]] |= {"text": "", "displays": []}

    def output(self, op: ops.Op) -> None:
        cell, item = self.cells[op["id"]], op["item"]
        if "text" in item:
            cell["text"] += item["text"]
        else:
            cell["displays"] = [*cell["displays"], item]

    def update(self, op: ops.Op) -> None:
        cell, item = self.cells[op["id"]], op["item"]
        cell["displays"] = [item if known.get("display") == item["display"] else known for known in cell["displays"]]

    def history(self, op: ops.Op) -> None:
        self.told = [*(entry for entry in self.told if entry["seq"] < op["from"]), *op["entries"]][-KEPT:]

    def file(self, op: ops.Op) -> None:
        file = op["file"]
        if file.get("deleted") and file.get("version") is None:  # it was never kept, and is gone
            self.files.pop(file["path"], None)
        else:
            self.files[file["path"]] = file

    def check(self, op: ops.Op) -> None:
        self.checks[op["item"]] = op["done"]

    def story(self, op: ops.Op) -> None:
        cell = self.cells[op["id"]]
        known = cell["story"] or ops.story_view(Story(), BEGIN)
        items, at = list(known["items"]), op["from"]
        assert at + op["remove"] <= len(items)
        items[at : at + op["remove"]] = op["items"]
        cell["story"] = known | op["set"] | {"items": items}

    def thought(self, op: ops.Op) -> None:
        story = self.cells[op["id"]]["story"]
        grown = {**story["items"][op["from"]]}
        assert grown["t"] == "thought"
        grown["text"] += op["text"]
        story["items"] = [*story["items"][: op["from"]], grown, *story["items"][op["from"] + 1 :]]

    def refused_(self, op: ops.Op) -> None:
        self.refused.append(op["reason"])

    def shown(self) -> dict[str, Any]:
        cells = [
            {key: value for key, value in self.cells[cell_id].items() if key != "turn"} for cell_id in self.order
        ]  # `turn` only orders
        return {"head": self.head, "cells": cells, "told": self.told, "files": self.files, "checks": self.checks}


def snapshot_page(notebook: Notebook) -> dict[str, Any]:
    return Page().draw(list(ops.snapshot(notebook, BEGIN))).shown()


cell_ids = st.sampled_from(CELLS)
words = st.text(st.sampled_from("ab\n😀"), max_size=5)
scripts = st.one_of(
    st.tuples(st.just("session"), st.fixed_dictionaries({"event": st.just("renamed"), "title": words})),
    st.tuples(
        st.just("session"),
        st.fixed_dictionaries({"event": st.just("sandbox"), "state": st.sampled_from(["awake", "asleep"])}),
    ),
    st.tuples(
        st.just("cell"),
        st.fixed_dictionaries(
            {
                "event": st.sampled_from(["added", "moved", "deleted", "restored"]),
                "cell_id": cell_ids,
                "after": st.one_of(st.none(), cell_ids),
                "source": words,
            }
        ),
    ),
    st.tuples(
        st.just("cell"),
        st.fixed_dictionaries(
            {"event": st.just("edited"), "cell_id": cell_ids, "at": st.just(0), "remove": st.just(""), "insert": words}
        ),
    ),
    st.tuples(
        st.just("cell"),
        st.fixed_dictionaries(
            {
                "event": st.sampled_from(["split", "merged"]),
                "cell_id": cell_ids,
                "other": cell_ids,
                "at": st.just(0),
                "remove": st.just(""),
                "insert": words,
                "source": words,
            }
        ),
    ),
    st.tuples(
        st.just("cell"),
        st.fixed_dictionaries({"event": st.just("collapsed"), "cell_id": cell_ids, "hide_source": st.booleans()}),
    ),
    st.tuples(
        st.just("run"),
        st.fixed_dictionaries(
            {"event": st.sampled_from(["queued", "started", "cancelling", "ended"]), "cell_id": cell_ids}
        ),
    ),
    st.tuples(
        st.just("output"),
        st.fixed_dictionaries({"cell_id": cell_ids, "text": words, "stream": st.sampled_from(["stdout", "stderr"])}),
    ),
    st.tuples(
        st.just("output"),
        st.fixed_dictionaries(
            {
                "cell_id": cell_ids,
                "data": st.just({"text/plain": "x", "text/html": "<b>"}),
                "display": st.sampled_from(["d1", "d2"]),
                "update": st.booleans(),
            }
        ),
    ),
    st.tuples(
        st.just("input"),
        st.fixed_dictionaries({"event": st.sampled_from(["asked", "answered"]), "cell_id": cell_ids}),
    ),
)


turns = st.one_of(
    st.tuples(
        st.just("thought"),
        st.fixed_dictionaries({"text": words, "round": st.integers(1, 2), "thinking": st.booleans()}),
    ),
    st.tuples(
        st.just("tool"),
        st.fixed_dictionaries(
            {"event": st.just("call"), "call": st.sampled_from("xyz"), "tool": st.just("shell"), "title": words}
        ),
    ),
    st.tuples(
        st.just("tool"),
        st.fixed_dictionaries({"event": st.just("begun"), "call": st.sampled_from("xyz"), "output": words}),
    ),
    st.tuples(
        st.just("tool"),
        st.fixed_dictionaries(
            {"event": st.just("result"), "call": st.sampled_from("xyz"), "status": st.just("done"), "text": words}
        ),
    ),
    st.tuples(
        st.just("ask"),
        st.fixed_dictionaries(
            {
                "ask": st.sampled_from("12"),
                "call": st.just("x"),
                "tool": st.just("shell"),
                "title": words,
                "command": words,
                "seconds": st.just(300),
            }
        ),
    ),
    st.tuples(
        st.just("verdict"),
        st.fixed_dictionaries(
            {
                "ask": st.sampled_from("12"),
                "call": st.just("x"),
                "verdict": st.just("deny"),
                "reason": st.just("timeout"),
            }
        ),
    ),
    st.tuples(
        st.just("message"),
        st.fixed_dictionaries(
            {"event": st.sampled_from(["queued", "taken", "withdrawn"]), "message": st.just("m"), "text": words}
        ),
    ),
    st.tuples(
        st.just("run"),
        st.fixed_dictionaries(
            {
                "event": st.sampled_from(["round", "retrying", "waiting", "resumed"]),
                "round": st.integers(1, 2),
                "seconds": st.just(9.0),
            }
        ),
    ),
    st.tuples(st.just("progress"), st.fixed_dictionaries({"text": words, "fraction": st.just(0.5)})),
    st.tuples(st.just("file"), st.fixed_dictionaries({"path": words, "version": st.integers(1, 3)})),
    st.tuples(st.just("file"), st.fixed_dictionaries({"path": words, "skipped": words})),
    st.tuples(st.just("file"), st.fixed_dictionaries({"path": words, "deleted": st.just(True)})),
    st.tuples(st.just("check"), st.fixed_dictionaries({"item": words, "done": st.booleans()})),
    st.tuples(st.just("session"), st.fixed_dictionaries({"event": st.just("policy"), "policy": st.just("all")})),
    st.tuples(
        st.just("run"),
        st.fixed_dictionaries(
            {"event": st.sampled_from(["queued", "started", "ended"]), "run_id": st.sampled_from("qr")}
        ),
    ),
)


def turn_frames(script: list[tuple[str, dict[str, Any]]]) -> list[Frame]:
    """A turn in cell a, told by `script`; what is not about the cell stands alone."""
    begun = [("cell", {"event": "added", "cell_id": "a", "kind": "agent", "source": "do"})]
    begun += [("run", {"event": event, "run_id": "r"}) for event in ("queued", "started")]
    placed = [
        (kind, fields if kind in ("file", "check", "session") else {"cell_id": "a", "run_id": "r", **fields})
        for kind, fields in begun + script
    ]
    return frames_of(*[(kind, dict(fields)) for kind, fields in placed])


@settings(deadline=None)
@given(st.lists(turns, max_size=40), st.integers(0, 40), st.integers(2, 400))
def test_a_turn_drawn_as_it_comes_shows_what_a_snapshot_of_its_end_shows(
    script: list[tuple[str, dict[str, Any]]], cut: int, room: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(story, "ITEMS", room)
        patch.setattr(story, "TEXT", 6)
        frames = turn_frames(script)
        cut = min(cut, len(frames))
        changes = [op for before, frame, after in steps(frames)[cut:] for op in ops.between(before, after, frame)]
        page = Page().draw(list(ops.snapshot(fold(Notebook("n"), frames[:cut]), BEGIN)))
        page.draw(list(ops.joined(changes)))
        assert page.shown() == snapshot_page(fold(Notebook("n"), frames))


def turn_ops(*script: tuple[str, dict[str, Any]]) -> list[ops.Op]:
    """The operations of the last of `script` alone."""
    return drawn_at(None, *script)


def drawn_at(now: datetime | None, *script: tuple[str, dict[str, Any]]) -> list[ops.Op]:
    before, frame, after = steps(turn_frames(list(script)))[-1]
    return [op for op in ops.between(before, after, frame, now) if op["op"] != "history"]


def thinks(text: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "thought", {"round": 1, "text": text, **more}


ASKED = ("ask", {"ask": "1", "call": "x", "tool": "shell", "title": "t", "command": "c", "seconds": 300})


def test_a_stream_of_thoughts_sends_only_its_tail_and_is_joined() -> None:
    frames = turn_frames([thinks("x" * 5000), *[thinks("word ")] * 200])
    told = [op for before, frame, after in steps(frames)[-200:] for op in ops.between(before, after, frame)]
    assert {op["op"] for op in told} == {"thought"}
    assert list(ops.joined(told)) == [{"op": "thought", "id": "a", "from": 1, "text": "word " * 200}]


def test_the_oldest_item_makes_room_without_sending_the_others_again() -> None:
    calls = [
        ("tool", {"event": "call", "call": f"c{n}", "tool": "shell", "title": "t"}) for n in range(story.ITEMS + 5)
    ]
    done = [("tool", {"event": "result", "call": f"c{n}", "status": "done"}) for n in range(10)]
    told = turn_ops(*calls[:-10], *done, *calls[-10:])
    assert [(op["from"], op["remove"], len(op["items"])) for op in told] == [(0, 1, 0), (story.ITEMS - 1, 0, 1)]


def test_a_frame_read_late_does_not_start_a_countdown_anew() -> None:
    (op,) = drawn_at(BEGIN + timedelta(seconds=100), ASKED)
    assert op["items"][0]["left"] == 200
    (op,) = drawn_at(BEGIN - timedelta(seconds=100), ASKED)  # a clock that lags behind the database's
    assert op["items"][0]["left"] == 300
    (op,) = drawn_at(BEGIN + timedelta(hours=1), ASKED)
    assert op["items"][0]["left"] == 0


def test_a_parked_ask_takes_the_place_of_the_same_ask() -> None:
    parked = (ASKED[0], ASKED[1] | {"parked": True, "seconds": 86400})
    (op,) = turn_ops(ASKED, parked)
    assert (op["from"], op["remove"]) == (1, 1)
    assert (op["items"][0]["left"], op["items"][0]["parked"]) == (86400, True)


def test_a_decided_ask_has_no_time_left() -> None:
    verdict = ("verdict", {"ask": "1", "call": "x", "verdict": "deny", "reason": "timeout", "by": "engine"})
    (op,) = turn_ops(ASKED, verdict)
    assert "left" not in op["items"][0]
    assert op["items"][0]["reason"] == "timeout"


def made(script: list[tuple[str, dict[str, Any]]]) -> list[Frame]:
    with_runs = [
        (kind, {**fields, "run_id": f"run-{fields['cell_id']}"} if kind in {"run", "output", "input"} else fields)
        for kind, fields in script
    ]
    added = [("cell", {"event": "added", "cell_id": "a", "kind": "python", "source": "x"})]
    return frames_of(*added, *[(k, dict(f)) for k, f in with_runs if not _adds_again(f)])


def _adds_again(fields: dict[str, Any]) -> bool:
    return fields.get("event") == "added" and fields.get("cell_id") == "a"


@settings(deadline=None)
@given(st.lists(scripts, max_size=30), st.integers(0, 30))
def test_differences_lead_where_a_snapshot_leads(script: list[tuple[str, dict[str, Any]]], cut: int) -> None:
    seen: set[str] = set()
    once = []
    for kind, fields in script:  # the engine adds a cell id once
        if fields.get("event") == "added":
            if fields["cell_id"] in seen:
                continue
            seen.add(fields["cell_id"])
        once.append((kind, fields))
    frames = made(once)
    cut = min(cut, len(frames))
    start = fold(Notebook("n"), frames[:cut])
    page = Page().draw(list(ops.snapshot(start, BEGIN)))
    changes = [op for before, frame, after in steps(frames)[cut:] for op in ops.between(before, after, frame)]
    page.draw(list(ops.joined(changes)))
    assert page.shown() == snapshot_page(fold(Notebook("n"), frames))


RUN = [
    ("cell", {"event": "added", "cell_id": "a", "kind": "python", "source": "x"}),
    ("run", {"event": "queued", "cell_id": "a", "run_id": "r"}),
    ("run", {"event": "started", "cell_id": "a", "run_id": "r"}),
]


def ops_of(*more: tuple[str, dict[str, Any]]) -> list[ops.Op]:
    frames = frames_of(*[(kind, dict(fields)) for kind, fields in [*RUN, *more]])
    return [op for before, frame, after in steps(frames)[len(RUN) :] for op in ops.between(before, after, frame)]


def out(text: str, stream: str = "stdout", **more: Any) -> tuple[str, dict[str, Any]]:
    return "output", {"cell_id": "a", "run_id": "r", "text": text, "stream": stream, **more}


def test_text_of_one_stream_is_joined_and_no_other() -> None:
    drawn = list(ops.joined(ops_of(out("1"), out("2"), out("3", "stderr"), out("4"))))
    assert [(op["item"]["stream"], op["item"]["text"]) for op in drawn] == [
        ("stdout", "12"),
        ("stderr", "3"),
        ("stdout", "4"),
    ]


def test_text_with_a_gap_before_it_is_not_joined() -> None:
    drawn = list(ops.joined(ops_of(out("1"), out("2", left_out=9))))
    assert [op["item"].get("left_out") for op in drawn] == [None, 9]


def seen(drawn: list[ops.Op]) -> list[ops.Op]:
    """Operations but for the timeline's."""
    return [op for op in drawn if op["op"] != "history"]


def test_places_in_line_follow_the_order_in_which_runs_were_asked() -> None:
    asked = [("run", {"event": "queued", "cell_id": cell, "run_id": cell}) for cell in "cab"]
    cells = [("cell", {"event": "added", "cell_id": cell, "kind": "python", "source": ""}) for cell in "abc"]
    made = steps(frames_of(*cells, *asked))
    drawn = [op for before, frame, after in made for op in ops.between(before, after, frame)]
    live = {op["id"]: op["set"]["turn"] for op in drawn if "turn" in op.get("set", {})}
    whole = [op["cell"] for op in ops.snapshot(made[-1][2], BEGIN) if op["op"] == "add"]
    opened = {cell["id"]: cell["turn"] for cell in whole}
    assert sorted(live, key=live.__getitem__) == sorted(opened, key=opened.__getitem__) == ["c", "a", "b"]


def test_an_edit_tells_whose_it_is() -> None:
    edit = ("cell", {"event": "edited", "cell_id": "a", "at": 1, "insert": "y", "by": "owner", "command_id": "c9"})
    (op,) = seen(ops_of(edit))
    assert (op["command"], op["by"], op["base"], op["version"], op["at"], op["insert"]) == ("c9", "owner", 1, 4, 1, "y")


def test_a_file_that_was_never_kept_and_is_gone_is_told_as_gone() -> None:
    drawn = ops_of(
        ("file", {"path": "node_modules", "skipped": "not kept"}), ("file", {"path": "node_modules", "deleted": True})
    )
    assert (drawn[-1]["op"], drawn[-1]["file"]["path"], drawn[-1]["file"]["deleted"]) == ("file", "node_modules", True)


def test_a_refusal_names_the_command() -> None:
    (op,) = ops_of(("refused", {"command": "c1", "reason": "no such cell", "command_id": "c1"}))
    assert op == {"op": "refused", "command": "c1", "reason": "no such cell", "cell": None}


def test_a_password_question_is_told_as_one_and_a_running_cell_gives_its_elapsed_time() -> None:
    question = {"event": "asked", "cell_id": "a", "run_id": "r", "input": "i", "prompt": "p", "password": True}
    (op,) = seen(ops_of(("input", question)))
    assert op["set"]["input"] == {"id": "i", "prompt": "p", "password": True}
    assert op["set"]["elapsed"] == 0


def test_a_display_goes_to_the_page_as_the_best_of_its_kinds() -> None:
    data = {"text/plain": "a table", "text/html": "<b>table</b>", "application/x-other": "x" * 1000}
    (op,) = ops_of(("output", {"cell_id": "a", "run_id": "r", "data": data}))
    assert op["item"] == {"mime": "text/html", "value": "<b>table</b>", "plain": "a table"}


def test_pieces_keep_to_their_size_and_lose_nothing() -> None:
    drawn = ops_of(*[out("x" * 1000) for _ in range(100)])
    cut = list(ops.pieces(drawn, 10_000))
    assert [op for piece in cut for op in piece] == drawn
    assert max(len(json.dumps(piece, separators=(",", ":"))) for piece in cut) <= 10_050
    assert len(cut) > 5


def test_an_operation_larger_than_a_piece_goes_alone() -> None:
    drawn = ops_of(out("x" * 5000), out("y"))
    assert [len(piece) for piece in ops.pieces(drawn, 1000)] == [1, 1]
