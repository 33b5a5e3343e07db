"""A worker with real sandboxes and a real database: runs, stops, questions, deaths, and taking up what is there."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import trio

from app.sandboxes import _shim as shim_of
from engine.sandbox.client import Sandbox, SandboxAlive, SandboxError, alive
from engine.store import asking, reading
from tests.engine.engine_run import text_of, worker

LINES = """
import time
open("starts", "a").write("start\\n")
for n in range({count}):
    print("line", n)
    time.sleep({pause})
open("ends", "a").write("end\\n")
"""


@pytest.mark.trio
async def test_a_python_cell_runs_and_shows_every_line_once(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await hand.create(("python", LINES.format(count=50, pause=0.005) + "\n6 * 7"))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        assert await hand.ended(notebook_id, cell) == "done"
        notebook = await hand.notebook(notebook_id)
        assert text_of(notebook, cell).splitlines() == [f"line {n}" for n in range(50)]
        assert [item["data"]["text/plain"] for item in notebook.cells[cell].output if "data" in item] == ["42"]
        kinds = [
            (frame.kind, frame.body.get("event")) for frame in await hand.frames(notebook_id) if frame.kind == "run"
        ]
        assert kinds == [("run", "queued"), ("run", "started"), ("run", "ended")]


@pytest.mark.trio
async def test_all_that_a_run_printed_can_be_read_though_a_cell_shows_its_ends(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await hand.create(("python", "for n in range(60000): print('line', n)"))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        assert await hand.ended(notebook_id, cell) == "done"
        notebook = await hand.notebook(notebook_id)
        assert any(item.get("left_out") for item in notebook.cells[cell].output)

        async def read() -> str:
            pieces = reading.output_of_run(hand.journal._pool, notebook_id, str(notebook.cells[cell].run_id))  # type: ignore[arg-type]
            return "".join([piece async for piece in pieces])

        whole = await hand.journal._bridge.run(read)
        assert whole.splitlines() == [f"line {n}" for n in range(60000)]


@pytest.mark.trio
async def test_variables_stay_between_cells_and_an_error_is_told(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path) as hand:
        notebook_id, [one, two, three] = await hand.create(
            ("python", "x = 20"), ("python", "print(x + 1)\n1 / 0"), ("python", "print(x)")
        )
        await hand.ask(notebook_id, "run_all")
        assert await hand.ended(notebook_id, three) == "cancelled"
        notebook = await hand.notebook(notebook_id)
        assert [notebook.cells[cell].state for cell in (one, two, three)] == ["done", "error", "cancelled"]
        assert "21\n" in text_of(notebook, two)
        assert "ZeroDivisionError" in text_of(notebook, two)
        assert notebook.cells[three].reason == "a cell before it failed"


@pytest.mark.trio
async def test_a_shell_cell_has_a_terminal_and_takes_lines(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await hand.create(("shell", "stty size; read name; echo hello $name; exit 3"))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        notebook = await hand.until(notebook_id, lambda n: "40 100" in text_of(n, cell))
        await hand.ask(notebook_id, "input", run_id=notebook.cells[cell].run_id, text="ada")
        assert await hand.ended(notebook_id, cell) == "error"
        notebook = await hand.notebook(notebook_id)
        assert "hello ada" in text_of(notebook, cell)
        assert "3" in (notebook.cells[cell].reason or "")


@pytest.mark.trio
async def test_a_question_waits_and_a_password_is_nowhere(database: str, tmp_path: Path) -> None:
    code = 'from getpass import getpass\nname = input("name? ")\nsecret = getpass("pass? ")\nprint(name, len(secret))'
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await hand.create(("python", code))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        notebook = await hand.until(notebook_id, lambda n: n.cells[cell].input)
        assert notebook.state == "waiting"
        run_id, asked = notebook.cells[cell].run_id, notebook.cells[cell].input
        assert asked is not None
        await hand.ask(notebook_id, "input", run_id=run_id, input=asked.id, text="ada")
        notebook = await hand.until(notebook_id, lambda n: n.cells[cell].input and n.cells[cell].input.password)
        second = notebook.cells[cell].input
        assert second is not None
        await hand.ask(notebook_id, "input", run_id=run_id, input=second.id, text="hunter2!")
        assert await hand.ended(notebook_id, cell) == "done"
        assert "ada 8" in text_of(await hand.notebook(notebook_id), cell)
        for table in ("frame", "command", "snapshot"):
            assert "hunter2!" not in str(await hand.sql(f"SELECT * FROM {table}"))
        for path in (tmp_path / "sandboxes").rglob("*"):
            if path.is_file():
                assert b"hunter2!" not in path.read_bytes(), path


@pytest.mark.trio
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("python", "import time; print('on', flush=True); time.sleep(600)"),
        ("python", "print('on', flush=True)\nwhile True: pass"),
        ("python", "import asyncio; print('on', flush=True); await asyncio.sleep(600)"),
        ("python", "print('on', flush=True); input('? ')"),
        ("python", "import subprocess; print('on', flush=True); subprocess.run(['sleep', '600'])"),
        ("shell", "echo on; sleep 600 & wait"),
        ("shell", "trap '' INT TERM; echo on; while true; do sleep 1; done"),
    ],
)
async def test_stop_is_true_within_two_seconds(database: str, tmp_path: Path, kind: str, code: str) -> None:
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell, queued] = await hand.create((kind, code), ("python", "open('ran', 'w')"))
        await hand.ask(notebook_id, "run_all")
        await hand.until(notebook_id, lambda n: "on" in text_of(n, cell))
        await hand.ask(notebook_id, "stop", cell_id=cell)
        with trio.fail_after(10):  # 2 s, and a busy machine
            assert await hand.ended(notebook_id, cell) == "cancelled"
        assert await hand.ended(notebook_id, queued) == "cancelled"
        assert not (tmp_path / "workspaces" / notebook_id / "ran").exists()


@pytest.mark.trio
async def test_a_kernel_killed_by_a_signal_is_told_and_the_next_run_works(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell, after] = await hand.create(
            ("python", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), ("python", "print('alive')")
        )
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        assert await hand.ended(notebook_id, cell) == "error"
        assert "signal 9" in ((await hand.notebook(notebook_id)).cells[cell].reason or "")
        await hand.ask(notebook_id, "run_cell", cell_id=after)
        assert await hand.ended(notebook_id, after) == "done"
        assert "alive" in text_of(await hand.notebook(notebook_id), after)


@pytest.mark.trio
async def test_restart_forgets_variables_and_stops_what_runs(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path) as hand:
        notebook_id, [one, slow, look] = await hand.create(
            ("python", "x = 1"),
            ("python", "print('on', flush=True)\nimport time; time.sleep(600)"),
            ("python", "print('x' in globals())"),
        )
        await hand.ask(notebook_id, "run_cell", cell_id=one)
        assert await hand.ended(notebook_id, one) == "done"
        await hand.ask(notebook_id, "run_cell", cell_id=slow)
        await hand.until(notebook_id, lambda n: "on" in text_of(n, slow))
        await hand.ask(notebook_id, "restart_kernel")
        assert await hand.ended(notebook_id, slow) == "cancelled"
        await hand.ask(notebook_id, "run_cell", cell_id=look)
        assert await hand.ended(notebook_id, look) == "done"
        assert "False" in text_of(await hand.notebook(notebook_id), look)


@pytest.mark.trio
async def test_a_worker_takes_up_a_run_that_went_on_without_one(database: str, tmp_path: Path) -> None:
    """Invariant 8 across an absence: every line once, one start, one end."""
    async with worker(database, tmp_path, keep=True) as hand:
        notebook_id, [cell] = await hand.create(("python", LINES.format(count=100, pause=0.02)))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        await hand.until(notebook_id, lambda n: "line 20\n" in text_of(n, cell))
    workspace = tmp_path / "workspaces" / notebook_id
    with trio.fail_after(20):
        while not (workspace / "ends").exists():  # the program ends while no worker is there
            await trio.sleep(0.02)
    async with worker(database, tmp_path) as hand:
        assert await hand.ended(notebook_id, cell) == "done"
        assert text_of(await hand.notebook(notebook_id), cell).splitlines() == [f"line {n}" for n in range(100)]
        assert (workspace / "starts").read_text() == "start\n"
        frames = await hand.frames(notebook_id)
        assert [frame.seq for frame in frames] == list(range(1, len(frames) + 1))
        assert sum(frame.body.get("event") == "ended" for frame in frames if frame.kind == "run") == 1


@pytest.mark.trio
async def test_a_run_whose_sandbox_died_meanwhile_ends_with_the_truth(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path) as hand:  # its sandbox is ended behind it
        notebook_id, [cell, queued] = await hand.create(
            ("python", "print('on', flush=True)\nimport time; time.sleep(600)"), ("python", "print('next')")
        )
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        await hand.ask(notebook_id, "run_cell", cell_id=queued)
        await hand.until(notebook_id, lambda n: "on" in text_of(n, cell))
    async with worker(database, tmp_path) as hand:
        assert await hand.ended(notebook_id, cell) == "error"
        assert "gone" in ((await hand.notebook(notebook_id)).cells[cell].reason or "")
        assert await hand.ended(notebook_id, queued) == "done", "queued cells must not stay queued for ever"


@pytest.mark.trio
async def test_a_notebook_that_sleeps_is_no_process_and_no_task_and_wakes_again(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path, sandbox_idle=0.3, kernel_idle=0.3) as hand:
        tasks = trio.lowlevel.current_statistics().tasks_living
        notebook_id, [cell, again] = await hand.create(("python", "x = 1"), ("python", "print('awake')"))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        assert await hand.ended(notebook_id, cell) == "done"
        notebook = await hand.until(notebook_id, lambda n: n.sandbox.state == "asleep")
        assert notebook.sandbox.kernel == "gone", "people are told that variables are gone"
        assert not alive(tmp_path / "sandboxes" / notebook_id)
        assert hand.supervisor is not None
        with trio.fail_after(10):
            while hand.supervisor.statistics()["sessions"] or trio.lowlevel.current_statistics().tasks_living > tasks:
                await trio.sleep(0.01)
        assert [row["owner"] for row in await hand.sql("SELECT owner FROM notebook")] == [None]
        await hand.ask(notebook_id, "run_cell", cell_id=again)
        assert await hand.ended(notebook_id, again) == "done"
        assert "awake" in text_of(await hand.notebook(notebook_id), again)


@pytest.mark.trio
@pytest.mark.parametrize("kind", ["python", "shell"])
async def test_a_silent_run_keeps_its_own_sandbox_awake_though_nobody_looks(
    database: str, tmp_path: Path, kind: str
) -> None:
    """Invariant 7: for many times as long as an idle one is kept, while nothing is printed and no page is open."""
    code = {"python": "import time; time.sleep(1.5)", "shell": "sleep 1.5 & wait"}[kind]
    async with worker(database, tmp_path, sandbox_idle=0.1, kernel_idle=0.1) as hand:
        notebook_id, [cell] = await hand.create((kind, code))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        assert await hand.ended(notebook_id, cell) == "done"
        assert await hand.sql("SELECT * FROM presence") == []
        await hand.until(notebook_id, lambda n: n.sandbox.state == "asleep")
        frames = await hand.frames(notebook_id)
        [end] = [frame.seq for frame in frames if frame.kind == "run" and frame.body["event"] == "ended"]
        assert min(frame.seq for frame in frames if frame.body.get("state") == "asleep") > end


@pytest.mark.trio
async def test_what_is_idle_sleeps_though_somebody_looks(database: str, tmp_path: Path) -> None:
    """Invariant 7, from its other side: no viewer keeps anything awake."""
    async with worker(database, tmp_path, sandbox_idle=0.1, kernel_idle=0.1, poll=0.1) as hand:
        notebook_id, [cell] = await hand.create(("python", "1"))
        looking = [(notebook_id, "ada", True)]
        await hand.journal._bridge.run(asking.show_presence, hand.journal._pool, "web", looking)
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        assert await hand.ended(notebook_id, cell, 60) == "done"
        await hand.until(notebook_id, lambda n: n.sandbox.state == "asleep", 60)
        assert len(await hand.sql("SELECT * FROM presence WHERE until > now()")) == 1, "and somebody still looks"


@pytest.mark.trio
async def test_what_an_engine_does_for_itself_is_no_change_of_the_notebook(database: str, tmp_path: Path) -> None:
    """The list shows when people or runs last changed something, not when a server was started again."""
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await hand.create(("python", "1"))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        assert await hand.ended(notebook_id, cell) == "done"
        [before] = await hand.sql("SELECT changed_at FROM notebook")
    async with worker(database, tmp_path) as hand:
        await hand.until(notebook_id, lambda n: n.epoch == 2)
        assert await hand.sql("SELECT changed_at FROM notebook") == [before]
        await hand.ask(notebook_id, "rename", title="Other")
        await hand.until(notebook_id, lambda n: n.title == "Other")
        assert await hand.sql("SELECT changed_at FROM notebook") != [before]


@pytest.mark.trio
async def test_opening_and_reading_starts_nothing(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path, poll=0.05) as hand:
        notebook_id, _ = await hand.create(("python", "open('ran', 'w')"))
        for _ in range(3):
            await hand.notebook(notebook_id)
        assert len(await hand.frames(notebook_id)) == 2
        assert not (tmp_path / "workspaces" / notebook_id).exists()


@pytest.mark.trio
@pytest.mark.parametrize("run_id", [":odd", "_odd", ".", ".."])
async def test_any_run_id_that_a_command_takes_runs(database: str, tmp_path: Path, run_id: str) -> None:
    async with worker(database, tmp_path) as hand:
        notebook_id, _ = await hand.create()
        await hand.ask(notebook_id, "add_cell", cell_id=f"{run_id}:cell", cell_kind="shell", source="echo here")
        await hand.ask(notebook_id, "run_cell", cell_id=f"{run_id}:cell", run_id=run_id)
        await hand.until(notebook_id, lambda n: f"{run_id}:cell" in n.cells)
        assert await hand.ended(notebook_id, f"{run_id}:cell") == "done"


@pytest.mark.trio
async def test_a_run_id_is_used_once(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path) as hand:
        notebook_id, [one, two] = await hand.create(("shell", "echo one"), ("shell", "echo two"))
        await hand.ask(notebook_id, "run_cell", cell_id=one, run_id="mine")
        assert await hand.ended(notebook_id, one) == "done"
        again = await hand.ask(notebook_id, "run_cell", cell_id=two, run_id="mine")
        await hand.ask(notebook_id, "run_cell", cell_id=two, run_id="another")
        assert await hand.ended(notebook_id, two) == "done"
        [refused] = [frame for frame in await hand.frames(notebook_id) if frame.kind == "refused"]
        assert refused.command_id == again
        assert "mine already" in refused.body["reason"]


@pytest.mark.trio
async def test_a_run_that_the_sandbox_turns_away_ends_with_the_reason(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk, where a run that cannot be noted is not started."""
    execute = Sandbox.execute

    async def full(self: Sandbox, run_id: str, *args: Any) -> str:
        if run_id == "first":
            raise SandboxError("the run cannot be noted on disk, so it is not started: no space left on device")
        return await execute(self, run_id, *args)

    monkeypatch.setattr(Sandbox, "execute", full)
    async with worker(database, tmp_path) as hand:
        notebook_id, [one, two] = await hand.create(("shell", "echo one"), ("shell", "echo two"))
        await hand.ask(notebook_id, "run_cell", cell_id=one, run_id="first")
        await hand.ask(notebook_id, "run_cell", cell_id=two)
        assert await hand.ended(notebook_id, one) == "error"
        assert await hand.ended(notebook_id, two) == "done"
        assert "no space left" in str((await hand.notebook(notebook_id)).cells[one].reason)


