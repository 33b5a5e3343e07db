"""What a notebook costs on disk, and how a long one opens: splices stay small, snapshots save reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.scale import SOAK
from engine.frames import draft
from engine.journal import Step
from engine.snapshot import dump
from engine.store import reading
from tests.engine.engine_run import worker


@pytest.mark.trio
async def test_five_minutes_of_typing_in_a_large_cell_store_less_than_a_megabyte(database: str, tmp_path: Path) -> None:
    """A page sends what was typed twice a second or so: 700 splices of some characters each. The short form types for
    one minute, and holds it to a fifth."""
    splices = 700 if SOAK else 140
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await hand.create(("python", "x = 1\n" * 17_000))
        version = (await hand.notebook(notebook_id)).cells[cell].version
        before = await size(hand)
        for number in range(splices):
            at = 50_000 + 5 * number
            await hand.ask(notebook_id, "edit_cell", cell_id=cell, base=version, at=at, insert="typed")
            notebook = await hand.until(notebook_id, lambda n, v=version: n.cells[cell].version > v)
            version = notebook.cells[cell].version
        assert "typed" * splices in notebook.cells[cell].source
        assert await size(hand) - before < 1_000_000 * splices / 700


async def size(hand: object) -> int:
    """Bytes in all tables and indexes that grow with a notebook."""
    total = 0
    for table in ("frame", "command", "snapshot"):
        await hand.sql(f"VACUUM {table}")  # type: ignore[attr-defined]
        [row] = await hand.sql(f"SELECT pg_total_relation_size('{table}') AS size")  # type: ignore[attr-defined]
        total += row["size"]
    return total


@pytest.mark.trio
async def test_a_snapshot_and_its_tail_are_the_whole_journal(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await hand.create(("python", "1"))
        claim = await hand.journal.claim(notebook_id, "test")
        assert claim is not None
        head = claim.head
        for number in range(40):
            if number == 25:
                await hand.journal.save_snapshot(await hand.journal.load(notebook_id))
            texts = [draft("comment", text=f"{number}"), draft("cell", event="edited", cell_id=cell, at=0, insert="x")]
            await hand.journal.commit(Step(notebook_id, claim.epoch, head, texts))
            head += len(texts)
        [row] = await hand.sql("SELECT seq FROM snapshot")
        assert row["seq"] == 52
        loaded = await hand.journal.load(notebook_id)
        assert dump(loaded) == dump(await hand.notebook(notebook_id))
        older = await hand.journal._bridge.run(reading.load_notebook, hand.journal._pool, notebook_id)
        await hand.journal.save_snapshot(loaded)
        await hand.journal.save_snapshot(older)
        [row] = await hand.sql("SELECT seq FROM snapshot")
        assert row["seq"] == loaded.seq


@pytest.mark.trio
async def test_a_snapshot_of_another_format_is_passed_over(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await hand.create(("python", "1"))
        await hand.sql(
            "INSERT INTO snapshot (notebook_id, seq, version, body) VALUES ($1, 2, 999, 'no such thing')", notebook_id
        )
        assert (await hand.journal.load(notebook_id)).cells[cell].source == "1"
