"""Turns in a real worker: real database, real sandboxes, the runbook; what they do is read back as a viewer would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.notebook import Notebook
from tests.engine.engine_run import Hand, worker

FENCE = "```"


def block(word: str, *lines: str) -> str:
    return "\n".join([f"{FENCE}{word}", *lines, FENCE])


def items(notebook: Notebook, cell: str, t: str) -> list[dict[str, Any]]:
    return [item for item in notebook.cells[cell].story.items if item["t"] == t]


async def free(hand: Hand, *cells: tuple[str, str]) -> tuple[str, list[str]]:
    """A notebook in which agents may do anything unasked."""
    notebook_id, made = await hand.create(*cells)
    await hand.ask(notebook_id, "set_policy", policy="all")
    return notebook_id, made


@pytest.mark.trio
async def test_a_turn_runs_its_steps_and_ends(database: str, tmp_path: Path) -> None:
    source = "\n\n".join(["First look.", block("sh", "echo hello; echo world"), block("deliver", "It is **done**.")])
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await free(hand, ("agent", source))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        assert await hand.ended(notebook_id, cell) == "done"
        notebook = await hand.notebook(notebook_id)
        story = notebook.cells[cell].story
        assert [item["t"] for item in story.items] == ["request", "thought", "tool", "tool", "delivered", "done"]
        [shell, _] = items(notebook, cell, "tool")
        assert (shell["status"], shell["text"]) == ("done", "hello\nworld\n")
        assert items(notebook, cell, "delivered")[0]["text"] == "It is **done**."
        frames = await hand.frames(notebook_id)
        runs = [frame for frame in frames if frame.kind == "run" and frame.body["event"] == "ended"]
        assert len(runs) == 2, "one end of the call's run, one of the turn"
