"""Limits the shim enforces itself, back-pressure, and what the sandbox may cost."""

import gzip
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

from e2e.scale import SOAK
from tests.engine.sandbox.harness import Notebook, needs_bubblewrap, wait_for, with_argument

pytestmark = pytest.mark.trio

MEBIBYTE = 1024 * 1024


def resident(pid: int) -> int:
    """Resident memory of a process, in KiB."""
    return int(psutil.Process(pid).memory_info().rss) // 1024


async def spooled(notebook: Notebook, size: int) -> None:
    """Until so many bytes wait on the shim's disk."""
    with trio.fail_after(20):
        while (await notebook.sandbox.status())["spool"] < size:
            await trio.sleep(0.02)


@pytest.mark.parametrize("kind", ["python", "shell"])
async def test_too_many_processes_end_the_run_with_the_true_reason(open_sandbox: Any, mode: str, kind: str) -> None:
    notebook = await open_sandbox(mode, processes=40)
    code = {
        "python": "import subprocess, time\nfor _ in range(80): subprocess.Popen(['sleep', '7601'])\ntime.sleep(60)",
        "shell": "for i in $(seq 80); do sleep 7601 & done; wait",
    }[kind]
    ended, _ = await notebook.run(kind, code)
    assert ended["status"] == "error"
    assert ended["reason"].startswith("too many processes")
    assert ended["reason"].endswith("the limit is 40")
    assert with_argument("7601") == []
    assert (await notebook.run("python", "print('fine')"))[1] == "fine\n"


async def test_a_program_that_multiplies_is_ended_to_the_last(open_sandbox: Any, mode: str) -> None:
    """Each of its processes starts another one, and would after the others were killed."""
    notebook = await open_sandbox(mode, processes=20)
    await notebook.run(
        "python", "open('grow.py', 'w').write('import os, time\\nwhile True: os.fork(); time.sleep(0.2)')"
    )
    ended, _ = await notebook.run("shell", "python grow.py 7603")
    assert ended["status"] == "error"
    assert ended["reason"].startswith("too many processes")
    assert with_argument("7603") == []
    assert (await notebook.run("python", "print('fine')"))[1] == "fine\n"


@pytest.mark.parametrize("kind", ["python", "shell"])
async def test_too_much_memory_is_out_of_memory(open_sandbox: Any, mode: str, kind: str) -> None:
    notebook = await open_sandbox(mode, memory_bytes=300 * MEBIBYTE)
    grow = "x = []\nimport time\nwhile len(x) < 60: x.append(b'x' * 10_000_000); time.sleep(0.02)\ntime.sleep(60)"
    ended, _ = await notebook.run(kind, grow if kind == "python" else f'python -c "{grow}"')
    assert ended["status"] == "error"
    assert ended["reason"].startswith("Out of memory: ")
    assert ended["reason"].endswith("the limit is 300 MiB")
    assert (await notebook.run("python", "print('fine')"))[1] == "fine\n"


@needs_bubblewrap
@pytest.mark.parametrize("kind", ["python", "shell"])
async def test_no_folder_in_memory_takes_more_than_the_limit(open_sandbox: Any, kind: str) -> None:
    notebook = await open_sandbox("bubblewrap", memory_bytes=100 * MEBIBYTE)
    code = """
import os, multiprocessing.shared_memory as shared
def fill(folder):
    written, path = 0, folder + '/filled'
    try:
        with open(path, 'wb', 0) as file:
            while written < 200: written += file.write(bytes(2 ** 20)) == 2 ** 20
    except OSError as problem: print(folder, written, problem.strerror)
    else: print(folder, written)
    finally:
        if os.path.exists(path): os.unlink(path)
for folder in ('/', '/dev', '/etc', '/run', '/run/nightbook', '/dev/shm'): fill(folder)
fill('/tmp'); fill('.')
memory = shared.SharedMemory(create=True, size=2 ** 20)
memory.close(); memory.unlink()
"""
    if kind == "shell":
        await notebook.run("python", f"open('fill.py', 'w').write({code!r})")
    ended, text = await notebook.run(kind, code if kind == "python" else "python fill.py")
    assert ended["status"] == "done", text
    assert text.split("\n" if kind == "python" else "\r\n") == [
        *(f"{folder} 0 Read-only file system" for folder in ("/", "/dev", "/etc", "/run", "/run/nightbook")),
        "/dev/shm 100 No space left on device", "/tmp 200", ". 200", "",
    ]  # fmt: skip


async def test_children_go_first_when_memory_runs_out(notebook: Notebook) -> None:
    _, text = await notebook.run("python", "print(open('/proc/self/oom_score_adj').read().strip())")
    assert text == "500\n"
    _, text = await notebook.run("shell", "cat /proc/self/oom_score_adj; ulimit -c")
    assert text == "500\r\n0\r\n"


