"""What a whole run of tests leaves behind fails it: processes, sockets, shared memory, temporary folders.

Everything of one run is found by a mark of its own, so runs side by side on one machine do not see each other. Its
processes inherit the variable `SUITE_RUN`, and all folders made with `tempfile` lie below one folder of the run (pytest
keeps its own elsewhere, those of failed tests among them). Programs in sandboxes and PostgreSQL inherit none, but
they name one of these folders. Shared memory has no mark: it is looked at only where no other run is under way.
"""

import fcntl
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

MARK = "SUITE_RUN"
PREFIX = "nightbook-suite-"
ENDING_SECONDS = 15.0  # for what is on its way out
TIDY_SECONDS = 3600.0  # how old the folder of a run is that was cut off, when the next one removes it
SHARED = Path("/dev/shm")


class Run:
    """One run of pytest, over all its processes. `place` holds its temporary folders, one folder a process."""

    def __init__(self, config: pytest.Config) -> None:
        self.name = secrets.token_hex(8)
        self.outside = tempfile.gettempdir()
        _tidy(Path(self.outside))
        self.place = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = os.open(self.place, os.O_RDONLY)  # held for as long as the run lasts
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        self.place.chmod(0o1777)  # as the folder it stands for: tests try accounts without rights, too
        self.ended = float("inf")
        self.config = config
        self.shared = _names(SHARED)
        os.environ[MARK] = self.name
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", self.outside)

    def left(self) -> list[str]:
        """What is left, each with the test that it came from as far as that is known."""
        deadline = time.monotonic() + ENDING_SECONDS
        while (found := [*self._processes(), *self._folders(), *self._shared()]) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    def close(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        os.close(self._lock)

    def _processes(self) -> Iterator[str]:
        factory: Any = getattr(self.config, "_tmp_path_factory", None)
        kept = getattr(factory, "_basetemp", None)
        folders = [str(folder) for folder in (self.place, kept) if folder is not None]
        for process in psutil.process_iter():
            try:
                variables, told = process.environ(), [*process.cmdline(), process.cwd()]
                # A younger one is of another run, to which pytest gave the number of the folder that we had.
                strange = process.status() == psutil.STATUS_ZOMBIE or process.create_time() > self.ended
            except psutil.Error:
                continue
            if strange or process.pid == os.getpid():
                continue
            if variables.get(MARK) == self.name or any(
                f"{folder}/" in f"{part}/" for folder in folders for part in told
            ):
                yield f"process {process.pid} {' '.join(told)[:160]}{_of(variables.get('PYTEST_CURRENT_TEST'))}"

    def _folders(self) -> Iterator[str]:
        for process in sorted(path for path in self.place.iterdir() if path.is_dir()):
            notes = _notes(process)
            for name in sorted(_names(process) - {NOTES}):
                yield f"folder {process / name}{_of(notes.get(name))}"

    def _shared(self) -> Iterator[str]:
        """Nobody uses it, and it was not there when the run began."""
        new = {name for name in _names(SHARED) - self.shared if not name.startswith(".")}
        new = {name for name in new if _own(SHARED / name)}
        if new and not self._beside():
            used = {name for name in new if any(f"{SHARED / name}" in maps for maps in _all_maps())}
            yield from (f"shared memory {SHARED / name}" for name in sorted(new - used))

    def _beside(self) -> bool:
        """Whether another run is under way: a process with another mark."""
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK, self.name) != self.name:
                    return True
            except psutil.Error:
                continue
        return False


NOTES = ".made-by"  # in the folder of a process: what was new behind each test


def _tidy(outside: Path) -> None:
    """Removes what runs left that were killed: they hold the lock on their folder no more."""
    for folder in outside.glob(f"{PREFIX}*"):
        try:
            old = time.time() - folder.stat().st_mtime > TIDY_SECONDS
            lock = os.open(folder, os.O_RDONLY)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if old:
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue
        finally:
            os.close(lock)


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except OSError:
        return set()


def _own(path: Path) -> bool:
    try:
        return path.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _all_maps() -> Iterator[str]:
    for process in psutil.process_iter():
        try:
            yield Path(f"/proc/{process.pid}/maps").read_text()
        except OSError:
            continue


def _notes(folder: Path) -> dict[str, str]:
    try:
        lines = (folder / NOTES).read_text().splitlines()
    except OSError:
        return {}
    return {name: test for name, _, test in (line.partition(" ") for line in lines)}


def _of(test: str | None) -> str:
    return f", from {test.partition(' (')[0]}" if test else ""


_run = pytest.StashKey[Run]()
_seen: set[str] = set()


def pytest_configure(config: pytest.Config) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a run that is ended tidies up, too
    part_of_another = MARK in os.environ  # one of several processes of a run, or started by a test
    if not part_of_another:
        run = config.stash[_run] = Run(config)
        place = run.place
    elif hasattr(config, "workerinput"):
        place = Path(config.workerinput["place"])
    else:
        return
    own = place / getattr(config, "workerinput", {}).get("workerid", "main")
    own.mkdir(mode=0o1777)
    own.chmod(0o1777)
    os.environ["TMPDIR"] = str(own)
    tempfile.tempdir = None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a process of the run where its temporary folders go."""
    if (run := node.config.stash.get(_run, None)) is not None:
        node.workerinput["place"] = str(run.place)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish(nodeid: str) -> None:
    """Notes which temporary folders are new behind a test."""
    folder = Path(tempfile.gettempdir())
    if MARK in os.environ and (new := _names(folder) - _seen - {NOTES}):
        _seen.update(new)
        with (folder / NOTES).open("a") as notes:
            notes.writelines(f"{name} {nodeid}\n" for name in sorted(new))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    run = session.config.stash.get(_run, None)
    if run is not None:
        run.ended = time.time()
    yield
    if run is None:
        return
    left = run.left()
    run.close()
    if left:
        reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
        reporter.section("left behind by this run", red=True)
        for line in left:
            reporter.line(line)
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
