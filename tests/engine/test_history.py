"""The timeline: what belongs together is one line, what matters is never lost in one, and it stays bounded."""

from __future__ import annotations

from typing import Any

from engine.frames import Draft, Frame, draft
from engine.history import KEPT, Absence, Entry, History, absence, after
from engine.notebook import Notebook, fold
from tests.engine.frames_made import numbered


def told(*drafts: Draft) -> History:
    history: History = ()
    for frame in numbered(drafts):
        history = after(history, frame)
    return history


def shown(*drafts: Draft) -> list[tuple[str, str | None, int]]:
    return [(entry.what, entry.status, entry.count) for entry in told(*drafts)]


def run(cell: str, event: str, **fields: Any) -> Draft:
    fields = {"by": "owner"} | fields if event == "queued" else fields
    return draft("run", event=event, cell_id=cell, run_id=f"r-{cell}", **fields)


def ran(cell: str, status: str = "done") -> list[Draft]:
    return [run(cell, "started"), run(cell, "ended", status=status, ms=1000)]


def edit(by: str, cell: str = "a") -> Draft:
    return draft("cell", event="edited", cell_id=cell, at=0, remove="", insert="x", base=1, by=by)


def test_a_run_is_one_line_from_its_start_to_its_end() -> None:
    assert shown(run("a", "queued"), run("a", "started")) == [("run", "running", 1)]
    (entry,) = told(run("a", "queued"), *ran("a"))
    assert (entry.what, entry.status, entry.ms, entry.seq, entry.until) == ("run", "done", 1000, 2, 3)


def test_a_run_stands_where_it_ended_and_its_start_is_told_no_more() -> None:
    drafts = [run("a", "started"), edit("maya"), run("a", "ended", status="done")]
    assert shown(*drafts[:2]) == [("run", "running", 1), ("edited", None, 1)]
    assert shown(*drafts) == [("edited", None, 1), ("run", "done", 1)]
    assert shown(*drafts, *ran("b")) == [("edited", None, 1), ("run", "done", 2)]


def test_runs_that_end_well_are_told_together_and_a_failure_never_is() -> None:
    drafts = [*ran("a"), *ran("b"), *ran("c", "error"), *ran("d", "error"), *ran("e")]
    assert shown(*drafts) == [("run", "done", 2), ("run", "error", 1), ("run", "error", 1), ("run", "done", 1)]
    assert told(*ran("a"), *ran("b"))[0].cells == ("a", "b")


def test_run_all_is_one_line_however_many_cells_it_asks_for() -> None:
    drafts = [run(cell, "queued", batch="b1") for cell in "abc"]
    assert shown(*drafts, run("d", "queued", batch="b2")) == [("run_all", None, 3), ("run_all", None, 1)]


def test_changes_are_told_by_person_and_deletions_apart() -> None:
    gone = draft("cell", event="deleted", cell_id="a", by="maya")
    drafts = [edit("maya"), edit("maya", "b"), edit("maya"), edit("owner"), gone]
    assert shown(*drafts) == [("edited", None, 3), ("edited", None, 1), ("deleted", None, 1)]
    assert told(*drafts)[0].cells == ("b", "a")


def test_a_question_is_open_until_it_has_its_line() -> None:
    asked = draft("input", event="asked", cell_id="a", run_id="r-a", input="i", prompt="Name? ", password=False)
    answered = draft("input", event="answered", cell_id="a", run_id="r-a", input="i")
    assert shown(asked) == [("asked", "open", 1)]
    assert shown(asked, answered) == [("asked", "answered", 1)]
    assert shown(asked, answered, asked, answered) == [("asked", "answered", 2)]


def test_the_sandbox_is_told_when_its_state_changed_not_each_time_it_is_named() -> None:
    def box(**fields: Any) -> Draft:
        return draft("session", event="sandbox", **fields)

    drafts = [box(state="starting"), box(state="awake", kernel="ready"), box(state="awake"), box(kernel="gone")]
    assert shown(*drafts, box(state="asleep"), draft("session", event="resumed", epoch=2)) == [
        ("sandbox", "awake", 1),
        ("sandbox", "gone", 1),
        ("sandbox", "asleep", 1),
        ("restarted", None, 1),
    ]


