"""The embedded PostgreSQL under real processes: started twice at once, killed, stranded, and far down a long path."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from engine.store import embedded, unprivileged
from engine.store.embedded import Embedded, StoreUnavailable

# Holds the server of the folder it is given until it is told to go or is killed.
HOLDER = """
import sys
from pathlib import Path
from engine.store import embedded
server = embedded.start(Path(sys.argv[1]))
print("started", flush=True)
sys.stdin.read()
server.release()
"""


@pytest.fixture
def data() -> Iterator[Path]:
    """A data folder of its own, with whatever server is left in it ended afterwards."""
    with tempfile.TemporaryDirectory(prefix="nightbook-test-") as folder:
        path = Path(folder) / "data"
        yield path
        if (pid := postmaster(path)) and embedded._is_server(pid, path / "postgres" / "cluster"):
            os.kill(pid, signal.SIGQUIT)
            until(lambda: not embedded._is_server(pid, path / "postgres" / "cluster"))


@pytest.fixture
def hold(data: Path) -> Iterator[Callable[[], "subprocess.Popen[str]"]]:
    """Starts processes that hold the server of `data`; they are killed at the end."""
    started: list[subprocess.Popen[str]] = []

    def start() -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until `condition` holds, and fail when it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def started(process: "subprocess.Popen[str]") -> bool:
    assert process.stdout is not None
    return process.stdout.readline() == "started\n"


def go(process: "subprocess.Popen[str]") -> None:
    process.communicate(timeout=60)
    assert process.returncode == 0


def postmaster(data: Path) -> int | None:
    return embedded._first_line_number(data / "postgres" / "cluster" / "postmaster.pid")


def runs(data: Path) -> bool:
    pid = postmaster(data)
    return pid is not None and embedded._is_server(pid, data / "postgres" / "cluster")


def ask(server: Embedded, query: str) -> object:
    async def fetch() -> object:
        connection = await asyncpg.connect(server.dsn)
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    return asyncio.run(fetch())


@contextlib.contextmanager
def serving(data: Path) -> Iterator[Embedded]:
    server = embedded.start(data)
    try:
        yield server
    finally:
        server.release()


def test_it_answers_keeps_what_was_stored_and_stops_with_its_last_user(data: Path) -> None:
    with serving(data) as server:
        ask(server, "CREATE TABLE kept AS SELECT 42 AS answer")
        with serving(data):
            pass
        assert runs(data)
    assert not runs(data)
    with serving(data) as server:
        assert ask(server, "SELECT answer FROM kept") == 42
    server.release()  # harmless


def test_what_is_committed_is_on_disk_and_nothing_listens_on_the_network(data: Path) -> None:
    wanted = {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "listen_addresses": "",
        "server_encoding": "UTF8",
        "log_min_error_statement": "panic",
        "data_checksums": "on",
    }
    with serving(data) as server:
        for name, value in wanted.items():
            assert ask(server, f"SHOW {name}") == value, name


def test_only_its_owner_gets_near_it(data: Path) -> None:
    with serving(data) as server:
        home = data / "postgres"
        for folder in (data, home, home / "cluster", home / "socket"):
            assert folder.stat().st_mode & 0o777 == 0o700, folder
        for file in (home / "password", home / "log", home / "cluster" / "postgresql.conf"):
            assert file.stat().st_mode & 0o077 == 0, file
        wrong = server.dsn.replace(server._password, "wrong")
        with pytest.raises(asyncpg.InvalidPasswordError):
            asyncio.run(asyncpg.connect(wrong))
        password = (home / "password").read_text().strip()
        assert password not in (home / "log").read_text()
        assert password not in repr(server)
        assert not (home / "password.initdb").exists()


def test_it_inherits_no_secret_and_shares_no_memory_outside_its_folder(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIGHTBOOK_TOKEN", "not-for-the-database")
    with serving(data):
        environment = Path(f"/proc/{postmaster(data)}/environ").read_bytes()
        mapped = Path(f"/proc/{postmaster(data)}/maps").read_text()
    assert "/dev/shm" not in mapped, "what a killed server has there would stay there"
    assert b"not-for-the-database" not in environment
    assert b"NIGHTBOOK" not in environment


def test_two_processes_at_once_on_an_empty_folder_share_one_server(
    data: Path, hold: Callable[[], "subprocess.Popen[str]"]
) -> None:
    first, second = hold(), hold()
    assert started(first)
    assert started(second)
    pid = postmaster(data)
    go(first)
    assert postmaster(data) == pid
    assert runs(data)
    go(second)
    assert not runs(data)


def test_threads_of_one_process_share_it_too(data: Path) -> None:
    servers: list[Embedded] = []
    threads = [threading.Thread(target=lambda: servers.append(embedded.start(data))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(servers) == 4
    for server in servers:
        assert runs(data)
        server.release()
    assert not runs(data)


def test_it_starts_inside_a_running_event_loop(data: Path) -> None:
    async def start() -> None:
        embedded.start(data).release()

    asyncio.run(start())


def test_a_killed_user_leaves_a_server_that_the_next_one_takes_and_stops(
    data: Path, hold: Callable[[], "subprocess.Popen[str]"]
) -> None:
    killed = hold()
    assert started(killed)
    pid = postmaster(data)
    killed.kill()
    killed.wait()
    assert runs(data)
    with serving(data):
        assert postmaster(data) == pid
    assert not runs(data)


def test_kill_9_of_everything_loses_nothing(data: Path, hold: Callable[[], "subprocess.Popen[str]"]) -> None:
    process = hold()
    assert started(process)
    with serving(data) as server:
        ask(server, "CREATE TABLE kept AS SELECT 42 AS answer")
        process.kill()
        for pid in processes(data):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not processes(data))
    assert postmaster(data) is not None, "the stale file is what this test is about"
    with serving(data) as server:
        assert ask(server, "SELECT answer FROM kept") == 42


def test_backends_that_outlive_their_postmaster_are_ended(data: Path) -> None:
    server = embedded.start(data)

    def busy() -> None:
        with contextlib.suppress(asyncpg.PostgresError, OSError):
            ask(server, "SELECT sum(i) FROM generate_series(1, 100000000000) i")

    thread = threading.Thread(target=busy)
    thread.start()
    until(lambda: ask(server, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT sum%'") == 1)
    pid = postmaster(data)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with serving(data) as again:
        assert ask(again, "SELECT 1") == 1
        assert postmaster(data) != pid
    thread.join(20)
    assert not thread.is_alive()
    server.release()


def test_a_stale_pid_that_is_somebody_elses_by_now_is_seen_through(data: Path) -> None:
    with serving(data):
        pass
    stale = data / "postgres" / "cluster" / "postmaster.pid"
    stale.write_text(f"{os.getpid()}\n{data}/postgres/cluster\n1700000000\n5432\n{data}/postgres/socket\n\n\nready\n")
    with serving(data) as server:
        assert ask(server, "SELECT 1") == 1
        assert postmaster(data) != os.getpid()


def test_an_initdb_that_was_cut_short_is_done_again(data: Path) -> None:
    half = data / "postgres" / "cluster.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    with serving(data) as server:
        assert ask(server, "SELECT 1") == 1
    assert not half.exists()


@pytest.mark.parametrize("name", ["long-" + "x" * 120, "with 'quotes\" and, comma, grüße & $HOME `id`"])
def test_any_path_will_do(data: Path, name: str) -> None:
    place = data / name
    with serving(place) as server:
        assert ask(server, "SELECT 1") == 1
        folder = Path(parse_qs(urlsplit(server.dsn).query)["host"][0])
        assert len(os.fsencode(folder / ".s.PGSQL.5432")) <= 107
        assert folder.stat().st_mode & 0o777 == 0o700
    assert folder.parent == place / "postgres" or not folder.exists()


def test_a_socket_folder_of_somebody_else_is_refused(data: Path, tmp_path: Path) -> None:
    place = data / ("x" * 120)
    squatted = embedded._socket_folder(place.absolute() / "postgres")
    squatted.symlink_to(tmp_path)
    try:
        with pytest.raises(StoreUnavailable, match="belongs to someone else"):
            embedded.start(place)
    finally:
        squatted.unlink()
    assert not list(tmp_path.iterdir())


def test_a_cluster_of_another_version_is_told_and_not_touched(data: Path) -> None:
    cluster = data / "postgres" / "cluster"
    cluster.mkdir(parents=True)
    (cluster / "PG_VERSION").write_text("17\n")
    (data / "postgres" / "password").write_text("x\n")
    with pytest.raises(StoreUnavailable, match="made by PostgreSQL 17, this Nightbook brings 18"):
        embedded.start(data)
    assert [path.name for path in cluster.iterdir()] == ["PG_VERSION"]


def test_a_lost_password_is_told(data: Path) -> None:
    with serving(data):
        pass
    (data / "postgres" / "password").unlink()
    with pytest.raises(StoreUnavailable, match="password is missing"):
        embedded.start(data)


def test_a_server_that_cannot_start_is_told_in_one_line(data: Path) -> None:
    with serving(data):
        pass
    (data / "postgres" / "cluster" / "global" / "pg_control").unlink()
    with pytest.raises(StoreUnavailable) as caught:
        embedded.start(data)
    said = str(caught.value)
    assert "\n" not in said
    assert "pg_control" in said
    assert str(data) in said
    assert "NIGHTBOOK_DATABASE_URL" in said


def test_a_folder_that_cannot_be_made_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="cannot be started: Not a directory"):
        embedded.start(tmp_path / "file" / "data")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another way to run PostgreSQL")
def test_root_without_namespaces_runs_it_as_nobody(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unprivileged.shutil, "which", lambda name: None)
    try:
        data.parent.chmod(0o711)  # the test's own folder; nobody has to get through
        with serving(data) as server:
            assert ask(server, "SELECT 1") == 1
            assert Path(f"/proc/{postmaster(data)}").stat().st_uid not in {0, os.geteuid()}
            assert (data / "postgres" / "password").stat().st_mode & 0o777 == 0o600
    except StoreUnavailable as error:
        if "cannot reach" in str(error):
            pytest.skip("the Python environment is in a folder that only root may enter")
        raise


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another way to run PostgreSQL")
def test_root_without_any_way_is_told_what_to_do(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unprivileged.shutil, "which", lambda name: None)
    assert data.parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(StoreUnavailable, match="run Nightbook as an ordinary user"):
        embedded.start(data)
    assert data.parent.stat().st_mode & 0o777 == 0o700, "no folder outside DATA is touched"


def processes(data: Path) -> list[int]:
    """The live server processes of `data`."""
    cluster = data / "postgres" / "cluster"
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in pids if embedded._is_server(pid, cluster)]


def test_a_server_that_killed_processes_left_running_can_be_stopped(tmp_path: Path) -> None:
    used = embedded.start(tmp_path)
    try:
        assert not embedded.stop_unused(tmp_path), "one in use is left alone"
        assert used._in_use is not None
        os.close(used._in_use)  # what a kill does to its locks
        used._in_use = None
        assert embedded.stop_unused(tmp_path)
        assert not (tmp_path / "postgres" / "cluster" / "postmaster.pid").exists()
        assert not embedded.stop_unused(tmp_path)
    finally:
        used.release()