@pytest.mark.trio
async def test_a_frozen_sandbox_ends_its_run_with_the_reason_and_the_next_run_works(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.tenancy.PULSE_SECONDS", 0.2)
    monkeypatch.setattr("engine.tenancy.REQUEST_SECONDS", 1.0)
    async with worker(database, tmp_path) as hand:
        notebook_id, [frozen, after] = await hand.create(
            ("python", "print('begun')\nwhile True: pass"), ("python", "print('fine')")
        )
        await hand.ask(notebook_id, "run_cell", cell_id=frozen)
        await hand.until(notebook_id, lambda n: "begun" in text_of(n, frozen), 60)
        os.kill(shim_of(tmp_path / "sandboxes" / notebook_id), signal.SIGSTOP)
        assert await hand.ended(notebook_id, frozen, 60) == "error"
        assert "stopped by a signal" in str((await hand.notebook(notebook_id)).cells[frozen].reason)
        await hand.ask(notebook_id, "run_cell", cell_id=after)
        assert await hand.ended(notebook_id, after, 60) == "done"


@pytest.mark.trio
async def test_a_sandbox_that_is_let_go_while_its_memory_is_asked_for_ends_no_worker(
    database: str, tmp_path: Path
) -> None:
    """A worker that wakes from being frozen does all at once: it counts memory while its engines find out that they
    were overtaken."""
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await hand.create(("python", "1"))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        assert await hand.ended(notebook_id, cell) == "done"
        assert hand.supervisor is not None
        session = hand.supervisor._sessions[notebook_id]
        assert session is not None
        sandbox = session._tenancy.sandbox
        assert sandbox is not None
        assert await session.memory() > 0
        shim = shim_of(tmp_path / "sandboxes" / notebook_id)
        os.kill(shim, signal.SIGSTOP)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.memory)
                with trio.fail_after(20):
                    while not sandbox._requesting.locked():
                        await trio.sleep(0.01)
                await sandbox.aclose()
        finally:
            os.kill(shim, signal.SIGCONT)


@pytest.mark.trio
async def test_a_sandbox_that_a_dead_engine_was_just_starting_fails_no_run(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shim has the lock, and does not listen yet."""
    refused = trio.Event()
    start = Sandbox.start

    async def told(*args: Any) -> Sandbox:
        try:
            return await start(*args)
        except SandboxAlive:
            refused.set()
            raise

    monkeypatch.setattr(Sandbox, "start", told)
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await hand.create(("shell", "echo here"))
        folder = tmp_path / "sandboxes" / notebook_id
        folder.mkdir(parents=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            await hand.ask(notebook_id, "run_cell", cell_id=cell)
            with trio.fail_after(20):
                await refused.wait()
        assert await hand.ended(notebook_id, cell) == "done"
