"""Files in a real worker: what cells, turns and uploads make is kept, and is there again where the folder is not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from engine import keeping
from engine.files import is_live
from engine.notebook import Notebook
from engine.store import files as store
from tests.engine.engine_run import Hand, end_sandboxes, text_of, worker

FENCE = "```"


def versions(notebook: Notebook) -> dict[str, int]:
    return {path: file["version"] for path, file in notebook.files.items() if is_live(file)}


async def upload(hand: Hand, notebook_id: str, path: str, data: bytes) -> str:
    """As the web half does it: the bytes first, then a command."""
    [name] = await hand.journal.keep_files(notebook_id, [data])
    return await hand.ask(notebook_id, "put_file", path=path, sha256=name)


@pytest.mark.trio
async def test_a_cell_s_files_are_kept_at_its_end_and_fill_the_folder_of_another_machine(
    database: str, tmp_path: Path
) -> None:
    async with worker(database, tmp_path / "one") as hand:
        notebook_id, [first, second] = await hand.create(
            ("shell", "echo 1 > a; mkdir d; echo b > d/b"), ("shell", "cat a d/b")
        )
        await hand.ask(notebook_id, "run_cell", cell_id=first)
        notebook = await hand.until(notebook_id, lambda n: len(versions(n)) == 2)
        assert versions(notebook) == {"a": 1, "d/b": 1}
        [row] = await hand.sql("SELECT run_id, by FROM file WHERE path = 'a'")
        assert (row["run_id"], row["by"]) == (notebook.cells[first].run_id, "owner")
        machine = hand.supervisor
    async with worker(database, tmp_path / "two") as hand:
        assert machine is not None
        await hand.sql("UPDATE worker SET until = now() - interval '1 h' WHERE id = $1", machine.worker_id)
        await hand.ask(notebook_id, "run_cell", cell_id=second)
        assert await hand.ended(notebook_id, second) == "done"
        notebook = await hand.notebook(notebook_id)
        assert text_of(notebook, second).split() == ["1", "b"]
        assert versions(notebook) == {"a": 1, "d/b": 1}


@pytest.mark.trio
async def test_a_cell_that_runs_for_long_has_its_files_kept_meanwhile_and_edits_too_though_it_prints_steadily(
    database: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(keeping, "KEEP_SECONDS", 0.3)
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await hand.create(
            ("shell", "until [ -e go ]; do echo line | tee -a log; sleep 0.03; done")
        )
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        notebook = await hand.until(notebook_id, lambda n: n.files.get("log", {}).get("version", 0) >= 2)
        assert notebook.cells[cell].state == "running"
        await hand.ask(notebook_id, "rename", title="Saved while it prints")
        notebook = await hand.until(notebook_id, lambda n: n.title == "Saved while it prints")
        assert notebook.cells[cell].state == "running"
        await upload(hand, notebook_id, "go", b"")
        assert await hand.ended(notebook_id, cell) == "done"


@pytest.mark.trio
async def test_an_upload_becomes_a_version_and_a_file_or_is_refused(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await hand.create(("shell", "cat data/in.csv"))
        asked = await upload(hand, notebook_id, "data//in.csv", b"1,2\n")
        await hand.until(notebook_id, lambda n: versions(n) == {"data/in.csv": 1})
        [frame] = [frame for frame in await hand.frames(notebook_id) if frame.kind == "file"]
        assert (frame.command_id, frame.by, frame.body["mime"]) == (asked, "owner", "text/csv")
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        assert await hand.ended(notebook_id, cell) == "done"
        again = await upload(hand, notebook_id, "data/in.csv", b"1,2\n")
        await hand.until(notebook_id, lambda n: n.files["data/in.csv"]["at"] != frame.at.isoformat())
        assert versions(await hand.notebook(notebook_id)) == {"data/in.csv": 1}
        outside = await upload(hand, notebook_id, "../out", b"x")
        folder = await upload(hand, notebook_id, "data", b"x")
        missing = await hand.ask(notebook_id, "put_file", path="x", sha256="0" * 64)

        async def refused() -> dict[str, str]:
            frames = await hand.frames(notebook_id)
            return {frame.command_id or "": frame.body["reason"] for frame in frames if frame.kind == "refused"}

        seen = (await hand.notebook(notebook_id)).seq
        while len(reasons := await refused()) < 3:
            seen = (await hand.until(notebook_id, lambda n, seen=seen: n.seq > seen)).seq
        assert "cannot go up" in reasons[outside]
        assert "data is a folder" in reasons[folder]
        assert "upload them again" in reasons[missing]
        assert again not in reasons
        assert not (tmp_path / "workspaces/out").exists()
        assert not await hand.sql("SELECT FROM command WHERE NOT consumed")


@pytest.mark.trio
async def test_a_turn_writes_edits_and_reads_and_both_versions_are_there_when_the_folder_is_not(
    database: str, tmp_path: Path
) -> None:
    book = "\n\n".join(
        (
            f"{FENCE}write notes/a.txt\none\ntwo\n{FENCE}",
            f"{FENCE}edit notes/a.txt\n<<<<<<<\ntwo\n=======\nthree\n>>>>>>>\n{FENCE}",
            f"{FENCE}sh\necho from a program > made.txt\n{FENCE}",
            f"{FENCE}read notes/a.txt\n{FENCE}",
        )
    )
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell, after] = await hand.create(("agent", book), ("shell", "cat notes/a.txt made.txt"))
        await hand.ask(notebook_id, "set_policy", policy="all")
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        assert await hand.ended(notebook_id, cell) == "done"
        notebook = await hand.notebook(notebook_id)
        tools = [item for item in notebook.cells[cell].story.items if item["t"] == "tool"]
        assert [item["status"] for item in tools] == ["done"] * 4
        assert tools[3]["text"].startswith("one\nthree\n")
        assert versions(notebook) == {"notes/a.txt": 2, "made.txt": 1}
        assert notebook.files["notes/a.txt"]["call"] == tools[1]["call"]
        assert notebook.files["made.txt"]["call"] == tools[2]["call"]
        frames = await hand.frames(notebook_id)
        settled = {frame.body["call"]: frame.seq for frame in frames if frame.body.get("event") == "result"}
        for frame in frames:
            if frame.kind == "file":
                assert frame.seq < settled[frame.body["call"]]  # committed before the call is settled
        one = await hand.journal.query(store.version, notebook_id, "notes/a.txt", 1)
        kept = await hand.journal.file_contents(notebook_id, [one.sha256])
        assert kept[one.sha256] == b"one\ntwo\n"
    await end_sandboxes(tmp_path)
    shutil.rmtree(tmp_path / "workspaces")
    async with worker(database, tmp_path) as hand:
        await hand.ask(notebook_id, "run_cell", cell_id=after)
        assert await hand.ended(notebook_id, after) == "done"
        assert text_of(await hand.notebook(notebook_id), after).splitlines() == ["one", "three", "from a program"]


@pytest.mark.trio
async def test_a_result_of_a_hundred_megabytes_stays_small_and_says_what_it_leaves_out(
    database: str, tmp_path: Path
) -> None:
    book = f"{FENCE}sh\nhead -c 100000000 /dev/zero | tr '\\0' x\n{FENCE}"
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await hand.create(("agent", book))
        await hand.ask(notebook_id, "set_policy", policy="all")
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        assert await hand.ended(notebook_id, cell, 60) == "done"
        [tool] = [item for item in (await hand.notebook(notebook_id)).cells[cell].story.items if item["t"] == "tool"]
        assert len(tool["text"]) < 60_000
        assert tool["left_out"] > 99_000_000
        [row] = await hand.sql("SELECT sum(octet_length(body::text)) AS size FROM frame")
        assert row["size"] < 15_000_000
