"""What a frame changes is worked out once for all who look, and is the same as if each had worked it out."""

from __future__ import annotations

import pytest

from engine.frames import draft
from engine.notebook import Notebook, apply
from tests.engine.frames_made import after, numbered
from ui import drawing, ops


def told(*texts: str) -> tuple[Notebook, list[object]]:
    """A notebook with a running cell, and what it prints next."""
    first = [
        draft("cell", event="added", cell_id="c", kind="python", source=""),
        draft("run", event="queued", run_id="r", cell_id="c"),
        draft("run", event="started", run_id="r", cell_id="c", sandbox="s"),
    ]
    notebook = after(Notebook("n"), first)
    drafts = [draft("output", run_id="r", cell_id="c", text=text, stream="stdout") for text in texts]
    return notebook, list(numbered(drafts, notebook.seq + 1))


def test_who_comes_a_moment_later_is_given_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(drawing, "apply", lambda *given: made.append(given) or apply(*given))
    notebook, frames = told("a", "b")
    shared = drawing.Drawing()
    one = other = notebook
    for frame in frames:
        before = one
        one, view = shared.after(one, frame)
        other, same = shared.after(other, frame)
        assert view is same
        assert one == other == apply(before, frame)
        assert [op["op"] for op in view] == [op["op"] for op in ops.between(before, one, frame)]
    assert len(made) == 2


def test_what_is_older_than_a_second_is_worked_out_anew_and_little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(drawing.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(drawing, "KEPT_FRAMES", 5)
    notebook, frames = told(*"abcdefgh")
    shared = drawing.Drawing()
    _, first = shared.after(notebook, frames[0])
    clock[0] = 2.0
    assert shared.after(notebook, frames[0])[1] is not first
    for frame in frames:
        notebook, _ = shared.after(notebook, frame)
    assert len(shared._made) == 5
