"""Stop: true within two seconds, and then nothing of the run is left."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import trio

from tests.engine.sandbox.harness import Notebook, wait_for, with_argument

pytestmark = pytest.mark.trio

READY = "import time, asyncio\nprint('ready', flush=True)\n"


async def stopped(notebook: Notebook, run: str) -> dict[str, Any]:
    """Stop it; the `ended` record, which came in time: 2 s, and some for a busy machine. `make bench` measures it."""
    await notebook.sandbox.stop(run)
    with trio.fail_after(10):
        ended = await notebook.ended(run)
    assert ended["status"] == "cancelled"
    return ended


@pytest.mark.parametrize(
    "code",
    [
        "time.sleep(60)",
        "while True: pass",
        "input()",
        "await asyncio.sleep(60)",
        "await asyncio.gather(asyncio.sleep(60), asyncio.sleep(60))",
        "class Slow:\n    def _repr_html_(self): time.sleep(60)\nSlow()",
        "import subprocess; subprocess.run(['sleep', '7401'])",
        "while True: print('x' * 80)",
        "import threading; threading.Event().wait()",
        "import queue; queue.Queue().get()",
    ],
)
async def test_python_code_is_interrupted_and_the_kernel_stays(notebook: Notebook, code: str) -> None:
    await notebook.run("python", "kept = 'kept'")
    run = await notebook.begin("python", READY + code)
    await notebook.printed(run, "ready")
    ended = await stopped(notebook, run)
    assert ended["reason"] == "stopped"
    _, text = await notebook.run("python", "print(kept)")
    assert text == "kept\n"
    assert with_argument("7401") == []


@pytest.mark.parametrize(
    ("code", "last"),
    [
        ("time.sleep(60)", "time.sleep(60)"),
        ("while True: pass", "while True: pass"),
        ("input()", "input()"),
        ("while True: print('x' * 80)", "while True: print('x' * 80)"),
        ("def deep(n): time.sleep(60) if n == 0 else deep(n - 1)\ndeep(20)", "else deep(n - 1)"),
        ("import threading; threading.Event().wait()", "waiter.acquire()"),
        ("try: time.sleep(60)\nexcept KeyboardInterrupt: raise ValueError('mine')", "mine"),
    ],
)
async def test_the_traceback_of_a_stopped_cell_is_of_its_own_code(notebook: Notebook, code: str, last: str) -> None:
    run = await notebook.begin("python", READY + code)
    await notebook.printed(run, "ready")
    await trio.sleep(0.2)
    await stopped(notebook, run)
    told = re.sub("\x1b\\[[0-9;]*m", "", notebook.text(run, "traceback"))
    assert "engine/sandbox" not in told
    if last == "mine":
        assert told.endswith("ValueError: mine\n")
    else:
        assert told.endswith("KeyboardInterrupt\n")
        assert last in told


@pytest.mark.parametrize(
    "code",
    [
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {2, 15}); print('ready'); time.sleep(60)",
        "while True:\n    try:\n        print('ready'); time.sleep(60)\n    except BaseException: pass",
        "import signal\nfor s in (2, 15): signal.signal(s, signal.SIG_IGN)\nprint('ready', flush=True)\n"
        "sum(range(10 ** 12))",
    ],
)
async def test_code_that_takes_no_interrupt_is_stopped_by_force(notebook: Notebook, code: str) -> None:
    run = await notebook.begin("python", "import time\n" + code)
    await notebook.printed(run, "ready")
    await stopped(notebook, run)
    gone = await notebook.take(lambda r: r["t"] == "kernel" and r["state"] == "gone")
    assert gone["reason"] == "stopped by force"
    _, text = await notebook.run("python", "print('new')")
    assert text == "new\n"


async def test_what_a_stopped_cell_started_goes_and_what_was_there_before_stays(notebook: Notebook) -> None:
    before = "import subprocess\nold = subprocess.Popen('sleep 7411 & sleep 7411', shell=True)"
    await notebook.run("python", before)
    code = (
        "subprocess.Popen(['sleep', '7412'])\n"
        "subprocess.Popen(['sleep', '7412'], start_new_session=True)\n"
        "subprocess.run('(setsid nohup sleep 7412 >/dev/null 2>&1 &)', shell=True)\n"
        "subprocess.run('(env -i setsid sleep 7412 &)', shell=True)\n"
        "print('all', flush=True)\n"
        "import time; time.sleep(60)"
    )
    run = await notebook.begin("python", code)
    await notebook.printed(run, "all")
    await wait_for(lambda: len(with_argument("7412")) >= 4, "four sleeps")
    await stopped(notebook, run)
    assert with_argument("7412") == []
    assert len(with_argument("7411")) >= 2
    await notebook.run("python", "print(old.poll())")
    assert notebook.text("run-3") == "None\n"


@pytest.mark.parametrize(
    "code",
    [
        "sleep 7421 & wait",
        "setsid sleep 7421 & nohup sleep 7421 >/dev/null 2>&1 & sleep 7421",
        "trap '' INT TERM; (trap '' INT TERM; sleep 7421) & while :; do sleep 7421; done",
        "python3 -c 'import signal,time\nfor s in (1,2,15): signal.signal(s, signal.SIG_IGN)\ntime.sleep(7421)'",
        "cat",
    ],
)
async def test_a_shell_is_stopped_whatever_it_started(notebook: Notebook, code: str) -> None:
    run = await notebook.begin("shell", "echo ready\n" + code)
    await notebook.printed(run, "ready")
    await stopped(notebook, run)
    assert with_argument("7421") == []


async def test_stop_while_the_kernel_is_starting(notebook: Notebook) -> None:
    run = await notebook.begin("python", "print('never')")
    ended = await stopped(notebook, run)
    assert ended["reason"] == "stopped before it started"
    ended, text = await notebook.run("python", "print('then')")
    assert text == "then\n"
    assert notebook.text(run) == ""


async def test_stop_of_the_first_of_three_lets_the_others_run(notebook: Notebook) -> None:
    first = await notebook.begin("python", READY + "time.sleep(60)")
    second = await notebook.begin("python", "print('second')")
    third = await notebook.begin("python", "print('third')")
    await notebook.printed(first, "ready")
    await stopped(notebook, first)
    assert (await notebook.ended(second))["status"] == "done"
    assert (await notebook.ended(third))["status"] == "done"


async def test_stop_of_a_waiting_one_never_starts_it(notebook: Notebook) -> None:
    first = await notebook.begin("python", READY + "time.sleep(0.5)")
    second = await notebook.begin("python", "print('never')")
    await notebook.printed(first, "ready")
    await stopped(notebook, second)
    assert (await notebook.ended(first))["status"] == "done"
    assert notebook.of(second, "started") == []


async def test_stop_of_what_does_not_run_is_no_error(notebook: Notebook) -> None:
    await notebook.sandbox.stop("unknown")
    ended, _ = await notebook.run("python", "1")
    await notebook.sandbox.stop("run-1")
    await notebook.sandbox.stop("run-1")
    ended, text = await notebook.run("python", "print('fine')")
    assert (ended["status"], text) == ("done", "fine\n")
    assert len(notebook.of("run-1", "ended")) == 1


async def test_a_background_task_that_holds_the_loop_is_broken_too(open_sandbox: Callable[..., Any]) -> None:
    notebook = await open_sandbox()
    code = (
        "import asyncio, time\nasync def hog():\n    await asyncio.sleep(0.05)\n    print('hogging', flush=True)\n"
        "    time.sleep(60)\ntask = asyncio.create_task(hog())\nawait asyncio.sleep(60)"
    )
    run = await notebook.begin("python", code)
    await notebook.printed(run, "hogging")
    await stopped(notebook, run)
    _, text = await notebook.run("python", "print(task.done())")
    assert text == "True\n"