def test_an_ask_stays_open_until_its_verdict_and_unasked_verdicts_are_not_told() -> None:
    ask = draft("ask", ask="q", call="k", tool="shell", title="rm -r old", command="rm -r old", seconds=300.0)
    verdict = draft("verdict", ask="q", call="k", verdict="deny", reason="timeout")
    policy = draft("verdict", ask="other", call="k2", verdict="approve", reason="policy")
    assert shown(policy, ask) == [("ask", "open", 1)]
    assert shown(ask, verdict) == [("ask", "answered", 1), ("verdict", "deny", 1)]


def test_it_is_bounded_in_lines_and_in_text() -> None:
    drafts = [draft("comment", text=f"{number} " + "x" * 1000, by="maya") for number in range(KEPT + 30)]
    history = told(*drafts)
    assert len(history) == KEPT
    assert history[-1].until == KEPT + 30
    assert max(len(entry.text or "") for entry in history) == 160


def test_outputs_leave_it_untouched() -> None:
    history = told(*ran("a"))
    (frame,) = numbered([draft("output", cell_id="a", run_id="r-a", text="x", stream="stdout")], 9)
    assert after(history, frame) is history


def frames(*drafts: Draft) -> list[Frame]:
    return numbered(drafts)


def test_an_absence_counts_cells_by_their_last_run() -> None:
    drafts = [*ran("a", "error"), *ran("a"), *ran("b"), *ran("c", "error"), *ran("d", "cancelled")]
    assert absence(frames(*drafts), "owner") == Absence(finished=2, failed=1, stopped=1)


def test_an_absence_tells_of_others_not_of_oneself() -> None:
    drafts = [edit("owner"), edit("maya"), edit("maya"), edit("maya", "b")]
    remarks = [draft("comment", text="Look", by="maya"), draft("comment", text="Mine", by="owner")]
    told_of = absence(frames(*drafts, *remarks, draft("session", event="resumed", epoch=2)), "owner")
    assert told_of == Absence(changed=2, remarks=1, restarted=1)


def test_nothing_happened_is_told_as_nothing() -> None:
    assert absence([], "owner") == Absence()


def test_an_entry_is_named_by_its_first_frame() -> None:
    seqs = [entry.seq for entry in told(*ran("a"), edit("maya"), edit("maya"), *ran("b"))]
    assert seqs == sorted(set(seqs))
    assert isinstance(told(*ran("a"))[0], Entry)


def test_the_runs_of_a_turns_calls_are_told_by_the_turn_alone() -> None:
    turn = {"cell_id": "g", "run_id": "turn"}
    call = {"cell_id": "g", "run_id": "call"}
    began = [
        draft("session", event="created", title="T"),
        draft("cell", event="added", cell_id="g", kind="agent", source="x", by="owner"),
        draft("run", event="queued", by="owner", **turn),
        draft("run", event="started", **turn),
    ]
    ran = [
        draft("run", event="queued", parent="turn", kind="shell", **call),
        draft("run", event="started", **call),
        draft("run", event="ended", status="error", ms=5, **call),
    ]
    notebook = fold(Notebook("n"), numbered([*began, *ran]))
    assert [(entry.what, entry.key) for entry in notebook.history if entry.what == "run"] == [("run", "turn")]
    assert absence(numbered(ran), "owner") == Absence()


def test_a_question_that_is_parked_stays_one_line() -> None:
    asked = draft("ask", ask="q", call="x", tool="shell", title="make", command="make", seconds=9.0)
    denied = draft("verdict", ask="q", call="x", verdict="deny", reason="timeout")
    assert shown(asked, asked) == [("ask", "open", 1)]
    assert shown(asked, asked, denied) == [("ask", "answered", 1), ("verdict", "deny", 1)]
