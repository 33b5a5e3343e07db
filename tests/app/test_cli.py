"""The command `nightbook` as an operator meets it: run for real, judged by what it says and how it exits."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "app.cli"]
PASSWORD = "open-sesame"

# A stand-in for a sandbox: holds the lock and listens like a shim, and goes when it is asked to.
SHIM = """
import fcntl, os, signal, socket, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
os.chdir(sys.argv[1])
lock = open("lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
listening = socket.socket(socket.AF_UNIX)
listening.bind("shim.sock")
listening.listen()
print("here", flush=True)
signal.sigwait({signal.SIGTERM})
"""
# A stand-in for a server that says it runs, and goes when it is asked to.
SERVER = """
import signal, sys
from pathlib import Path
from app.running import ProcessFile
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
with ProcessFile(Path(sys.argv[1]), "worker"):
    print("here", flush=True)
    signal.sigwait({signal.SIGTERM})
"""


class Cli:
    """Runs the command on a data folder of its own."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self._started: list[subprocess.Popen[str]] = []

    def environment(self, **settings: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NIGHTBOOK_")}
        return (
            kept | {"NIGHTBOOK_DATA": str(self.data)} | {f"NIGHTBOOK_{name}": text for name, text in settings.items()}
        )

    def __call__(self, *arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*COMMAND, *arguments],
            cwd=ROOT,
            env=self.environment(**settings),
            capture_output=True,
            text=True,
            timeout=90,
        )

    def start(self, command: list[str], **settings: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=self.environment(**settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def stand_in(self, program: str, folder: Path) -> "subprocess.Popen[str]":
        folder.mkdir(parents=True, exist_ok=True)
        process = self.start([sys.executable, "-c", program, str(folder)])
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        return process

    def serve(self, **settings: str) -> tuple["subprocess.Popen[str]", str, str]:
        """Start a server; returns it with its address and its token, as it printed them."""
        process = self.start([*COMMAND, "serve"], **({"PORT": "0"} | settings))
        assert process.stdout is not None
        printed = ""
        for line in process.stdout:
            printed += line
            if link := re.search(r"(http://\S+?)/\?token=(\S+)", line):
                return process, link[1], link[2]
        raise AssertionError(f"no link in {printed!r}: {process.communicate()}")

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.communicate(timeout=30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.communicate()


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    command = Cli(tmp_path / "data")
    yield command
    command.close()


def fails_in_one_line(done: "subprocess.CompletedProcess[str]", *parts: str) -> None:
    assert done.returncode == 1, done
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("nightbook: ")
    for part in parts:
        assert part in lines[0]
    assert PASSWORD not in lines[0]


def answer(url: str, token: str | None = None) -> int:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


# Small things


def test_the_version_is_that_of_the_project(cli: Cli) -> None:
    done = cli("--version")
    assert re.fullmatch(r"nightbook \d+\.\d+\.\d+\n", done.stdout)
    assert not cli.data.exists()


def test_help_names_every_command(cli: Cli) -> None:
    said = cli("--help").stdout
    for name in ("serve", "web", "worker", "migrate", "status", "stop"):
        assert re.search(rf"^\s+{name}\s", said, re.MULTILINE), name


def test_the_command_line_itself_imports_nothing_heavy() -> None:
    heavy = ("nicegui", "asyncpg", "trio", "sqlalchemy", "app.settings")
    program = f"import sys, app.cli; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


# What stops a start


@pytest.mark.parametrize("command", ["serve", "web", "worker", "migrate", "status", "stop"])
def test_a_bad_setting_stops_every_command(cli: Cli, command: str) -> None:
    fails_in_one_line(cli(command, PORT="eighty"), "NIGHTBOOK_PORT", "'eighty'")


def test_an_open_address_without_a_token_stops_the_start(cli: Cli) -> None:
    fails_in_one_line(cli("serve", HOST="0.0.0.0"), "NIGHTBOOK_TOKEN", "NIGHTBOOK_HOST=0.0.0.0")


def test_a_data_folder_of_a_newer_version_stops_the_start(cli: Cli) -> None:
    cli.data.mkdir()
    (cli.data / "version").write_text("99\n")
    fails_in_one_line(cli("serve"), str(cli.data), "99", "update Nightbook")


def test_a_data_folder_that_cannot_be_written_stops_the_start(cli: Cli) -> None:
    fails_in_one_line(cli("serve", DATA="/proc/nightbook"), "/proc/nightbook", "NIGHTBOOK_DATA")


@pytest.mark.parametrize("command", ["serve", "web", "worker", "migrate"])
def test_a_database_that_cannot_be_reached_stops_the_start(cli: Cli, command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    done = cli(command, PORT="0", DATABASE_URL=f"postgresql://someone:{PASSWORD}@127.0.0.1:{port}/nb")
    fails_in_one_line(done, f"someone@127.0.0.1:{port}/nb", "NIGHTBOOK_DATABASE_URL")


def test_a_wrong_database_password_stops_the_start(cli: Cli, empty_database: str) -> None:
    wrong = re.sub(r"://(\w+):[^@]+@", rf"://\1:{PASSWORD}@", empty_database)
    fails_in_one_line(cli("migrate", DATABASE_URL=wrong), "password authentication failed", "NIGHTBOOK_DATABASE_URL")


def test_a_taken_port_stops_the_start(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        fails_in_one_line(cli("serve", PORT=port), port, "NIGHTBOOK_PORT")


# Doing it


def test_migrate_brings_any_database_up_to_date_and_may_be_repeated(cli: Cli, empty_database: str) -> None:
    for _ in range(2):
        done = cli("migrate", DATABASE_URL=empty_database)
        assert done.returncode == 0, done.stderr
        assert "up to date" in done.stdout
        assert not re.search(r"://\w+:", done.stdout), "an address with its password"
    assert not (cli.data / "postgres").exists()


def test_migrate_without_a_database_makes_one(cli: Cli) -> None:
    assert cli("migrate").returncode == 0
    assert (cli.data / "postgres" / "cluster" / "PG_VERSION").exists()
    assert not (cli.data / "postgres" / "cluster" / "postmaster.pid").exists(), "still running"


def test_serve_prints_a_link_that_logs_in_and_status_and_stop_know_it(cli: Cli) -> None:
    process, url, token = cli.serve()
    assert answer(f"{url}/readyz") == 200
    assert answer(f"{url}/api/v1/notebooks") == 401
    assert answer(f"{url}/api/v1/notebooks", token) == 200
    assert answer(f"{url}/") == 401

    done = cli("status")
    assert done.returncode == 0, done
    assert f"serve    process {process.pid}, since" in done.stdout
    assert url in done.stdout
    assert "ready" in done.stdout
    assert "notebooks: 0, running 0, waiting 0" in done.stdout
    assert token not in done.stdout

    done = cli("stop")
    assert done.returncode == 0, done
    assert f"serve (process {process.pid}) stopped" in done.stdout
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert token not in out + err, "the token is shown once, in the link, and never in a log"
    assert cli("status").returncode == 1
    for path in cli.data.rglob("*log*"):
        if path.is_file():
            assert token.encode() not in path.read_bytes(), path


def test_status_and_stop_of_nothing_say_so(cli: Cli) -> None:
    done = cli("status")
    assert done.returncode == 1
    assert done.stdout == f"Nothing runs on {cli.data}.\n"
    done = cli("stop")
    assert done.returncode == 0
    assert done.stdout == f"Nothing runs on {cli.data}.\n"
    assert not cli.data.exists()


def test_stop_leaves_sandboxes_alone_unless_told_otherwise(cli: Cli) -> None:
    server = cli.stand_in(SERVER, cli.data)
    first = cli.stand_in(SHIM, cli.data / "sandboxes" / ("long-" + "x" * 120))
    second = cli.stand_in(SHIM, cli.data / "sandboxes" / "short")
    assert "sandboxes: 2" in cli("status").stdout

    done = cli("stop")
    assert done.returncode == 0
    assert done.stdout == (
        f"worker (process {server.pid}) stopped\n"
        "Sandboxes that go on: 2. `nightbook stop --sandboxes` ends them as well.\n"
    )
    assert server.wait(10) == 0
    assert first.poll() is None
    assert "except 2 sandboxes" in cli("status").stdout

    done = cli("stop", "--sandboxes")
    assert done.returncode == 0
    assert "Sandboxes ended: 2." in done.stdout
    assert first.wait(10) == 0
    assert second.wait(10) == 0


def test_stop_says_when_a_process_does_not_go(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from app import cli as module

    stubborn = cli.stand_in(SERVER.replace("signal.sigwait({signal.SIGTERM})", "signal.pause()"), cli.data)
    monkeypatch.setattr(module, "_STOP_SECONDS", 0.2)
    done = CliRunner().invoke(module.cli, ["stop"], env={"NIGHTBOOK_DATA": str(cli.data)})
    stubborn.kill()
    assert done.exit_code == 1
    assert f"worker (process {stubborn.pid}) still runs" in done.stdout


def test_an_abandoned_lock_file_is_no_sandbox(cli: Cli) -> None:
    folder = cli.data / "sandboxes" / "left"
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    assert cli("stop", "--sandboxes").stdout == "Sandboxes ended: 0.\n"
