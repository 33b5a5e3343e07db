"""Who runs on a data folder: real processes, killed ones among them."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.running import ProcessFile, list_running

RUNNER = """
import sys
from pathlib import Path
from app.running import ProcessFile
with ProcessFile(Path(sys.argv[1]), sys.argv[2], "http://127.0.0.1:1"):
    print("here", flush=True)
    sys.stdin.read()
"""
Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    processes: list[subprocess.Popen[str]] = []

    def run(role: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", RUNNER, str(tmp_path), role]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        return process

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def test_nothing_runs_on_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert list_running(tmp_path / "nowhere") == []


def test_processes_are_listed_while_they_run(tmp_path: Path, start: Start) -> None:
    before = time.time()
    web, worker = start("web"), start("worker")
    found = list_running(tmp_path)
    assert [(one.pid, one.role, one.url) for one in found] == [
        (web.pid, "web", "http://127.0.0.1:1"),
        (worker.pid, "worker", "http://127.0.0.1:1"),
    ]
    assert all(before <= one.started <= time.time() for one in found)
    web.communicate()
    assert [one.pid for one in list_running(tmp_path)] == [worker.pid]


def test_a_killed_process_is_gone_though_its_number_may_be_taken(tmp_path: Path, start: Start) -> None:
    killed = start("serve")
    killed.kill()
    killed.wait()
    left = tmp_path / "run" / f"serve-{killed.pid}.json"
    assert left.exists()
    assert list_running(tmp_path) == []
    assert not left.exists()


def test_this_process_can_come_and_go(tmp_path: Path) -> None:
    file = ProcessFile(tmp_path, "serve")
    assert len(list_running(tmp_path)) == 1
    file.close()
    file.close()
    assert list_running(tmp_path) == []
    assert list((tmp_path / "run").iterdir()) == []


def test_a_child_does_not_keep_its_parents_file_alive(tmp_path: Path) -> None:
    file = ProcessFile(tmp_path, "serve")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        file.close()
        assert list_running(tmp_path) == []
    finally:
        child.communicate(b"\n")
