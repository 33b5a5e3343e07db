"""The engine's side of a sandbox, in trio: join or start the shim, send it requests, take its records.

Two connections: one for requests, answered at once, and one for records, which is read only when the engine asks for
more, so that a slow engine slows the shim's sending and nothing else. Every request may be sent twice (the shim knows
runs and keys), so a connection that broke is simply made anew; the shim itself is lost only when its lock is free.
"""

import fcntl
import itertools
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from engine.sandbox.isolation import PACKAGE_ROOT, Place, choose, python_prefixes, shared_memory_for
from engine.sandbox.program import Program
from engine.sandbox.program import SandboxError as SandboxError

START_SECONDS = 30.0
RECONNECT_SECONDS = 10.0
_RECEIVE_BYTES = 256 * 1024
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from engine.sandbox.shim import main; "
    "main(sys.argv[2], int(sys.argv[3]))"
)


class SandboxLost(SandboxError):
    """The shim is gone, and with it the kernel's variables."""


class SandboxAlive(SandboxError):
    """A shim serves the notebook already, or is on its way up or down: join it, or try again in a moment."""


class Fenced(SandboxError):
    """An engine with a higher epoch has taken over this sandbox."""


def _memory(config: "SandboxConfig") -> int:
    """The limit; by default three quarters of the machine's."""
    return config.memory_bytes or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4


@dataclass(frozen=True)
class SandboxConfig:
    """Where and how the sandboxes of one server run.

    `root/<notebook>/` holds a sandbox's state (mode 0700), `workspaces/<notebook>/` what its code sees. `isolation` is
    auto, bubblewrap or process. `orphan_seconds`: how long an idle shim waits for an engine to come back.
    """

    root: Path
    workspaces: Path
    isolation: str = "auto"
    orphan_seconds: float = 600.0
    python: str = sys.executable
    processes: int = 512
    memory_bytes: int = 0  # 0: three quarters of the machine's
    spool_bytes: int = 256 * 1024 * 1024

    def folder(self, notebook_id: str) -> Path:
        return self.root / notebook_id

    def workspace(self, notebook_id: str) -> Path:
        return self.workspaces / notebook_id


class _Line:
    """One connection to the shim, remade when it breaks. Not shared between tasks: the caller holds a lock."""

    def __init__(self, folder: Path, epoch: int) -> None:
        self._folder = folder
        self._epoch = epoch
        self._stream: trio.SocketStream | None = None
        self._held = bytearray()
        self._searched = 0
        self._ids = itertools.count(1)

    @property
    def open(self) -> bool:
        return self._stream is not None

    async def connect(self) -> None:
        """Raises `SandboxLost` when no shim lives; waits a little for one that does not answer."""
        await self.close()
        with trio.move_on_after(RECONNECT_SECONDS):
            while True:
                try:
                    fd = os.open(self._folder, os.O_DIRECTORY)
                except FileNotFoundError:
                    raise SandboxLost(f"no sandbox has been in {self._folder}") from None
                try:
                    self._stream = await trio.open_unix_socket(f"/proc/self/fd/{fd}/shim.sock")
                except OSError:
                    if not alive(self._folder):
                        raise SandboxLost("the sandbox is gone: its process has ended") from None
                else:
                    return
                finally:
                    os.close(fd)
                await trio.sleep(0.05)
        raise SandboxLost("the sandbox does not answer any more")

    async def close(self) -> None:
        stream, self._stream = self._stream, None
        self._held.clear()
        self._searched = 0
        if stream is not None:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    async def send(self, op: str, fields: dict[str, Any]) -> str:
        """Send a request, return its id. Raises `trio.BrokenResourceError` or `trio.ClosedResourceError`."""
        if self._stream is None:
            raise trio.BrokenResourceError
        name = str(next(self._ids))
        line = json.dumps({"id": name, "op": op, "epoch": self._epoch, **fields}).encode() + b"\n"
        try:
            await self._stream.send_all(line)
        except BaseException:
            await self.close()  # half a line may be out: what follows it would not be understood
            raise
        return name

    async def receive(self) -> dict[str, Any]:
        """The next message. Raises `trio.BrokenResourceError` at the end. May be cancelled without losing anything."""
        while True:
            end = self._held.find(b"\n", self._searched)
            if end >= 0:
                line = bytes(self._held[:end])
                del self._held[: end + 1]
                self._searched = 0
                body: dict[str, Any] = json.loads(line)
                return body
            self._searched = len(self._held)
            if self._stream is None:
                raise trio.BrokenResourceError
            data = await self._stream.receive_some(_RECEIVE_BYTES)
            if not data:
                raise trio.BrokenResourceError
            self._held += data

    async def answer(self, name: str) -> dict[str, Any]:
        """The answer to one request; older ones, whose senders were cancelled, are passed over."""
        while True:
            body = await self.receive()
            if body.get("id") == name:
                if body["ok"]:
                    return body
                if body["error"] == "fenced":
                    raise Fenced("an engine with a higher epoch has taken over this sandbox")
                raise SandboxError(body["error"])


