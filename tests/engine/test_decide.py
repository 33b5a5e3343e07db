"""What commands mean, tried on plain values: no process, no database, no clock."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine import commands
from engine.decide import Refused, after_end, decide, end, first_frames, next_run
from engine.frames import draft
from engine.notebook import Notebook
from tests.engine.frames_made import after


@pytest.fixture
def notebook() -> Notebook:
    cells = [("a", "python", "1"), ("t", "markdown", "# hi"), ("b", "shell", "ls"), ("c", "python", "2")]
    return after(Notebook("n"), first_frames("Title", cells, "owner"))


def ask(notebook: Notebook, kind: str, **fields: Any) -> tuple[Notebook, Any]:
    plan = decide(notebook, commands.parse({"id": f"{kind}-{notebook.seq}", "kind": kind, **fields}), "owner")
    return after(notebook, plan.drafts), plan


def started(notebook: Notebook, sandbox: str = "s") -> Notebook:
    run = next_run(notebook)
    assert run is not None
    return after(notebook, [draft("run", event="started", run_id=run.id, cell_id=run.cell_id, sandbox=sandbox)])


def states(notebook: Notebook) -> list[str]:
    return [notebook.cells[cell].state for cell in notebook.order]


def test_cells_are_added_where_asked(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "add_cell", cell_id="first", after=None)
    notebook, _ = ask(notebook, "add_cell", cell_id="last")
    notebook, _ = ask(notebook, "add_cell", cell_id="mid", after="a", cell_kind="shell", source="ls")
    notebook, _ = ask(notebook, "add_cell", cell_id="lost", after="gone")
    assert notebook.order == ("first", "a", "mid", "t", "b", "c", "last", "lost")
    with pytest.raises(Refused, match="already"):
        ask(notebook, "add_cell", cell_id="a")


def test_run_all_takes_code_cells_in_order_and_one_at_a_time(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "run_all")
    assert states(notebook) == ["queued", "idle", "queued", "queued"]
    notebook = started(notebook)
    assert next_run(notebook) is None
    assert states(notebook) == ["running", "idle", "queued", "queued"]


def test_run_all_stops_at_the_first_error(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "run_all")
    notebook = started(notebook)
    run = next(iter(notebook.runs.values()))
    notebook = after(notebook, [end(run, "error", "boom"), *after_end(notebook, run, "error")])
    assert states(notebook) == ["error", "idle", "cancelled", "cancelled"]
    assert notebook.cells["b"].reason == "a cell before it failed"
    assert notebook.runs == {}


def test_an_error_of_a_cell_run_alone_leaves_others_queued(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "run_cell", cell_id="a")
    notebook, _ = ask(notebook, "run_cell", cell_id="c")
    notebook = started(notebook)
    run = next(iter(notebook.runs.values()))
    notebook = after(notebook, [end(run, "error", "boom"), *after_end(notebook, run, "error")])
    assert states(notebook) == ["error", "idle", "idle", "queued"]


def test_stopping_the_first_of_three_drops_the_other_two(notebook: Notebook) -> None:
    for cell in ("a", "b", "c"):
        notebook, _ = ask(notebook, "run_cell", cell_id=cell)
    notebook = started(notebook)
    run_id = notebook.cells["a"].run_id
    notebook, plan = ask(notebook, "stop", run_id=run_id)
    assert plan.stop == [run_id]
    assert states(notebook) == ["cancelling", "idle", "cancelled", "cancelled"]


def test_stopping_a_queued_cell_leaves_the_running_one(notebook: Notebook) -> None:
    for cell in ("a", "b", "c"):
        notebook, _ = ask(notebook, "run_cell", cell_id=cell)
    notebook = started(notebook)
    notebook, plan = ask(notebook, "stop", cell_id="b")
    assert plan.stop == []
    assert states(notebook) == ["running", "idle", "cancelled", "queued"]


def test_stopping_what_does_not_run_is_an_expected_race(notebook: Notebook) -> None:
    _, plan = ask(notebook, "stop", run_id="gone")
    assert (plan.drafts, plan.stop) == ([], [])


def test_a_cell_runs_once_however_often_it_is_asked(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "run_cell", cell_id="a")
    with pytest.raises(Refused, match="already"):
        ask(notebook, "run_cell", cell_id="a")
    with pytest.raises(Refused, match="does not run"):
        ask(notebook, "run_cell", cell_id="t")


def test_overlapping_edits_keep_both_as_two_cells(notebook: Notebook) -> None:
    base = notebook.cells["a"].version
    notebook, _ = ask(notebook, "edit_cell", cell_id="a", base=base, at=0, remove=1, insert="first")
    notebook, _ = ask(notebook, "edit_cell", cell_id="a", base=base, at=0, remove=1, insert="second")
    beside = notebook.cells[notebook.order[1]]
    assert (notebook.cells["a"].source, beside.source, beside.beside) == ("first", "second", "a")


def test_an_edit_is_stored_as_its_splice(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "add_cell", cell_id="big", source="x" * 100_000)
    version = notebook.cells["big"].version
    _, plan = ask(notebook, "edit_cell", cell_id="big", base=version, at=50_000, remove=0, insert="y")
    assert len(plan.drafts[0].body) < 200


def test_a_whole_source_replaces_unless_it_was_made_on_an_older_version(notebook: Notebook) -> None:
    base = notebook.cells["a"].version
    notebook, _ = ask(notebook, "edit_cell", cell_id="a", source="new")
    assert notebook.cells["a"].source == "new"
    with pytest.raises(Refused, match="meanwhile"):
        ask(notebook, "edit_cell", cell_id="a", source="newer", base=base)


def test_an_edit_that_would_make_the_source_too_large_is_refused(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "edit_cell", cell_id="a", source="x" * (commands.SOURCE_LIMIT - 1))
    version = notebook.cells["a"].version
    with pytest.raises(commands.TooLarge, match="512 KiB"):
        ask(notebook, "edit_cell", cell_id="a", base=version, at=0, insert="yy")


def test_what_is_typed_at_a_password_prompt_or_into_a_terminal_is_in_no_frame(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "run_cell", cell_id="a")
    notebook = started(notebook)
    run_id = notebook.cells["a"].run_id
    asked = draft("input", event="asked", cell_id="a", run_id=run_id, input="i", prompt="Password: ", password=True)
    waiting = after(notebook, [asked])
    _, plan = ask(waiting, "input", run_id=run_id, input="i", text="s3cret")
    assert plan.deliver.text == "s3cret"
    assert "s3cret" not in json.dumps([item.body for item in plan.drafts])

    shell, _ = ask(notebook, "stop")
    shell = after(shell, [end(shell.runs[run_id], "cancelled", "stopped")])
    shell, _ = ask(shell, "run_cell", cell_id="b")
    shell = started(shell)
    _, plan = ask(shell, "input", run_id=shell.cells["b"].run_id, text="s3cret")
    assert "s3cret" not in json.dumps([item.body for item in plan.drafts])


def test_input_for_a_run_that_is_over_is_refused(notebook: Notebook) -> None:
    with pytest.raises(Refused, match="over"):
        ask(notebook, "input", run_id="gone", text="x")


def test_deleting_a_running_cell_stops_it(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "run_cell", cell_id="a")
    notebook = started(notebook)
    notebook, plan = ask(notebook, "delete_cell", cell_id="a")
    assert len(plan.stop) == 1
    assert "a" not in notebook.cells
    notebook, _ = ask(notebook, "restore_cell", cell_id="a")
    assert notebook.order[0] == "a"


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("edit_cell", {"cell_id": "gone", "source": ""}, "no cell gone"),
        ("edit_cell", {"cell_id": "a"}, "needs"),
        ("edit_cell", {"cell_id": "a", "base": 1, "at": 0}, "not known"),
        ("move_cell", {"cell_id": "a", "after": "a"}, "behind itself"),
        ("move_cell", {"cell_id": "a", "after": "gone"}, "no cell gone"),
        ("restore_cell", {"cell_id": "a"}, "not deleted"),
        ("run_all", {"until": "gone"}, "no cell gone"),
    ],
)
def test_what_cannot_be_applied_is_refused_with_its_reason(
    notebook: Notebook, kind: str, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(Refused, match=message):
        ask(notebook, kind, **fields)


@pytest.mark.parametrize(
    "body",
    [
        {"id": "x", "kind": "explode"},
        {"id": "x"},
        {"kind": "run_all"},
        {"id": "x", "kind": "run_cell"},
        {"id": "x", "kind": "run_cell", "cell_id": 7},
        {"id": "x", "kind": "run_cell", "cell_id": "a", "force": True},
        {"id": "x" * 65, "kind": "run_all"},
        {"id": "a b", "kind": "run_all"},
        {"id": "x", "kind": "edit_cell", "cell_id": "a", "at": -1},
        {"id": "x", "kind": "rename", "title": ""},
        {"id": "x", "kind": "add_cell", "cell_kind": "cobol"},
        [],
        "run",
        None,
    ],
)
def test_malformed_commands_name_the_field(body: Any) -> None:
    with pytest.raises(commands.Invalid) as caught:
        commands.parse(body)
    assert all(item["field"] for item in caught.value.errors)


def test_a_source_over_the_limit_is_too_large() -> None:
    with pytest.raises(commands.TooLarge):
        commands.parse({"id": "x", "kind": "add_cell", "source": "≤" * (commands.SOURCE_LIMIT // 3 + 1)})


def sources(notebook: Notebook) -> list[str]:
    return [notebook.cells[cell].source for cell in notebook.order]


@pytest.mark.parametrize(
    ("at", "parts"),
    [(0, ["", "one\ntwo"]), (3, ["one", "two"]), (4, ["one", "two"]), (5, ["one\nt", "wo"]), (7, ["one\ntwo", ""])],
)
def test_a_cell_is_split_in_one_frame_and_merged_back(notebook: Notebook, at: int, parts: list[str]) -> None:
    notebook, _ = ask(notebook, "edit_cell", cell_id="a", source="one\ntwo")
    version = notebook.cells["a"].version
    notebook, plan = ask(notebook, "split_cell", cell_id="a", base=version, at=at, into="new")
    assert len(plan.drafts) == 1
    assert notebook.order == ("a", "new", "t", "b", "c")
    assert sources(notebook)[:2] == parts
    assert notebook.cells["new"].kind == "python"
    joint = "\n" if at in (3, 4) else ""
    notebook, plan = ask(notebook, "merge_cells", cell_id="a", other="new", joint=joint)
    assert len(plan.drafts) == 1
    assert notebook.order == ("a", "t", "b", "c")
    assert sources(notebook)[0] == "one\ntwo"


def test_a_split_follows_the_text_it_was_meant_for(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "edit_cell", cell_id="a", source="one two")
    version = notebook.cells["a"].version
    notebook, _ = ask(notebook, "edit_cell", cell_id="a", base=version, at=0, insert="zero ")
    notebook, _ = ask(notebook, "split_cell", cell_id="a", base=version, at=4, into="new")
    assert sources(notebook)[:2] == ["zero one ", "two"]
    with pytest.raises(Refused, match="changed where"):
        ask(notebook, "split_cell", cell_id="a", base=version, at=6)
    with pytest.raises(Refused, match="already"):
        ask(notebook, "split_cell", cell_id="a", base=notebook.cells["a"].version, at=1, into="b")


def test_a_merge_is_undone_with_the_second_cell_as_it_was(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "run_cell", cell_id="b")
    notebook = started(notebook)
    run = notebook.runs[str(notebook.cells["b"].run_id)]
    output = draft("output", cell_id="b", run_id=run.id, text="x", stream="terminal")
    notebook = after(notebook, [output, end(run, "done", None, ms=3)])
    notebook, _ = ask(notebook, "merge_cells", cell_id="a", other="b")
    assert sources(notebook) == ["1\nls", "# hi", "2"]
    assert notebook.cells["a"].kind == "python"
    version = notebook.cells["a"].version
    notebook, _ = ask(notebook, "split_cell", cell_id="a", base=version, at=1, into="b")
    assert sources(notebook) == ["1", "ls", "# hi", "2"]
    assert (notebook.cells["b"].kind, notebook.cells["b"].ms, len(list(notebook.cells["b"].output))) == ("shell", 3, 1)
    assert notebook.deleted == ()


def test_merging_a_cell_that_runs_stops_it_and_refuses_what_makes_no_sense(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "run_cell", cell_id="b")
    notebook = started(notebook)
    run_id = notebook.cells["b"].run_id
    notebook, plan = ask(notebook, "merge_cells", cell_id="a", other="b")
    assert plan.stop == [run_id]
    with pytest.raises(Refused, match="itself"):
        ask(notebook, "merge_cells", cell_id="a", other="a")
    notebook, _ = ask(notebook, "edit_cell", cell_id="a", source="x" * commands.SOURCE_LIMIT)
    with pytest.raises(commands.TooLarge):
        ask(notebook, "merge_cells", cell_id="a", other="c")


def test_cells_are_collapsed_for_everybody(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "collapse", cell_id="a", source=True)
    notebook, _ = ask(notebook, "collapse", cell_id="a", output=True)
    assert (notebook.cells["a"].hide_source, notebook.cells["a"].hide_output) == (True, True)
    notebook, _ = ask(notebook, "collapse", cell_id="a", source=False)
    assert (notebook.cells["a"].hide_source, notebook.cells["a"].hide_output) == (False, True)


def test_run_all_goes_from_one_cell_to_another(notebook: Notebook) -> None:
    below, _ = ask(notebook, "run_all", since="b")
    assert states(below) == ["idle", "idle", "queued", "queued"]
    above, _ = ask(notebook, "run_all", until="b")
    assert states(above) == ["queued", "idle", "queued", "idle"]
    with pytest.raises(Refused, match="no cell to run"):
        ask(notebook, "run_all", since="b", until="a")


def test_restart_and_run_all_runs_the_cell_again_that_it_stops(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "run_cell", cell_id="a")
    notebook = started(notebook)
    old = notebook.cells["a"].run_id
    notebook, plan = ask(notebook, "restart_kernel", run_all=True)
    assert plan.restart
    assert plan.stop == [old]
    assert states(notebook) == ["queued", "idle", "queued", "queued"]
    assert next_run(notebook) is None  # the old one is still ending
    run = notebook.runs[str(old)]
    notebook = after(notebook, [end(run, "cancelled", "the kernel was restarted")])
    following = next_run(notebook)
    assert following is not None
    assert following.cell_id == "a"
