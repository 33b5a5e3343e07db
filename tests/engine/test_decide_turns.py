"""What commands mean for turns of agents: their lane, their batch, what is said to them. Plain values only."""

from __future__ import annotations

from typing import Any

import pytest

from engine.decide import Refused, after_end, calls_of, end, first_frames, next_run
from engine.frames import draft
from engine.notebook import Notebook, Run
from engine.snapshot import dump, load
from tests.engine.frames_made import after
from tests.engine.test_decide import ask, states


@pytest.fixture
def notebook() -> Notebook:
    cells = [("p", "python", "1"), ("g", "agent", "do it"), ("s", "shell", "ls"), ("h", "agent", "more")]
    return after(Notebook("n"), first_frames("Title", cells, "owner"))


def begin(notebook: Notebook, run: Run | None, **fields: Any) -> Notebook:
    assert run is not None
    return after(notebook, [draft("run", event="started", run_id=run.id, cell_id=run.cell_id, **fields)])


def over(notebook: Notebook, cell: str, status: str, **fields: Any) -> Notebook:
    run = notebook.runs[str(notebook.cells[cell].run_id)]
    return after(notebook, [end(run, status, None, **fields), *after_end(notebook, run, status)])


def called(notebook: Notebook, cell: str, name: str) -> Notebook:
    """The turn of `cell` wants to run code."""
    run_id = notebook.cells[cell].run_id
    return after(
        notebook, [draft("run", event="queued", run_id=name, cell_id=cell, parent=run_id, kind="shell", by="agent")]
    )


def test_one_turn_runs_at_a_time_while_people_run_cells(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "run_cell", cell_id="g")
    notebook, _ = ask(notebook, "run_cell", cell_id="h")
    notebook = begin(notebook, next_run(notebook, turns=True))
    assert states(notebook) == ["idle", "running", "idle", "queued"]
    assert next_run(notebook, turns=True) is None
    notebook, _ = ask(notebook, "run_cell", cell_id="p")
    notebook = begin(notebook, next_run(notebook))
    assert states(notebook) == ["running", "running", "idle", "queued"]
    notebook = over(notebook, "g", "done")
    notebook = begin(notebook, next_run(notebook, turns=True))
    assert states(notebook) == ["running", "done", "idle", "running"]


def test_run_all_waits_for_an_agent_cell_but_a_person_does_not(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "run_all")
    assert states(notebook) == ["queued"] * 4
    assert next_run(notebook, turns=True) is None, "the cell above it has not ended"
    notebook = begin(notebook, next_run(notebook))
    notebook = over(notebook, "p", "done")
    assert next_run(notebook) is None, "the agent cell above it has not ended"
    notebook = begin(notebook, next_run(notebook, turns=True))
    assert next_run(notebook) is None
    notebook, _ = ask(notebook, "run_cell", cell_id="p")
    assert (run := next_run(notebook)) is not None
    assert run.cell_id == "p"
    notebook = over(notebook, "g", "error")
    assert states(notebook) == ["queued", "error", "cancelled", "cancelled"]
    assert notebook.cells["s"].reason == "a cell before it failed"


def test_a_call_of_a_turn_goes_before_what_is_queued_and_behind_what_runs(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "run_cell", cell_id="g")
    notebook = begin(notebook, next_run(notebook, turns=True))
    notebook, _ = ask(notebook, "run_cell", cell_id="p")
    notebook = begin(notebook, next_run(notebook))
    notebook, _ = ask(notebook, "run_cell", cell_id="s")
    notebook = called(notebook, "g", "call")
    assert next_run(notebook) is None
    notebook = over(notebook, "p", "done")
    assert (run := next_run(notebook)) is not None
    assert run.id == "call"


def test_stopping_a_turn_stops_its_calls_and_no_cell_of_a_person(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "run_cell", cell_id="g")
    notebook = begin(notebook, next_run(notebook, turns=True))
    notebook, _ = ask(notebook, "run_cell", cell_id="p")
    notebook = begin(called(notebook, "g", "call"), Run("call", "g", "queued"))
    notebook, plan = ask(notebook, "stop", run_id=notebook.cells["g"].run_id)
    assert set(plan.stop) == {"call", notebook.cells["g"].run_id}
    assert states(notebook) == ["queued", "cancelling", "idle", "idle"]
    assert [run.state for run in calls_of(notebook, str(notebook.cells["g"].run_id))] == ["cancelling"]