class Sandbox:
    """A live sandbox. All methods may be called from several tasks at once, and cancelled.

    `kernel` is none, starting, ready or gone, as of the last record handed out; `runs` what the shim said at the
    beginning, by run id. Every method may raise `SandboxLost` or `Fenced`.
    """

    def __init__(self, config: SandboxConfig, notebook_id: str, epoch: int) -> None:
        self.id = ""
        self.isolation = ""
        self.kernel = "none"
        self.runs: dict[str, dict[str, Any]] = {}
        self._folder = config.folder(notebook_id)
        self._epoch = epoch
        self._requests = _Line(self._folder, epoch)
        self._records = _Line(self._folder, epoch)
        self._questions = _Line(self._folder, epoch)  # of their own: a stop must not wait behind one
        self._questioning = trio.Lock()
        self._requesting = trio.Lock()
        self._reading = trio.Lock()
        self._after = 0
        self._closed = False

    @classmethod
    async def join(
        cls, config: SandboxConfig, notebook_id: str, epoch: int, after: Callable[[str], int]
    ) -> "Sandbox | None":
        """Connect to the shim that runs already; None when there is none alive.

        `after(sandbox_id)` says which record of that sandbox was the last to be committed; 0 for one not known.
        """
        sandbox = cls(config, notebook_id, epoch)
        try:
            hello = await sandbox._request("hello", after=None)
        except SandboxLost:
            return None
        sandbox._take(hello)
        sandbox._after = after(sandbox.id)
        return sandbox

    @classmethod
    async def start(cls, config: SandboxConfig, notebook_id: str, epoch: int) -> "Sandbox":
        """Start a new shim and connect to it. What a dead one left behind is cleaned away, but not the known runs.

        Raises `SandboxAlive` when there is one already, `SandboxError` when it cannot be started,
        `IsolationUnavailable` when bubblewrap was demanded and does not work, `Fenced` when an engine with a higher
        epoch was here before.
        """
        await trio.to_thread.run_sync(_launch, config, notebook_id)
        sandbox = cls(config, notebook_id, epoch)
        sandbox._take(await sandbox._request("hello", after=None))
        return sandbox

    def _take(self, hello: dict[str, Any]) -> None:
        self.id, self.isolation = hello["sandbox"], hello["isolation"]
        self.kernel, self.runs = hello["kernel"], hello["runs"]

    async def execute(self, run_id: str, kind: str, code: str, stdin: bool = True, cell_id: str | None = None) -> str:
        """Start a run (`kind` python or shell) and return its state, running or ended. A known run is not started.

        Without `stdin` nobody is there to ask: `input()` raises EOFError, and a shell reads an empty input. Tracebacks
        name `cell_id` as the place of the code.
        """
        state: str = (await self._request("execute", run=run_id, kind=kind, code=code, stdin=stdin, cell=cell_id))[
            "state"
        ]
        return state

    async def stop(self, run_id: str) -> None:
        """Begin to stop a run; its end comes as a record within 2 s. A run that is not running: no effect."""
        await self._request("stop", run=run_id)

    async def answer(self, run_id: str, key: str, input_id: str | None, text: str) -> bool:
        """Give a line of input; False when nothing waited for it. The same `key` is delivered once."""
        delivered: bool = (await self._request("answer", run=run_id, key=key, input=input_id, text=text))["delivered"]
        return delivered

    async def question(self, kind: str, code: str, at: int) -> dict[str, Any]:
        """Asks the kernel to `complete` or `inspect` at code point `at`; empty when it is not idle.

        A kernel that hangs never answers: the caller sets a limit.
        """
        async with self._questioning:
            try:
                if not self._questions.open:
                    await self._questions.connect()
                name = await self._questions.send("question", {"kind": kind, "code": code, "at": at})
                answer: dict[str, Any] = (await self._questions.answer(name))["answer"]
                return answer
            except Fenced:
                raise
            except (trio.BrokenResourceError, trio.ClosedResourceError, SandboxError):
                return {}

    async def serve(self, program: Sequence[str], environment: Mapping[str, str]) -> "Program":
        """Start a program that talks over pipes, isolated as a shell cell is. It lives until its `Program` is closed.

        `environment` comes on top of the built one. Raises `SandboxError` when it cannot be started.
        """
        fields = {"program": list(program), "environment": dict(environment)}
        return await Program.start(self._folder, {"id": "1", "op": "serve", "epoch": self._epoch, **fields})

    async def restart_kernel(self, key: str) -> None:
        """End the kernel and start a new one, once for each `key`."""
        await self._request("restart_kernel", key=key)

    async def ack(self, upto: int) -> None:
        """Records up to this number are committed: the shim may forget them."""
        await self._request("ack", upto=upto)

    async def status(self) -> dict[str, Any]:
        """`processes`, `memory` and `spool` (bytes), `kernel`, `idle` (seconds), `runs` going on, `pid` of the shim."""
        return await self._request("status")

    async def shutdown(self) -> None:
        """Stop everything, then the shim. Returns when it is gone."""
        with suppress(SandboxLost):
            await self._request("shutdown")
            while alive(self._folder):  # noqa: ASYNC110  another process lets go of a lock: no event tells it
                await trio.sleep(0.02)

    def end_if_frozen(self) -> bool:
        """Kills the shim if a signal has stopped its process: it would never end by itself. Returns whether it did."""
        fd = os.open(self._folder, os.O_PATH)
        try:
            with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
                connection.setblocking(False)
                connection.connect(f"/proc/self/fd/{fd}/shim.sock")
                told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
                pid: int = struct.unpack("3i", told)[0]
                state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1]
                if state in (b"T", b"t"):
                    os.kill(pid, signal.SIGKILL)
                    return True
        finally:
            os.close(fd)
        return False

    async def records(self) -> list[dict[str, Any]]:
        """Wait for the next records, in order, each once. About 128 KiB at a time; more only if one is larger."""
        async with self._reading:
            while True:
                try:
                    if not self._records.open:
                        await self._follow()
                    body = await self._records.receive()
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    self._check_open()
                    await self._records.close()
                    continue
                fresh = [record for record in body.get("records", ()) if record["n"] > self._after]
                if fresh:
                    if fresh[0]["n"] != self._after + 1:
                        raise SandboxError(f"records {self._after + 1} to {fresh[0]['n'] - 1} are missing")
                    self._after = fresh[-1]["n"]
                    for record in fresh:
                        if record["t"] == "kernel":
                            self.kernel = record["state"]
                    return fresh

    async def _follow(self) -> None:
        await self._records.connect()
        try:
            hello = await self._records.answer(await self._records.send("hello", {"after": self._after}))
        except BaseException:
            await self._records.close()
            raise
        if hello["sandbox"] != self.id:
            await self._records.close()
            raise SandboxLost("the sandbox is gone: another one has taken its place")

    async def aclose(self) -> None:
        """Let go of the shim. It goes on. Whoever waits in another method gets `trio.ClosedResourceError`."""
        self._closed = True
        for line in (self._requests, self._records, self._questions):
            await line.close()

    async def _request(self, op: str, **fields: Any) -> dict[str, Any]:
        async with self._requesting:
            while True:
                try:
                    if not self._requests.open:
                        await self._introduce()
                    return await self._requests.answer(await self._requests.send(op, fields))
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    self._check_open()
                    await self._requests.close()

    def _check_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this end of the sandbox was closed")

    async def _introduce(self) -> None:
        """After a broken connection: make sure that it is still the same sandbox before anything is sent again."""
        await self._requests.connect()
        if not self.id:
            return
        try:
            hello = await self._requests.answer(await self._requests.send("hello", {"after": None}))
        except BaseException:
            await self._requests.close()
            raise
        if hello["sandbox"] != self.id:
            await self._requests.close()
            raise SandboxLost("the sandbox is gone: another one has taken its place")