async def test_a_full_spool_stops_the_program_and_loses_nothing(open_sandbox: Any, mode: str) -> None:
    notebook = await open_sandbox(mode, spool_bytes=MEBIBYTE)
    sandbox = notebook.sandbox
    run = await notebook.begin("python", "for i in range(40): print(str(i) + 'x' * 99_999)")

    async def size() -> int:
        return int((await sandbox.status())["spool"])

    await spooled(notebook, MEBIBYTE)
    await trio.sleep(0.3)
    assert await size() < 3 * MEBIBYTE
    assert run in (await sandbox.status())["runs"]
    while not notebook.of(run, "ended"):
        with trio.fail_after(20):
            notebook.records += await sandbox.records()
        await sandbox.ack(notebook.records[-1]["n"])
    assert notebook.text(run) == "".join(f"{i}{'x' * 99_999}\n" for i in range(40))
    assert await size() < 5 * MEBIBYTE


@pytest.mark.parametrize(("kind", "code"), [("python", "while True: print('x' * 1000)"), ("shell", "yes")])
async def test_stop_works_with_a_full_spool(open_sandbox: Any, kind: str, code: str) -> None:
    notebook = await open_sandbox(spool_bytes=MEBIBYTE)
    run = await notebook.begin(kind, code)
    await spooled(notebook, MEBIBYTE)
    await notebook.sandbox.stop(run)
    with trio.fail_after(10):
        while run in (await notebook.sandbox.status())["runs"]:
            await trio.sleep(0.02)  # nothing is read here, so no record tells
    assert (await notebook.ended(run))["status"] == "cancelled"


LINES = 2_000_000 if SOAK else 700_000  # of 100 bytes; both are more than a spool holds


@pytest.mark.parametrize(
    ("kind", "code", "size"),
    [
        ("python", f"for i in range({LINES}): print('x' * 99)", 100 * LINES),
        ("python", "print('y' * 50_000_000)", 50_000_001),
        ("shell", "head -c 50000000 /dev/zero | tr '\\0' z", 50_000_000),
    ],
)
async def test_huge_output_costs_little_and_every_byte_is_accounted_for(
    open_sandbox: Any, tmp_path: Path, kind: str, code: str, size: int
) -> None:
    notebook = await open_sandbox()
    pid = (await notebook.sandbox.status())["pid"]
    run = await notebook.begin(kind, code)
    most = 0
    while not notebook.of(run, "ended"):
        notebook.records += await notebook.sandbox.records()
        await notebook.sandbox.ack(notebook.records[-1]["n"])
        most = max(most, resident(pid))
    assert most < 26 * 1024
    outs = notebook.of(run, "out")
    assert all(len(r["text"].encode()) <= 32 * 1024 for r in outs)
    shown = sum(len(r["text"].encode()) for r in outs)
    assert shown + sum(r.get("left_out", 0) for r in outs) == size
    assert shown < 12 * MEBIBYTE
    whole = notebook.of(run, "ended")[0]["whole"]
    assert whole == {"path": f".nightbook/outputs/{run}.txt.gz", "bytes": min(size, 64 * MEBIBYTE)}
    with gzip.open(tmp_path / "workspaces" / "one" / whole["path"]) as file:
        assert sum(len(piece) for piece in iter(lambda: file.read(MEBIBYTE), b"")) == whole["bytes"]


async def test_the_shim_is_small(open_sandbox: Any) -> None:
    notebook = await open_sandbox("auto")
    pid = (await notebook.sandbox.status())["pid"]
    assert resident(pid) < 20 * 1024
    run = await notebook.begin("python", "print('first')")
    await notebook.printed(run, "first")
    await notebook.run("shell", "echo x")
    assert resident(pid) < 20 * 1024


async def test_tqdm_like_output_is_two_records_a_second_and_ends_right(open_sandbox: Any) -> None:
    notebook = await open_sandbox()
    code = (
        "import sys, time\nfor i in range(1, 151):\n    sys.stderr.write(f'\\r{i:4d}/150 |' + '#' * (i // 5)); "
        "sys.stderr.flush(); time.sleep(0.01)\n"
    )
    ended, text = await notebook.run("python", code)
    assert ended["status"] == "done"
    outs = notebook.of("run-1", "out")
    assert len(outs) <= ended["ms"] / 500 + 3
    assert text.split("\r")[-1] == " 150/150 |" + "#" * 30
    assert len(text) < 40 * (len(outs) + 1)


async def test_limits_do_not_hurt_what_is_within_them(notebook: Notebook) -> None:
    run = await notebook.begin("shell", "for i in $(seq 30); do sleep 7602 & done; echo ready; wait")
    await notebook.printed(run, "ready")
    await wait_for(lambda: len(with_argument("7602")) >= 30, "thirty sleeps")
    await trio.sleep(1.2)  # two looks
    assert run in (await notebook.sandbox.status())["runs"]
    await notebook.sandbox.stop(run)
    await notebook.ended(run)
