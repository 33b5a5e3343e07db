"""Which processes run on a data folder, for `nightbook status` and `nightbook stop`.

Each process keeps a file in DATA/run, locked for its life. The lock is the truth: the kernel drops it when the process
dies in any way, while a process number may long belong to somebody else.
"""

import contextlib
import fcntl
import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self


@dataclass(frozen=True)
class Running:
    """A process that runs now. `role` is serve, web or worker; `started` is in seconds since 1970."""

    pid: int
    role: str
    url: str | None
    started: float


class ProcessFile:
    """Says that this process runs on `data`, until `close` or the process's end.

    `url` is where its pages and API are, as seen from this machine; None for a process that serves none.
    """

    def __init__(self, data: Path, role: str, url: str | None = None) -> None:
        me = Running(os.getpid(), role, url, time.time())
        folder = data / "run"
        folder.mkdir(mode=0o700, exist_ok=True)
        self._fd, name = tempfile.mkstemp(dir=folder, prefix=".new-")
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        os.write(self._fd, json.dumps(asdict(me)).encode())
        self._path = folder / f"{role}-{me.pid}.json"
        os.replace(name, self._path)  # seen only now: locked and whole

    def close(self) -> None:
        """Take the file away. Harmless twice."""
        if self._fd >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def list_running(data: Path) -> list[Running]:
    """List the processes that run on `data`, oldest first; files of dead ones are removed on the way."""
    found = []
    for path in (data / "run").glob("*.json"):
        with contextlib.suppress(FileNotFoundError), open(path) as file:
            if _is_locked(file.fileno()):
                found.append(Running(**json.load(file)))
            elif os.path.samestat(os.fstat(file.fileno()), path.stat()):
                path.unlink()
    return sorted(found, key=lambda one: one.started)


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
