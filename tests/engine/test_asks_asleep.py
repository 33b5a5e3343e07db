"""A parked ask needs no engine: the notebook sleeps, and its answer, or the end of its time, wakes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from engine import session
from engine.journal import Journal
from engine.notebook import Notebook
from engine.store import asks
from tests.engine.engine_run import Hand, worker

MAKE = "Make it.\n\n```write made.txt\nmade\n```\n"


async def parked(hand: Hand) -> tuple[str, str, str]:
    """A notebook that sleeps over a parked ask: its id, its cell, the ask."""
    notebook_id, [cell] = await hand.create(("agent", MAKE))
    await hand.ask(notebook_id, "run_cell", cell_id=cell)
    notebook = await hand.until(notebook_id, lambda n: n.cells[cell].story.asks)
    ask_id = notebook.cells[cell].story.asks[0]["ask"]
    await store(hand, asks.park, ask_id)
    await hand.until(notebook_id, lambda n: n.runs and all(run.parked for run in n.runs.values()))
    await asleep(hand, notebook_id)
    return notebook_id, cell, ask_id


async def asleep(hand: Hand, notebook_id: str) -> None:
    def no_owner(rows: Any) -> bool:
        return rows[0]["owner"] is None

    with trio.fail_after(20):
        while not no_owner(await hand.sql("SELECT owner FROM notebook WHERE id = $1", notebook_id)):
            await trio.sleep(0.01)


async def store(hand: Hand, function: Any, *args: Any) -> Any:
    return await hand.journal.query(function, *args)


def made(hand: Hand, notebook: Notebook) -> bool:
    return (hand.folder / "workspaces" / notebook.id / "made.txt").exists()


@pytest.mark.trio
async def test_an_answer_wakes_the_notebook_and_the_turn_goes_on(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "LINGER_SECONDS", 0.1)
    async with worker(database, tmp_path) as hand:
        notebook_id, cell, ask_id = await parked(hand)
        await store(hand, asks.decide, ask_id, "approve", "once", None, "owner")
        assert await hand.ended(notebook_id, cell) == "done"
        assert made(hand, await hand.notebook(notebook_id))
        kinds = [frame.kind for frame in await hand.frames(notebook_id)]
        assert (kinds.count("ask"), kinds.count("verdict")) == (2, 1)  # asked, parked; decided


@pytest.mark.trio
async def test_the_end_of_its_time_wakes_the_notebook_and_is_a_no(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "LINGER_SECONDS", 0.1)
    async with worker(database, tmp_path, poll=0.1) as hand:
        notebook_id, cell, ask_id = await parked(hand)
        await hand.sql("UPDATE ask SET due_at = now() WHERE id = $1", ask_id)
        assert await hand.ended(notebook_id, cell) == "error"
        notebook = await hand.notebook(notebook_id)
        assert not made(hand, notebook)
        assert "nobody answered within 24 h" in (notebook.cells[cell].reason or "")


@pytest.mark.trio
async def test_a_stop_that_came_while_no_engine_ran_goes_before_what_was_approved(
    database: str, tmp_path: Path
) -> None:
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await hand.create(("agent", MAKE))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        await hand.until(notebook_id, lambda n: n.cells[cell].story.asks)
    journal = Journal(database)
    await journal.start(lambda _: None)
    absent = Hand(journal, tmp_path)
    await absent.ask(notebook_id, "stop", cell_id=cell)
    notebook = await absent.notebook(notebook_id)
    await store(absent, asks.decide, notebook.cells[cell].story.asks[0]["ask"], "approve", "once", None, "owner")
    await journal.stop()
    async with worker(database, tmp_path) as hand:
        assert await hand.ended(notebook_id, cell) == "cancelled"
        assert not made(hand, await hand.notebook(notebook_id))
