"""A real server process with a data folder of its own, which a test may kill and start again.

Its output goes to a file, so that nothing is lost or blocks when a test looks at it late, and a failed test can show
its end. All that runs on the data folder can be listed, down to programs in sandboxes, so that a suite can prove that
it left nothing behind.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from e2e.waiting import until

READY_SECONDS = 120.0  # a busy machine takes its time
ROOT = Path(__file__).resolve().parent.parent


class Server:
    """`nightbook serve`, `web` or `worker` on `data`. The port stays the same over restarts.

    `settings` are the NIGHTBOOK_ variables without their prefix; `launch` is what Python is given to run.
    """

    def __init__(
        self, data: Path, command: str = "serve", *, launch: tuple[str, ...] = ("-m", "app.cli"), **settings: object
    ) -> None:
        self.data = data
        self.port = free_port()
        self.log = data.with_name(f"{data.name}-{command}-{self.port}.log")
        self.process: subprocess.Popen[bytes] | None = None
        self.ready_seconds = 0.0
        self._arguments = [sys.executable, *launch, command]
        self._told_from = 0
        chosen = {"DATA": data, "PORT": self.port} | settings
        self._environment = {key: value for key, value in os.environ.items() if not key.startswith("NIGHTBOOK_")}
        self._environment |= {f"NIGHTBOOK_{name}": str(value) for name, value in chosen.items()}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Starts the process and waits until it says that it is ready."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Starts the process and returns at once."""
        assert not self.running
        with open(self.log, "ab") as log:
            self._told_from = log.tell()
            self._began = time.monotonic()
            self.process = subprocess.Popen(
                self._arguments,
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        until(lambda: "is ready" in self.told() or not self.running, f"{self} is ready", READY_SECONDS)
        assert self.running, f"{self} ended at its start:\n{self.told()}"
        self.ready_seconds = time.monotonic() - self._began

    def told(self) -> str:
        """What the process printed since it was started last."""
        return self.log.read_bytes()[self._told_from :].decode("utf-8", "replace") if self.log.exists() else ""

    @property
    def link(self) -> str:
        """The login link that it printed."""
        found = re.search(r"http://\S+\?token=\S+", self.told())
        assert found, self.told()
        return found[0]

    @property
    def token(self) -> str:
        return self.link.partition("?token=")[2]

    def kill(self) -> None:
        """kill -9, of the server process alone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def wait(self, seconds: float) -> int:
        """Waits for the process to end by itself; returns its exit code."""
        assert self.process is not None
        return self.process.wait(seconds)

    def terminate(self, seconds: float = 40.0) -> int:
        """Asks the process to leave, and waits; returns its exit code."""
        assert self.process is not None
        if self.running:
            self.process.send_signal(signal.SIGTERM)
        return self.wait(seconds)

    def stop_all(self) -> None:
        """Ends what runs on the data folder, programs in sandboxes included: `nightbook stop --sandboxes`."""
        done = subprocess.run(
            [sys.executable, "-m", "app.cli", "stop", "--sandboxes"],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=90,
        )
        if self.process is not None:
            if self.running and done.returncode:
                self.kill()
            self.wait(10)
        assert done.returncode == 0, f"nightbook stop --sandboxes:\n{done.stdout}{done.stderr}"

    def left_behind(self) -> list[str]:
        """Every process that still has to do with the data folder."""
        return [f"{process.pid} {command[:200]}" for process, command in processes_on(self.data)]

    def resident(self) -> int:
        """Bytes of memory of the server process, without PostgreSQL and sandboxes."""
        return int(psutil.Process(self.pid).memory_info().rss)

    def __repr__(self) -> str:
        return f"<{self._arguments[-1]} on {self.data}>"


def processes_on(data: Path) -> Iterator[tuple[psutil.Process, str]]:
    """Processes that name the data folder in their command line, their folder or their environment; with the former."""
    name = str(data)
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            seen = [*command, process.cwd(), *process.environ().values()]
        except psutil.Error:
            continue
        if process.pid != os.getpid() and any(name in part for part in seen):
            yield process, " ".join(command)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