def test_stopping_a_cell_leaves_a_waiting_call_of_a_turn(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "run_cell", cell_id="g")
    notebook = begin(notebook, next_run(notebook, turns=True))
    notebook, _ = ask(notebook, "run_cell", cell_id="p")
    notebook = begin(notebook, next_run(notebook))
    notebook = called(notebook, "g", "call")
    notebook, plan = ask(notebook, "stop", cell_id="p")
    assert len(plan.stop) == 1
    assert notebook.runs["call"].state == "queued"
    assert notebook.cells["g"].state == "running"


def test_a_restarted_kernel_leaves_turns_alone(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "run_cell", cell_id="g")
    notebook = begin(notebook, next_run(notebook, turns=True))
    notebook = begin(called(notebook, "g", "call"), Run("call", "g", "queued"))
    notebook, plan = ask(notebook, "restart_kernel")
    assert plan.stop == ["call"]
    assert notebook.cells["g"].state == "running"


def test_what_is_said_to_a_turn_waits_for_it_and_can_be_taken_back(notebook: Notebook) -> None:
    with pytest.raises(Refused, match="nothing was asked"):
        ask(notebook, "follow_up", cell_id="g", text="hello")
    with pytest.raises(Refused, match="no agent's"):
        ask(notebook, "follow_up", cell_id="p", text="hello")
    notebook, _ = ask(notebook, "run_cell", cell_id="g")
    notebook, _ = ask(notebook, "follow_up", cell_id="g", id="m1", text="before it began")
    notebook = begin(notebook, next_run(notebook, turns=True))
    notebook, _ = ask(notebook, "follow_up", cell_id="g", id="m2", text="while it ran")
    assert [item["text"] for item in notebook.cells["g"].story.messages] == ["before it began", "while it ran"]
    notebook, _ = ask(notebook, "withdraw", message="m1")
    assert [item["message"] for item in notebook.cells["g"].story.messages] == ["m2"]
    with pytest.raises(Refused, match="taken that message already"):
        ask(notebook, "withdraw", message="m1")
    assert load(dump(notebook)) == notebook


def test_what_is_said_after_the_end_continues_the_conversation(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "run_cell", cell_id="g", run_id="one")
    notebook = begin(notebook, next_run(notebook, turns=True))
    notebook = over(notebook, "g", "done", waits_for="answer")
    assert notebook.waiting == 1, "a question to a person is told where people look"
    notebook, _ = ask(notebook, "answer_turn", cell_id="g", text="yes", run_id="two")
    assert notebook.waiting == 0
    assert notebook.runs["two"].follows == "one"
    notebook = begin(notebook, next_run(notebook, turns=True))
    assert [item["text"] for item in notebook.cells["g"].story.items] == ["do it", "yes"]


def test_go_on_needs_a_step_to_go_on_at(notebook: Notebook) -> None:
    notebook, _ = ask(notebook, "run_cell", cell_id="g", run_id="one")
    notebook = begin(notebook, next_run(notebook, turns=True))
    with pytest.raises(Refused, match="runs or is queued"):
        ask(notebook, "go_on", cell_id="g")
    notebook = over(notebook, "g", "error", step=3)
    notebook, _ = ask(notebook, "go_on", cell_id="g", run_id="two")
    assert (notebook.runs["two"].follows, notebook.runs["two"].step) == ("one", 3)
    notebook = begin(notebook, next_run(notebook, turns=True))
    notebook = over(notebook, "g", "done")
    with pytest.raises(Refused, match="did not end at a step"):
        ask(notebook, "go_on", cell_id="g")


def test_policy_rules_and_checks(notebook: Notebook) -> None:
    assert notebook.policy == "ask"
    notebook, _ = ask(notebook, "set_policy", policy="edits")
    assert notebook.policy == "edits"
    notebook = after(notebook, [draft("session", event="rule", rule={"id": "r", "title": "ls"})])
    notebook, _ = ask(notebook, "remove_rule", rule="r")
    assert notebook.rules == {}
    with pytest.raises(Refused, match="gone already"):
        ask(notebook, "remove_rule", rule="r")
    notebook, _ = ask(notebook, "check", item="tests pass")
    notebook, _ = ask(notebook, "check", item="docs", done=False)
    assert notebook.checks == {"tests pass": True, "docs": False}
