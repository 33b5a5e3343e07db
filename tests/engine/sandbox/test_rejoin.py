"""Exactly once across the seam: engines come and go, the shim and its code go on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from engine.sandbox.client import Fenced, Sandbox, SandboxError, SandboxLost, alive
from tests.engine.sandbox.harness import Notebook, config_of, needs_bubblewrap, wait_for, with_argument

pytestmark = pytest.mark.trio

ROOT = Path(__file__).parents[3]

# A server in miniature: starts a sandbox, runs a cell, prints every record, and never says goodbye.
SERVER = """
import json, sys, trio
from pathlib import Path
from engine.sandbox.client import Sandbox, SandboxConfig
async def main():
    config = SandboxConfig(Path(sys.argv[1]) / "sandboxes", Path(sys.argv[1]) / "workspaces", isolation=sys.argv[2])
    sandbox = await Sandbox.start(config, "one", 1)
    await sandbox.execute("long", "python", sys.argv[3])
    while True:
        for record in await sandbox.records():
            print(json.dumps(record), flush=True)
trio.run(main)
"""


async def test_kill_9_of_the_server_loses_and_repeats_nothing(tmp_path: Path, mode: str, open_sandbox: Any) -> None:
    code = "import time\nopen('starts', 'a').write('x')\nfor i in range(60):\n    print('line', i); time.sleep(0.02)"
    server = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", SERVER, str(tmp_path), mode, code], stdout=subprocess.PIPE, cwd=ROOT, text=True
    )
    assert server.stdout is not None
    records: list[dict[str, Any]] = []
    while not any("line 10\n" in record.get("text", "") for record in records):
        line = await trio.to_thread.run_sync(server.stdout.readline)
        records.append(json.loads(line))
    server.send_signal(signal.SIGKILL)
    server.wait()

    sandbox = await Sandbox.join(config_of(tmp_path, mode), "one", 2, lambda _: records[-1]["n"])
    assert sandbox is not None
    assert sandbox.runs["long"]["state"] == "running"
    assert await sandbox.execute("long", "python", code) == "running"
    notebook = Notebook(sandbox)
    notebook.records = records
    ended = await notebook.ended("long")
    assert ended["status"] == "done"
    assert notebook.text("long") == "".join(f"line {i}\n" for i in range(60))
    assert [r["n"] for r in notebook.records] == list(range(1, len(notebook.records) + 1))
    assert (tmp_path / "workspaces" / "one" / "starts").read_text() == "x"
    await sandbox.shutdown()


async def test_a_known_run_is_never_started_again(notebook: Notebook, tmp_path: Path, mode: str) -> None:
    for kind, code in (("python", "open('count', 'a').write('x')"), ("shell", "printf y >> count")):
        await notebook.run(kind, code)
        run = notebook.records[-1]["run"]
        assert await notebook.sandbox.execute(run, kind, code) == "ended"
        await notebook.sandbox.ack(notebook.records[-1]["n"])
        other = await Sandbox.join(config_of(tmp_path, mode), "one", 2, lambda _: notebook.records[-1]["n"])
        assert other is not None
        assert await other.execute(run, kind, code) == "ended"
        assert other.runs[run]["status"] == "done"
        await other.aclose()
        notebook.sandbox = await joined(tmp_path, mode, 2, notebook.records[-1]["n"])
    assert (tmp_path / "workspaces" / "one" / "count").read_text() == "xy"


async def joined(tmp_path: Path, mode: str, epoch: int, after: int) -> Sandbox:
    sandbox = await Sandbox.join(config_of(tmp_path, mode), "one", epoch, lambda _: after)
    assert sandbox is not None
    return sandbox


async def test_records_are_replayed_after_any_number_not_acknowledged(open_sandbox: Any, tmp_path: Path) -> None:
    notebook = await open_sandbox()
    for i in range(5):
        await notebook.run("python", f"print({i})")
    last = notebook.records[-1]["n"]
    for after in range(last):
        sandbox = await joined(tmp_path, "process", 1, after)
        again: list[dict[str, Any]] = []
        while not again or again[-1]["n"] < last:
            again += await sandbox.records()
        assert again == notebook.records[after:]
        await sandbox.aclose()


async def test_only_the_newest_of_one_epoch_receives_and_a_lower_epoch_is_refused(
    open_sandbox: Any, tmp_path: Path
) -> None:
    notebook = await open_sandbox()
    await notebook.run("python", "1")
    newer = await joined(tmp_path, "process", 5, notebook.records[-1]["n"])
    with pytest.raises(Fenced):
        await notebook.sandbox.execute("late", "python", "print('must not run')")
    with pytest.raises(Fenced):
        await notebook.sandbox.records()
    with pytest.raises(Fenced):
        await Sandbox.join(config_of(tmp_path), "one", 4, lambda _: 0)
    assert "late" not in (await newer.status())["runs"]
    await newer.shutdown()
    # The epoch outlives the shim too.
    with pytest.raises(Fenced):
        await Sandbox.start(config_of(tmp_path), "one", 4)


async def test_a_broken_socket_is_mended_without_a_gap(open_sandbox: Any, tmp_path: Path) -> None:
    notebook = await open_sandbox()
    run = await notebook.begin("python", "import time\nfor i in range(50):\n    print(i); time.sleep(0.02)")
    for _ in range(5):
        notebook.records += await notebook.sandbox.records()
        for line in (notebook.sandbox._records, notebook.sandbox._requests):
            if line._stream is not None:
                line._stream.socket._sock.shutdown(2)
        await notebook.sandbox.ack(0)
    assert (await notebook.ended(run))["status"] == "done"
    assert notebook.text(run) == "".join(f"{i}\n" for i in range(50))


async def test_closing_ends_whoever_waits_for_records(open_sandbox: Any) -> None:
    notebook = await open_sandbox()

    async def wait() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await notebook.ended("never")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked(0.05)
        await notebook.sandbox.aclose()


async def test_requests_and_records_from_many_tasks_and_cancelled_ones(open_sandbox: Any) -> None:
    notebook = await open_sandbox()

    async def impatient() -> None:
        for _ in range(20):
            with trio.move_on_after(0.0005):
                await notebook.sandbox.status()

    async def patient(number: int) -> None:
        for i in range(10):
            await notebook.sandbox.execute(f"r{number}-{i}", "python", f"print('{number}-{i}')")

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(patient, number)
            nursery.start_soon(impatient)
        for _ in range(30):
            with trio.move_on_after(0.002):
                notebook.records += await notebook.sandbox.records()
    for number in range(4):
        for i in range(10):
            assert (await notebook.ended(f"r{number}-{i}"))["status"] == "done"
            assert notebook.text(f"r{number}-{i}") == f"{number}-{i}\n"
    assert [r["n"] for r in notebook.records] == list(range(1, len(notebook.records) + 1))


async def test_two_shims_never_serve_one_folder(open_sandbox: Any, tmp_path: Path) -> None:
    notebook = await open_sandbox()
    with pytest.raises(SandboxError, match="alive already"):
        await Sandbox.start(config_of(tmp_path), "one", 2)
    assert (await notebook.run("python", "print('fine')"))[1] == "fine\n"


async def test_ten_starts_at_once_give_one_shim(tmp_path: Path) -> None:
    started: list[Sandbox] = []
    refused: list[SandboxError] = []

    async def start() -> None:
        try:
            started.append(await Sandbox.start(config_of(tmp_path), "one", 1))
        except SandboxError as problem:
            refused.append(problem)

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(start)
    assert len(started) == 1
    assert len(refused) == 9
    await started[0].shutdown()


async def test_no_shim_is_none_and_a_dead_one_is_lost(open_sandbox: Any, tmp_path: Path, mode: str) -> None:
    assert await Sandbox.join(config_of(tmp_path, mode), "one", 1, lambda _: 0) is None
    notebook = await open_sandbox(mode)
    run = await notebook.begin("python", "import time; print('ready', flush=True); time.sleep(60)")
    await notebook.printed(run, "ready")
    os.kill((await notebook.sandbox.status())["pid"], signal.SIGKILL)
    with pytest.raises(SandboxLost):
        await notebook.ended(run)
    with pytest.raises(SandboxLost):
        await notebook.sandbox.status()
    assert await Sandbox.join(config_of(tmp_path, mode), "one", 2, lambda _: 0) is None
    # The next shim knows the run, and does not start it a second time.
    again = await Sandbox.start(config_of(tmp_path, mode), "one", 2)
    assert again.id != notebook.sandbox.id
    assert again.runs[run] == again.runs[run] | {"state": "ended", "status": "error", "reason": "the sandbox was lost"}
    assert await again.execute(run, "python", "print('twice')") == "ended"
    await again.shutdown()


@needs_bubblewrap
async def test_301_orphans_go_with_a_shim_killed_by_signal_9(open_sandbox: Any) -> None:
    notebook = await open_sandbox("bubblewrap")
    run = await notebook.begin(
        "python",
        "import subprocess\nfor _ in range(300): subprocess.Popen(['sleep', '7501'], start_new_session=True)\n"
        "print('all')",
    )
    await notebook.printed(run, "all")
    shell = await notebook.begin("shell", "setsid sleep 7501 & echo ready; wait")
    await notebook.printed(shell, "ready")
    await wait_for(lambda: len(with_argument("7501")) >= 301, "301 sleeps")
    os.kill((await notebook.sandbox.status())["pid"], signal.SIGKILL)
    await wait_for(lambda: with_argument("7501") == [], "no orphan left", 5)


async def test_orphans_go_with_the_shim_without_bubblewrap_too(open_sandbox: Any) -> None:
    notebook = await open_sandbox("process")
    run = await notebook.begin(
        "python",
        "import subprocess\nfor _ in range(20): subprocess.Popen(['sleep', '7502'], start_new_session=True)\n"
        "print('all')",
    )
    await notebook.printed(run, "all")
    shell = await notebook.begin("shell", "setsid sleep 7502 & echo ready; wait")
    await notebook.printed(shell, "ready")
    os.kill((await notebook.sandbox.status())["pid"], signal.SIGKILL)
    await wait_for(lambda: with_argument("7502") == [], "no orphan left", 5)


async def test_a_shim_that_nobody_joins_stops_itself_when_nothing_runs(tmp_path: Path, mode: str) -> None:
    config = config_of(tmp_path, mode, orphan_seconds=0.5)
    sandbox = await Sandbox.start(config, "one", 1)
    await sandbox.execute("busy", "python", "import time; time.sleep(2.5); open('done', 'w').close()")
    await sandbox.aclose()
    began = time.monotonic()
    folder = config.folder("one")
    await wait_for((config.workspace("one") / "done").exists, "the program to end", 15)
    # Its end is told by nobody else: the shim stays until an engine has stored it.
    again = await Sandbox.join(config, "one", 2, lambda _: 0)
    assert again is not None
    told = await again.records()
    while told[-1]["t"] != "ended":
        told += await again.records()
    await again.ack(told[-1]["n"])
    await again.aclose()
    await wait_for(lambda: not alive(folder), "the shim to stop itself", 15)
    assert time.monotonic() - began > 2.5


async def test_shutdown_ends_everything(open_sandbox: Callable[..., Any], mode: str) -> None:
    notebook = await open_sandbox(mode)
    run = await notebook.begin(
        "python", "import subprocess, time\nsubprocess.Popen(['sleep', '7503'])\nprint('ready')\ntime.sleep(60)"
    )
    await notebook.printed(run, "ready")
    shell = await notebook.begin("shell", "sleep 7503")
    await notebook.seen(shell, "started")
    await notebook.sandbox.shutdown()
    assert with_argument("7503") == []
    assert (await notebook.ended(run))["status"] == "cancelled"
    assert (await notebook.ended(shell))["status"] == "cancelled"
