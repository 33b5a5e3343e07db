"""The fold: one reducer for everybody, pure, and the same whether it starts at the beginning or at a snapshot."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.frames import Draft, Frame, draft
from engine.notebook import Notebook, apply, fold
from engine.output import HEAD, TAIL, Output
from engine.snapshot import dump, load
from tests.engine.frames_made import START, after, numbered

CELLS = ["a", "b", "c"]
RUNS = ["r1", "r2"]


def drafts() -> st.SearchStrategy[Draft]:
    cell, run = st.sampled_from(CELLS), st.sampled_from(RUNS)
    kind = st.sampled_from(["python", "agent"])
    text = st.text(alphabet="xyz\n\r≤", min_size=1, max_size=12)
    return st.one_of(
        st.builds(
            lambda c, after, s, k: draft("cell", event="added", cell_id=c, kind=k, source=s, after=after),
            cell,
            st.none() | cell,
            text,
            kind,
        ),
        st.builds(
            lambda c, k: draft("cell", event="edited", cell_id=c, at=0, remove="", insert="", base=1, kind=k),
            cell,
            kind,
        ),
        st.builds(lambda c, r, t: draft("thought", cell_id=c, run_id=r, round=1, text=t), cell, run, text),
        st.builds(
            lambda c, at, i: draft("cell", event="edited", cell_id=c, at=at, remove="", insert=i, base=1),
            cell,
            st.integers(0, 3),
            text,
        ),
        st.builds(lambda c, a: draft("cell", event="moved", cell_id=c, after=a), cell, st.none() | cell),
        st.builds(lambda c: draft("cell", event="deleted", cell_id=c), cell),
        st.builds(
            lambda c, o, s: draft("cell", event="split", cell_id=c, other=o, at=0, remove="", source=s),
            cell,
            cell,
            text,
        ),
        st.builds(
            lambda c, o, s: draft("cell", event="merged", cell_id=c, other=o, at=0, remove="", insert=s),
            cell,
            cell,
            text,
        ),
        st.builds(lambda c: draft("cell", event="collapsed", cell_id=c, hide_output=True), cell),
        st.builds(lambda c: draft("cell", event="restored", cell_id=c), cell),
        st.builds(lambda c, r: draft("run", event="queued", cell_id=c, run_id=r), cell, run),
        st.builds(lambda c, r: draft("run", event="started", cell_id=c, run_id=r, sandbox="s"), cell, run),
        st.builds(lambda c, r: draft("run", event="cancelling", cell_id=c, run_id=r), cell, run),
        st.builds(
            lambda c, r, s: draft("run", event="ended", cell_id=c, run_id=r, status=s),
            cell,
            run,
            st.sampled_from(["done", "error", "cancelled"]),
        ),
        st.builds(
            lambda c, r, t, n: draft("output", cell_id=c, run_id=r, text=t, stream="stdout", src=("s", n)),
            cell,
            run,
            text,
            st.integers(1, 99),
        ),
        st.builds(
            lambda c, r: draft("input", event="asked", cell_id=c, run_id=r, input="i", prompt="?", password=False),
            cell,
            run,
        ),
        st.builds(lambda c, r: draft("input", event="answered", cell_id=c, run_id=r, input="i"), cell, run),
        st.builds(lambda t: draft("session", event="renamed", title=t), text),
        st.just(draft("session", event="sandbox", state="awake", sandbox="s", kernel="ready")),
    )


@given(st.lists(drafts(), max_size=40), st.integers(0, 40))
@settings(max_examples=200, deadline=None)
def test_a_fold_continues_from_any_point_and_from_any_snapshot(made: list[Draft], cut: int) -> None:
    frames = numbered(made)
    whole = fold(Notebook("n"), frames)
    first = fold(Notebook("n"), frames[:cut])
    kept = json.loads(json.dumps(dump(first)))
    assert dump(fold(first, frames[cut:])) == dump(whole)
    assert dump(fold(load(kept), frames[cut:])) == dump(whole)
    assert json.loads(json.dumps(dump(first))) == kept, "folding on changed an older value"


def test_a_cell_changed_from_agent_to_python_and_back_has_its_story_whatever_snapshots_were_between() -> None:
    def kind(name: str) -> Draft:
        return draft("cell", event="edited", cell_id="a", at=0, remove="", insert="", kind=name)

    told = after(
        Notebook("n"),
        [
            draft("cell", event="added", cell_id="a", kind="agent", source="do"),
            draft("run", event="queued", cell_id="a", run_id="r"),
            draft("run", event="started", cell_id="a", run_id="r"),
            draft("thought", cell_id="a", run_id="r", round=1, text="thinking"),
            draft("run", event="ended", cell_id="a", run_id="r", status="done"),
        ],
    )
    story = told.cells["a"].story
    assert [item["t"] for item in story.items] == ["request", "thought"]
    python = load(json.loads(json.dumps(dump(after(told, [kind("python")])))))
    assert python.cells["a"].story == story
    assert after(python, [kind("agent")]).cells["a"].story == story
    assert dump(python)["cells"][0]["story"] is not None


def test_a_run_from_queued_to_ended() -> None:
    notebook = after(Notebook("n"), [draft("cell", event="added", cell_id="a", kind="python", source="1")])
    states = []
    for step in (
        draft("run", event="queued", cell_id="a", run_id="r"),
        draft("run", event="started", cell_id="a", run_id="r", sandbox="s"),
        draft("input", event="asked", cell_id="a", run_id="r", input="i", prompt="name? ", password=False),
        draft("input", event="answered", cell_id="a", run_id="r", input="i", text="me"),
        draft("run", event="cancelling", cell_id="a", run_id="r"),
        draft("run", event="ended", cell_id="a", run_id="r", status="cancelled", reason="stopped", ms=12),
    ):
        notebook = after(notebook, [step])
        states.append((notebook.cells["a"].state, notebook.state))
    assert states == [
        ("queued", "queued"),
        ("running", "running"),
        ("waiting", "waiting"),
        ("running", "running"),
        ("cancelling", "running"),
        ("cancelled", "idle"),
    ]
    assert notebook.runs == {}
    assert (notebook.cells["a"].count, notebook.cells["a"].ms, notebook.cells["a"].reason) == (1, 12, "stopped")


def test_output_of_an_earlier_run_does_not_reach_the_cell() -> None:
    notebook = after(
        Notebook("n"),
        [
            draft("cell", event="added", cell_id="a", kind="python", source=""),
            draft("run", event="queued", cell_id="a", run_id="r2"),
            draft("run", event="started", cell_id="a", run_id="r2"),
            draft("output", cell_id="a", run_id="r1", text="late", stream="stdout"),
        ],
    )
    assert list(notebook.cells["a"].output) == []


def test_the_end_of_an_earlier_run_does_not_change_a_cell_that_is_queued_again() -> None:
    notebook = after(
        Notebook("n"),
        [
            draft("cell", event="added", cell_id="a", kind="python", source=""),
            draft("run", event="queued", cell_id="a", run_id="r1"),
            draft("run", event="started", cell_id="a", run_id="r1"),
            draft("run", event="cancelling", cell_id="a", run_id="r1"),
            draft("run", event="queued", cell_id="a", run_id="r2"),
            draft("run", event="ended", cell_id="a", run_id="r1", status="cancelled"),
        ],
    )
    assert notebook.cells["a"].state == "queued"
    assert list(notebook.runs) == ["r2"]


def test_a_kind_of_a_newer_version_only_moves_seq() -> None:
    frame = Frame(1, START, "hologram", "a", None, None, None, '{"event":"shown"}')
    assert apply(Notebook("n"), frame) == Notebook("n", seq=1)


def test_a_deleted_cell_comes_back_where_it_stood_and_not_as_running() -> None:
    made = [
        draft("cell", event="added", cell_id=c, kind="python", source=c, after=p) for c, p in (("a", None), ("b", "a"))
    ]
    notebook = after(
        Notebook("n"),
        [
            *made,
            draft("run", event="queued", cell_id="a", run_id="r"),
            draft("run", event="cancelling", cell_id="a", run_id="r"),
            draft("cell", event="deleted", cell_id="a"),
            draft("run", event="ended", cell_id="a", run_id="r", status="cancelled"),
            draft("cell", event="restored", cell_id="a"),
        ],
    )
    assert notebook.order == ("a", "b")
    assert notebook.cells["a"].state == "cancelled"
    assert notebook.runs == {}


def test_a_cell_keeps_its_first_and_last_text_and_says_what_lies_between() -> None:
    notebook = after(
        Notebook("n"),
        [
            draft("cell", event="added", cell_id="a", kind="python", source=""),
            draft("run", event="queued", cell_id="a", run_id="r"),
            draft("run", event="started", cell_id="a", run_id="r"),
        ],
    )
    line = "x" * 99 + "\n"
    notebook = after(
        notebook, [draft("output", cell_id="a", run_id="r", text=line * 10, stream="stdout") for _ in range(1000)]
    )
    output = notebook.cells["a"].output
    shown = sum(len(item["text"]) for item in output)
    assert HEAD + TAIL - 2000 <= shown <= HEAD + TAIL + 2000
    assert shown + output.dropped_size == output.total == 1_000_000
    assert sum(item.get("left_out", 0) for item in output) == output.dropped_size


@pytest.mark.parametrize("size", [1, 7, 64])
def test_output_folded_in_pieces_of_any_size_is_the_same(size: int) -> None:
    notebook = after(
        Notebook("n"),
        [
            draft("cell", event="added", cell_id="a", kind="python", source=""),
            draft("run", event="queued", cell_id="a", run_id="r"),
            draft("run", event="started", cell_id="a", run_id="r"),
        ],
    )
    frames = numbered(
        [draft("output", cell_id="a", run_id="r", text=f"{n:05}" * 200, stream="stdout") for n in range(700)],
        notebook.seq + 1,
    )
    whole = fold(notebook, frames)
    for start in range(0, len(frames), size):
        notebook = load(dump(fold(notebook, frames[start : start + size])))
    assert dump(notebook) == dump(whole)


def test_a_gap_that_falls_into_a_larger_one_is_told_with_it() -> None:
    output = Output()
    for _ in range(100):
        output = output.add({"stream": "stdout", "text": "x" * 10_000, "left_out": 1_000_000})
    kept = sum(len(item["text"]) for item in output)
    assert output.left_out + kept == 100 * 1_010_000