def alive(folder: Path) -> bool:
    """Whether a shim holds the folder's lock. Its process id says nothing: ids are used again."""
    try:
        fd = os.open(folder / "lock", os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _launch(config: SandboxConfig, notebook_id: str) -> None:
    """In a thread: prepare the folders, start the shim, wait until it listens."""
    if not notebook_id or notebook_id in (".", "..") or "/" in notebook_id or "\0" in notebook_id:
        raise SandboxError(f"{notebook_id!r} is no name for a folder")
    folder, workspace = config.folder(notebook_id), config.workspace(notebook_id)
    config.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "start.lock").open("w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)  # one launch at a time: the next one finds this one's shim alive
        _launch_alone(config, notebook_id, folder, workspace)


def _launch_alone(config: SandboxConfig, notebook_id: str, folder: Path, workspace: Path) -> None:
    if alive(folder):
        raise SandboxAlive(f"a sandbox of {notebook_id} is alive already: join it")
    temporary = folder / "tmp"
    _empty(temporary)
    temporary.mkdir(mode=0o700)
    for left in folder.glob("output-*"):
        left.unlink()
    place = _place(config, workspace, temporary)
    settings = {
        "place": {
            "mode": place.mode, "workspace": place.workspace, "temporary": place.temporary, "python": place.python,
            "prefixes": place.prefixes, "hidden": place.hidden, "shared_memory": place.shared_memory,
        },
        "limits": {
            "processes": config.processes, "memory_bytes": _memory(config), "spool_bytes": config.spool_bytes,
        },
        "orphan_seconds": config.orphan_seconds,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(settings))
    read, write = os.pipe()
    try:
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [config.python, "-I", "-S", "-c", _START, str(PACKAGE_ROOT), str(folder), str(write)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"}, pass_fds=(write,), start_new_session=True,
            )  # fmt: skip
        os.close(write)
        write = -1
        process.wait(START_SECONDS)
        told = b""
        while not told.endswith(b"\n") and (data := os.read(read, 4096)):
            told += data
    finally:
        os.close(read)
        if write >= 0:
            os.close(write)
    if told != b"ready\n":
        raise SandboxError(
            f"the sandbox could not be started: {told.decode('utf-8', 'replace').strip() or 'see its log'}"
        )


def _place(config: SandboxConfig, workspace: Path, temporary: Path) -> Place:
    hidden = tuple(dict.fromkeys(str(path.resolve()) for path in (config.root, config.workspaces)))
    prefixes = python_prefixes(config.python)
    shared = shared_memory_for(_memory(config)) if config.isolation != "process" else 0
    isolated = Place(
        mode="bubblewrap", workspace=str(workspace.resolve()), temporary=str(temporary.resolve()),
        python=config.python, prefixes=prefixes, hidden=hidden, shared_memory=shared,
    )  # fmt: skip
    return isolated._replace(mode=choose(config.isolation, isolated))


def _empty(folder: Path) -> None:
    """Remove a folder that notebook code could fill with anything; links in it are not followed."""
    import shutil

    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
