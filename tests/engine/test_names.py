"""Names without a kernel: from the texts of the notebook, Python's words and its builtins."""

from engine.decide import first_frames
from engine.names import completions
from engine.notebook import Notebook
from tests.engine.frames_made import after


def texts(source: str, at: int | None = None) -> list[str]:
    cells = [
        ("a", "python", "frame_count = 1\ndf.groupby(x)"),
        ("t", "markdown", "frame_of_text"),
        ("s", "shell", "fr"),
    ]
    notebook = after(Notebook("n"), first_frames("T", cells, "owner"))
    return [item["text"] for item in completions(notebook, source, len(source) if at is None else at)["items"]]


def test_words_of_the_notebook_come_before_builtins() -> None:
    assert texts("fr") == ["frame_count", "from", "frozenset"]
    assert "frame_of_text" not in texts("fr")


def test_behind_a_point_are_words_that_stand_behind_points() -> None:
    assert texts("df.") == ["groupby"]
    assert texts("df.gr") == ["groupby"]
    assert texts("df.zz") == []


def test_the_place_counts_code_points_and_what_follows_stays() -> None:
    notebook = after(Notebook("n"), first_frames("T", [("a", "python", "value = 1")], "owner"))
    answer = completions(notebook, "'😀' + va)", 8)
    assert (answer["start"], answer["end"]) == (6, 8)
    assert {"text": "value", "type": "variable"} in answer["items"]
    assert completions(notebook, "", 0)["start"] == 0
