"""Shell cells: a real terminal, and nothing of them left when they end."""

from typing import Any

import pytest

from tests.engine.sandbox.harness import Notebook, wait_for, with_argument

pytestmark = pytest.mark.trio


async def test_a_terminal_of_100_by_40_in_the_workspace(notebook: Notebook) -> None:
    ended, text = await notebook.run(
        "shell", "stty size; test -t 0 && test -t 1 && echo tty; echo $TERM; echo x > made; pwd"
    )
    assert (ended["status"], ended["exit"], ended["reason"]) == ("done", 0, None)
    lines = text.split("\r\n")
    assert lines[:3] == ["40 100", "tty", "xterm-256color"]
    assert {r["stream"] for r in notebook.of("run-1", "out")} == {"terminal"}
    _, text = await notebook.run("python", "import os; print(open('made').read(), os.getcwd(), sep='')")
    assert text == f"x\n{lines[3]}\n"


@pytest.mark.parametrize(
    ("code", "exit_code", "reason"),
    [
        ("echo hi; exit 3", 3, "exit status 3"),
        ("no-such-program", 127, "exit status 127"),
        ("kill -9 $$", 137, "killed by signal 9 (SIGKILL)"),
        ("kill -TERM $$", 143, "killed by signal 15 (SIGTERM)"),
    ],
)
async def test_failure_is_told_with_status_or_signal(
    notebook: Notebook, code: str, exit_code: int, reason: str
) -> None:
    ended, _ = await notebook.run("shell", code)
    assert (ended["status"], ended["exit"]) == ("error", exit_code)
    assert ended["reason"].endswith(reason)


async def test_lines_of_input_reach_the_program_while_it_runs(notebook: Notebook) -> None:
    run = await notebook.begin("shell", "read -p 'name? ' name; echo hello $name; read -s word; echo ${#word}")
    await notebook.printed(run, "name? ")
    assert await notebook.sandbox.answer(run, "k1", None, "Ada")
    assert await notebook.sandbox.answer(run, "k1", None, "Ada")
    await notebook.printed(run, "hello Ada")
    assert await notebook.sandbox.answer(run, "k2", None, "hunter2")
    assert (await notebook.ended(run))["status"] == "done"
    assert notebook.text(run).endswith("7\r\n")
    assert "hunter2" not in str(notebook.records)
    assert [r["key"] for r in notebook.of(run, "answered")] == ["k1", "k2"]
    assert not await notebook.sandbox.answer(run, "k3", None, "too late")


async def test_all_output_comes_before_the_end(notebook: Notebook) -> None:
    ended, text = await notebook.run("shell", "seq 1 20000")
    assert ended["status"] == "done"
    assert text == "".join(f"{i}\r\n" for i in range(1, 20001))
    assert notebook.of("run-1")[-1]["t"] == "ended"


async def test_a_character_written_in_halves_comes_out_whole(notebook: Notebook) -> None:
    _, text = await notebook.run("shell", r"printf '\xe2'; sleep 0.1; printf '\x89'; sleep 0.1; printf '\xa4\n'")
    assert text == "≤\r\n"
    code = "import os, time\nfor b in '≤'.encode():\n    os.write(1, bytes([b])); time.sleep(0.1)"
    _, text = await notebook.run("python", code)
    assert text == "≤"


async def test_random_bytes_are_safe(notebook: Notebook) -> None:
    ended, text = await notebook.run("shell", "head -c 200000 /dev/urandom")
    assert ended["status"] == "done"
    text.encode("utf-8")
    assert len(text) > 50_000


async def test_what_a_shell_cell_started_ends_with_it(notebook: Notebook) -> None:
    code = "nohup sleep 7301 >/dev/null 2>&1 & setsid sleep 7301 & (setsid sleep 7301 &) ; sleep 0.1; echo over"
    ended, text = await notebook.run("shell", code)
    assert ended["status"] == "done"
    assert "over" in text
    assert with_argument("7301") == []


async def test_code_longer_than_an_argument_may_be(notebook: Notebook) -> None:
    ended, text = await notebook.run("shell", "echo begin\n" + "# comment\n" * 30_000 + "echo end")
    assert ended["status"] == "done"
    assert text == "begin\r\nend\r\n"


async def test_several_shells_and_a_cell_at_once(notebook: Notebook) -> None:
    runs = [await notebook.begin("shell", f"for i in 1 2 3; do echo {n}-$i; sleep 0.05; done") for n in range(3)]
    runs.append(await notebook.begin("python", "print('3-1\\r\\n3-2\\r\\n3-3\\r')"))
    for run in runs:
        await notebook.ended(run)
    for n, run in enumerate(runs):
        assert notebook.text(run) == f"{n}-1\r\n{n}-2\r\n{n}-3\r\n"


async def test_the_shell_giving_up_its_terminal_ends_nothing(notebook: Notebook) -> None:
    ended, _ = await notebook.run("shell", "exec >/dev/null 2>&1 </dev/null; sleep 0.2; exit 4")
    assert ended["exit"] == 4


async def test_programs_in_the_shell_may_use_job_control_and_signals(notebook: Notebook) -> None:
    run = await notebook.begin("shell", "trap 'echo caught; exit 0' INT; echo ready; while :; do sleep 0.05; done")
    await notebook.printed(run, "ready")
    await notebook.sandbox.stop(run)
    ended = await notebook.ended(run)
    assert ended["status"] == "cancelled"
    assert "caught" in notebook.text(run)
    run = await notebook.begin("shell", "echo ready; cat")
    await notebook.printed(run, "ready")
    await notebook.sandbox.answer(run, "k", None, "\x04")
    assert (await notebook.ended(run))["status"] == "done"


async def test_every_process_of_a_shell_is_counted(notebook: Notebook) -> None:
    run = await notebook.begin("shell", "sleep 7302 & setsid sleep 7302 & echo ready; wait")
    await notebook.printed(run, "ready")
    await wait_for(lambda: len(with_argument("7302")) >= 2, "two sleeps")
    status: dict[str, Any] = await notebook.sandbox.status()
    assert status["processes"] >= 3
    assert status["memory"] > 1_000_000
    await notebook.sandbox.stop(run)
    await notebook.ended(run)
    await wait_for(lambda: with_argument("7302") == [], "no sleep left")
