"""Python cells: what they print, show and ask, and how they end."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.engine.sandbox.harness import Notebook

pytestmark = pytest.mark.trio


async def test_print_result_and_variables_stay(notebook: Notebook) -> None:
    ended, text = await notebook.run("python", "x = 20\nprint('hello')\nx + 1")
    assert (ended["status"], ended["reason"], ended["exit"], text) == ("done", None, 0, "hello\n")
    [data] = notebook.of("run-1", "data")
    assert data["data"] == {"text/plain": "21"}
    assert data["result"] is True
    assert data["count"] == 1
    _, text = await notebook.run("python", "print(x * 2)")
    assert text == "40\n"
    assert notebook.of("run-2")[0]["t"] == "started"
    assert [r["n"] for r in notebook.records] == list(range(1, len(notebook.records) + 1))


async def test_order_is_kept_between_streams_and_displays(notebook: Notebook) -> None:
    code = (
        "import sys\nfor i in range(5):\n print('o', i)\n print('e', i, file=sys.stderr)\n display(i)\n"
        "print('last', end='')"
    )
    await notebook.run("python", code)
    got: list[Any] = []
    for record in notebook.of("run-1"):
        if record["t"] == "out":
            got.append((record["stream"], record["text"]))
        elif record["t"] == "data":
            got.append(record["data"]["text/plain"])
    expected: list[Any] = []
    for i in range(5):
        expected += [("stdout", f"o {i}\n"), ("stderr", f"e {i}\n"), str(i)]
    assert got == [*expected, ("stdout", "last")]


async def test_errors_are_tracebacks_with_a_short_reason(notebook: Notebook) -> None:
    ended, _ = await notebook.run("python", "def f():\n    return 1 / 0\nf()")
    assert ended["status"] == "error"
    assert ended["reason"] == "ZeroDivisionError: division by zero"
    assert "ZeroDivisionError" in notebook.text("run-1", "traceback")
    assert ", line 2" in notebook.text("run-1", "traceback")
    assert notebook.text("run-1", "traceback").startswith("Traceback (most recent call last)\n"), (
        "for a screen of any width"
    )
    ended, _ = await notebook.run("python", "if x")
    assert ended["reason"].startswith("SyntaxError")


async def test_top_level_await_and_background_tasks_between_cells(notebook: Notebook) -> None:
    await notebook.run(
        "python",
        "import asyncio\nticks = 0\nasync def tick():\n    global ticks\n    while True:\n"
        "        ticks += 1\n        await asyncio.sleep(0.01)\n"
        "task = asyncio.create_task(tick())\nawait asyncio.sleep(0)",
    )
    await trio.sleep(0.3)  # nothing runs meanwhile, and still the task ticks
    _, text = await notebook.run("python", "print(ticks)")
    assert int(text) > 10


async def test_raw_descriptors_subprocesses_and_c_code_are_all_read_before_the_end(notebook: Notebook) -> None:
    code = (
        "import os, subprocess, ctypes\n"
        "os.write(1, b'raw out\\n'); os.write(2, b'raw err\\n')\n"
        "subprocess.run('echo from a child; echo and its error >&2', shell=True)\n"
        "ctypes.CDLL(None).printf(b'from C\\n')\n"
        "os.write(1, b'x' * 300_000)"
    )
    ended, text = await notebook.run("python", code)
    assert ended["status"] == "done"
    for line in ("raw out\n", "raw err\n", "from a child\n", "and its error\n", "from C\n"):
        assert text.count(line) == 1
    assert notebook.text("run-1", "stdout").count("x") == 300_000
    assert "raw err\nand its error\n" in notebook.text("run-1", "stderr")


async def test_input_and_getpass_ask_and_get_their_answer(notebook: Notebook) -> None:
    code = "import getpass\nname = input('Name? ')\nsecret = getpass.getpass('Word? ')\nprint(name, len(secret))"
    run = await notebook.begin("python", code)
    asked = await notebook.seen(run, "input", prompt="Name? ")
    assert asked["password"] is False
    assert await notebook.sandbox.answer(run, "k1", asked["input"], "Ada ≤ \ud800")
    asked = await notebook.seen(run, "input", prompt="Word? ")
    assert asked["password"] is True
    assert await notebook.sandbox.answer(run, "k2", asked["input"], "hunter2hunter2")
    assert (await notebook.ended(run))["status"] == "done"
    assert notebook.text(run).endswith("14\n")
    assert [r["key"] for r in notebook.of(run, "answered")] == ["k1", "k2"]
    assert "hunter2hunter2" not in str(notebook.records)


async def test_an_answer_is_delivered_once_and_only_to_its_own_question(notebook: Notebook) -> None:
    run = await notebook.begin("python", "print(input('a')); print(input('b'))")
    first = await notebook.seen(run, "input", prompt="a")
    assert not await notebook.sandbox.answer(run, "wrong", "no such input", "?")
    assert await notebook.sandbox.answer(run, "k1", first["input"], "one")
    assert await notebook.sandbox.answer(run, "k1", first["input"], "one")
    second = await notebook.seen(run, "input", prompt="b")
    assert not await notebook.sandbox.answer(run, "k3", first["input"], "late")
    assert await notebook.sandbox.answer(run, "k2", second["input"], "two")
    await notebook.ended(run)
    assert notebook.text(run) == "one\ntwo\n"
    assert not await notebook.sandbox.answer(run, "k4", second["input"], "too late")


@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        ("import sys; sys.exit()", "done", None),
        ("import sys; sys.exit(0)", "done", None),
        ("import sys; sys.exit(3)", "error", "exit status 3"),
        ("exit()", "done", None),
        ("quit()", "done", None),
        ("raise SystemExit('so it ends')", "error", "exit status 1"),
    ],
)
async def test_exit_ends_the_cell_and_keeps_the_kernel(open_sandbox: Any, code: str, status: str, reason: Any) -> None:
    notebook = await open_sandbox()
    await notebook.run("python", "kept = 1")
    ended, text = await notebook.run("python", code)
    assert (ended["status"], ended["reason"]) == (status, reason)
    assert "To exit: use" not in text
    _, text = await notebook.run("python", "print(kept)")
    assert text == "1\n"


async def test_code_that_cannot_be_run_at_all_is_told_cleanly(notebook: Notebook) -> None:
    for kind in ("python", "shell"):
        ended, _ = await notebook.run(kind, "print('a\0b')")
        assert ended["status"] == "error"
        assert "NUL" in ended["reason"]
        ended, _ = await notebook.run(kind, "print('\ud83d')")
        assert ended["status"] == "error"
        assert "lone surrogate (U+D83D at 7)" in ended["reason"]
    ended, text = await notebook.run("python", "print('\\ud800 and \\0')\n'\\udfff'")
    assert ended["status"] == "done"
    assert text == "\ufffd and \0\n"


async def test_fork_in_a_cell_leaves_one_story(notebook: Notebook) -> None:
    code = (
        "import os\npid = os.fork()\n"
        "print('child\\n' if pid == 0 else 'parent\\n', end='')\n"  # whole lines: two processes write at once
        "if pid: os.waitpid(pid, 0); print('reaped')"
    )
    ended, text = await notebook.run("python", code)
    assert ended["status"] == "done"
    assert text.count("child\n") == 1
    assert text.count("parent\n") == 1
    assert "reaped\n" in text
    code = (
        "from multiprocessing import get_context\n"
        "with get_context('fork').Pool(2) as pool: print(sum(pool.map(abs, range(100))))"
    )
    ended, text = await notebook.run("python", code)
    assert text == "4950\n"
    assert len([r for r in notebook.records if r["t"] == "ended"]) == 2


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os.kill(os.getpid(), 9)", "killed by signal 9, perhaps memory"),
        ("import os; os.kill(os.getpid(), 11)", "killed by signal 11 (SIGSEGV)"),
        ("import os; print('last words', flush=True); os._exit(3)", "exit status 3"),
    ],
)
async def test_a_dead_kernel_is_told_and_the_next_cell_gets_a_new_one(
    notebook: Notebook, code: str, reason: str
) -> None:
    ended, text = await notebook.run("python", code)
    assert ended["status"] == "error"
    assert ended["reason"] == f"the kernel ended: {reason}"
    if "last words" in code:
        assert text == "last words\n"
    await notebook.take(lambda r: r["t"] == "kernel" and r["state"] == "gone" and r["reason"] == reason)
    ended, text = await notebook.run("python", "print('again')")
    assert (ended["status"], text) == ("done", "again\n")
    states = [r["state"] for r in notebook.records if r["t"] == "kernel"]
    assert states == ["starting", "ready", "gone", "starting", "ready"]


async def test_code_that_writes_into_the_kernels_own_channel_only_hurts_itself(notebook: Notebook) -> None:
    ended, _ = await notebook.run(
        "python",
        "import os, time\nfor fd in range(3, 20):\n    try: os.write(fd, b'garbage' * 100)\n    except OSError: pass\n"
        "time.sleep(10)",
    )
    assert ended["status"] == "error"
    ended, text = await notebook.run("python", "print('fine')")
    assert text == "fine\n"


async def test_rich_display_carries_mime_bundles_ids_and_updates(notebook: Notebook) -> None:
    code = (
        "from IPython.display import HTML, Image, display, update_display\n"
        "display(HTML('<b>x</b>'))\n"
        "display(Image(data=b'\\x89PNG not really', format='png'))\n"
        "display('first', display_id='spot')\n"
        "update_display('second', display_id='spot')"
    )
    ended, _ = await notebook.run("python", code)
    assert ended["status"] == "done"
    html, image, first, second = notebook.of("run-1", "data")
    assert html["data"]["text/html"] == "<b>x</b>"
    assert image["data"]["image/png"].startswith("iVBORw0KGgo") or image["data"]["image/png"].startswith("iVBORy")
    assert (first["display"], first["update"]) == ("spot", False)
    assert (second["display"], second["update"]) == ("spot", True)
    assert not second["result"]


async def test_cells_run_in_the_order_asked(notebook: Notebook) -> None:
    runs = [await notebook.begin("python", f"import time; time.sleep(0.05); print({i})") for i in range(4)]
    for run in runs:
        await notebook.ended(run)
    order = [(r["t"], r["run"]) for r in notebook.records if r["t"] in ("started", "ended")]
    assert order == [(t, run) for run in runs for t in ("started", "ended")]


async def test_restart_gives_a_kernel_without_variables_once_per_key(notebook: Notebook) -> None:
    await notebook.run("python", "x = 1")
    busy = await notebook.begin("python", "import time; time.sleep(60)")
    await notebook.seen(busy, "started")
    waiting = await notebook.begin("python", "print('x' in globals())")
    await notebook.sandbox.restart_kernel("again")
    await notebook.sandbox.restart_kernel("again")
    ended = await notebook.ended(busy)
    assert (ended["status"], ended["reason"]) == ("cancelled", "the kernel was restarted")
    await notebook.ended(waiting)
    assert notebook.text(waiting) == "False\n"
    states = [r["state"] for r in notebook.records if r["t"] == "kernel"]
    assert states == ["starting", "ready", "gone", "starting", "ready"]


async def test_what_prints_between_cells_or_after_the_end_crashes_nothing(notebook: Notebook) -> None:
    code = (
        "import threading, time\nalive = True\ndef talk():\n    while alive:\n"
        "        print('tick')\n        time.sleep(0.002)\n"
        "threading.Thread(target=talk, daemon=True).start()"
    )
    await notebook.run("python", code)
    await trio.sleep(0.1)
    _, text = await notebook.run("python", "import time; time.sleep(0.1)")
    assert "tick\n" in text
    ended, _ = await notebook.run("python", "alive = False")
    assert ended["status"] == "done"
    for run in ("run-1", "run-2", "run-3"):
        assert notebook.of(run)[-1]["t"] == "ended"


@pytest.mark.parametrize(
    "work",
    ["list(pool.map(print, ['pooled']))", "await asyncio.get_running_loop().run_in_executor(None, print, 'pooled')"],
)
async def test_threads_of_an_earlier_cell_print_into_the_cell_they_work_for(notebook: Notebook, work: str) -> None:
    begin = "import asyncio, concurrent.futures as f\npool = f.ThreadPoolExecutor(1)\n"
    _, text = await notebook.run("python", begin + work)
    assert text == "pooled\n"
    _, text = await notebook.run("python", work)
    assert text == "pooled\n"


async def test_stdin_stdout_objects_behave_as_scripts_expect(notebook: Notebook) -> None:
    code = (
        "import sys, subprocess\n"
        "sys.stdout.buffer.write('≤'.encode()[:1]); sys.stdout.buffer.write('≤'.encode()[1:])\n"
        "sys.stdout.writelines(['a', 'b\\n']); assert not sys.stdout.isatty()\n"
        "subprocess.run(['echo', 'via fileno'], stdout=sys.stdout)\n"
        "sys.stdout.close(); print('still here')"
    )
    ended, text = await notebook.run("python", code)
    assert ended["status"] == "done"
    assert "≤ab\n" in text
    assert "via fileno\n" in text
    assert "still here\n" in text


async def test_a_module_of_the_folder_keeps_no_kernel_from_starting(notebook: Notebook) -> None:
    await notebook.run(
        "shell", "echo 'raise SystemExit(7)' | tee queue.py asyncio.py traceback.py traitlets.py >mine.py"
    )
    ended, text = await notebook.run("python", "print(1 + 1)")
    assert (ended["status"], text) == ("done", "2\n")
    ended, _ = await notebook.run("python", "import mine")
    assert ended["reason"] == "exit status 7"  # its own modules are still the first to be found


async def test_a_kernel_that_cannot_start_is_told_with_its_reason_and_not_tried_for_ever(
    open_sandbox: Callable[..., Any], tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ "$1" = -I ] && exec {sys.executable} "$@"\necho "no such library" >&2; exit 3\n')
    python.chmod(0o755)
    notebook: Notebook = await open_sandbox("process", python=str(python))
    first, second = await notebook.begin("python", "1"), await notebook.begin("python", "2")
    reason = "Python could not be started: exit status 3: no such library"
    for run in (first, second):
        assert (await notebook.ended(run))["reason"] == reason
    ended, text = await notebook.run("shell", "echo still here")
    assert ended["status"] == "done"
    assert text == "still here\r\n"
    assert len([one for one in notebook.records if one["t"] == "kernel" and one["state"] == "starting"]) <= 2
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    assert (await notebook.run("python", "3"))[0]["status"] == "done"
    await notebook.sandbox.aclose()
