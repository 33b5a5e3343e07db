"""A worker as a process: what it takes up when it comes, what it gives back when it leaves, and what it gives up."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from engine.journal import Journal
from engine.sandbox.client import alive
from engine.supervisor import too_much
from tests.engine.engine_run import Hand, end_sandboxes, text_of, worker

SLOW = """
import time
open("starts", "a").write("start\\n")
for n in range(150):
    print("line", n)
    time.sleep(0.02)
"""
LINES = [f"line {n}" for n in range(150)]


class Workers:
    """Starts workers on one database and data folder, and ends what is left of them."""

    def __init__(self, database: str, folder: Path) -> None:
        self._environment = {
            **os.environ,
            "NIGHTBOOK_DATABASE_URL": database,
            "NIGHTBOOK_DATA": str(folder),
            "NIGHTBOOK_POLL_SECONDS": "0.5",
        }
        self.processes: list[trio.Process] = []

    async def start(self) -> trio.Process:
        """A worker that is ready."""
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "app.cli", "worker"],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.processes.append(process)
        assert process.stdout is not None
        with trio.fail_after(30):
            said = b""
            while b"ready" not in said:
                chunk = await process.stdout.receive_some(1000)
                assert chunk, "the worker ended before it was ready"
                said += chunk
        return process

    async def kill(self, process: trio.Process) -> None:
        process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def house(database: str, folder: Path) -> AsyncIterator[tuple[Hand, Workers]]:
    journal = Journal(database)
    await journal.start(lambda _: None)
    workers = Workers(database, folder)
    try:
        yield Hand(journal, folder), workers
    finally:
        with trio.CancelScope(shield=True):
            for process in workers.processes:
                if process.returncode is None:
                    process.send_signal(signal.SIGCONT)
                    await workers.kill(process)
            await journal.stop()
            await end_sandboxes(folder)


async def check(hand: Hand, notebook_id: str, cell: str) -> None:
    """The run ended well: every line once, one start, seq without gap, one end."""
    assert await hand.ended(notebook_id, cell, 30) == "done"
    assert text_of(await hand.notebook(notebook_id), cell).splitlines() == LINES
    assert (hand.folder / "workspaces" / notebook_id / "starts").read_text() == "start\n"
    frames = await hand.frames(notebook_id)
    assert [frame.seq for frame in frames] == list(range(1, len(frames) + 1))
    assert sum(frame.kind == "run" and frame.body["event"] == "ended" for frame in frames) == 1


@pytest.mark.trio
async def test_commands_asked_while_no_worker_lives_are_taken_by_the_next(database: str, tmp_path: Path) -> None:
    async with house(database, tmp_path) as (hand, workers):
        notebook_id, [cell] = await hand.create(("python", "print('hello')"))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        await workers.start()
        assert await hand.ended(notebook_id, cell) == "done"


@pytest.mark.trio
async def test_a_worker_that_leaves_in_order_releases_what_it_owns(database: str, tmp_path: Path) -> None:
    async with house(database, tmp_path) as (hand, workers):
        process = await workers.start()
        notebook_id, [cell] = await hand.create(("python", SLOW))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        await hand.until(notebook_id, lambda n: "line 20\n" in text_of(n, cell))
        process.terminate()
        with trio.fail_after(15):
            assert await process.wait() == 0
        [row] = await hand.sql("SELECT owner, awake FROM notebook")
        assert (row["owner"], row["awake"]) == (None, True)
        assert await hand.sql("SELECT * FROM worker WHERE until > now()") == []
        await workers.start()
        await check(hand, notebook_id, cell)


@pytest.mark.trio
async def test_a_worker_ends_what_was_lost_with_its_machine_before_it_came(database: str, tmp_path: Path) -> None:
    """The machine had no worker for longer than others wait; its programs went on, for nobody."""
    endless = "import time\nprint('on', flush=True)\nwhile True: time.sleep(0.1)"
    async with worker(database, tmp_path / "one", keep=True) as hand:
        notebook_id, [cell] = await hand.create(("python", endless))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        await hand.until(notebook_id, lambda n: "on" in text_of(n, cell))
    left = tmp_path / "one" / "sandboxes" / notebook_id
    async with worker(database, tmp_path / "two") as hand:
        await hand.sql("UPDATE worker SET until = now() - interval '1 h' WHERE until < now()")
        assert await hand.ended(notebook_id, cell) == "error"
        assert "lost with machine" in ((await hand.notebook(notebook_id)).cells[cell].reason or "")
        assert alive(left), "nobody was there to end it"
        async with worker(database, tmp_path / "one"):
            with trio.fail_after(60):
                while alive(left):
                    await trio.sleep(0.05)


def test_the_oldest_idle_kernels_go_first_and_only_as_many_as_needed() -> None:
    kernels = [(5.0, 30, "new"), (1.0, 30, "old"), (None, 90, "busy"), (3.0, 30, "middle")]
    assert too_much(180, 200, kernels) == []
    assert too_much(180, 150, kernels) == ["old"]
    assert too_much(180, 100, kernels) == ["old", "middle", "new"]


@pytest.mark.trio
async def test_a_turn_rests_between_two_rounds_and_goes_on_in_the_next_process(database: str, tmp_path: Path) -> None:
    """Nothing of it is done again: no reply is asked for a second time."""
    steps = "\n\n".join(f"Step {n}\n\n```wait 0.3\n```" for n in range(12))
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await hand.create(("agent", steps))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        await hand.until(notebook_id, lambda n: n.cells[cell].story.round > 1, 60)
        assert hand.supervisor is not None
        hand.supervisor.leave()
        with trio.fail_after(60):
            while not hand.supervisor.settled():
                await trio.sleep(0.02)
        assert (await hand.notebook(notebook_id)).cells[cell].state == "running"
        asked = await hand.ask(notebook_id, "comment", text="for the next one")
        [row] = await hand.sql("SELECT consumed FROM command WHERE id = $1", asked)
        assert not row["consumed"]
    async with worker(database, tmp_path) as hand:
        assert await hand.ended(notebook_id, cell, 60) == "done"
        events = [frame.body["event"] for frame in await hand.frames(notebook_id) if frame.kind == "run"]
        assert events.count("ended") == 1
