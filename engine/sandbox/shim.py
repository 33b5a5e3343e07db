"""The shim: the first process of a notebook's sandbox. It outlives the server, and nothing of it depends on a viewer.

Standard library only, and little of that: it must stay under 20 MiB. It is started by `client` in a session of its own
with a built environment, holds the lock of its state folder for life (that is how others see it live), and speaks the
protocol of docs/architecture.md on a Unix socket in that folder.
"""

import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import sys
import time
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.sandbox import processes
from engine.sandbox.isolation import Place
from engine.sandbox.kernel_host import KernelHost
from engine.sandbox.loop import Loop
from engine.sandbox.peer import Peer
from engine.sandbox.run import Run
from engine.sandbox.served import Served
from engine.sandbox.shell_run import ShellRun
from engine.sandbox.spool import RunBook, Spool

WATCH_SECONDS = 0.5
WATCH_IDLE_SECONDS = 2.0
LONGEST_RUN_SECONDS = 24 * 3600.0
PURGE_SECONDS = 3600.0
GOODBYE_SECONDS = 1.0
_RUN_ID = re.compile(r"[A-Za-z0-9_.:-]{1,100}\Z")  # what commands allow


class Refused(Exception):
    """A request that is answered with `ok: false`."""


class Shim:
    """One notebook's sandbox. The caller holds the lock of `folder`, its state folder; `mark` finds its processes."""

    def __init__(self, folder: Path, name: str, mark: str, config: dict[str, Any]) -> None:
        self.id = name
        self.loop = Loop()
        self._folder = folder
        self._limits = config["limits"]
        self._orphan_seconds = float(config["orphan_seconds"])
        config["place"]["prefixes"] = tuple(config["place"]["prefixes"])
        config["place"]["hidden"] = tuple(config["place"]["hidden"])
        self._place = Place(**config["place"])
        self._mark = mark
        self.spool = Spool(folder / "spool", int(self._limits["spool_bytes"]))
        self.book = RunBook(folder / "runs.jsonl")
        self._runs: dict[str, Run] = {}
        self._shells: dict[str, ShellRun] = {}
        self._served: dict[Peer, Served] = {}  # by the connection that each lives as long as
        self._children: dict[int, Callable[[int], None]] = {}
        self._keys: dict[str, dict[str, Any]] = {}
        self._paused = False
        self._ending = False
        self._alone_since = self._busy_since = time.monotonic()
        self._used = time.monotonic()
        self.peers: list[Peer] = []
        self.receiver: Peer | None = None
        self.kernel = KernelHost(self._place, self.loop, f"{self._mark}:kernel", self.record, self._adopt)
        signals = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
        self.loop.watch_signals(signals, self._signal)
        self._listen()
        self.loop.after(WATCH_SECONDS, self._watch)
        self.loop.after(PURGE_SECONDS, self._purge)

    # Records.

    def record(self, body: dict[str, Any]) -> None:
        self.spool.append(body)
        if self.receiver is not None:
            self.receiver.wake()
        self._mind_spool()

    def _mind_spool(self) -> None:
        if self.spool.full != self._paused:
            self._paused = self.spool.full
            self.kernel.pause(self._paused)
            for shell in list(self._shells.values()):
                shell.pause(self._paused)

    # Connections.

    def _listen(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self._folder / "shim.sock").unlink()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # A Unix address has at most 107 bytes; through the folder's descriptor its path may be as long as it likes.
        fd = os.open(self._folder, os.O_DIRECTORY)
        self._socket.bind(f"/proc/self/fd/{fd}/shim.sock")
        os.close(fd)
        self._socket.listen(16)
        self._socket.setblocking(False)
        self.loop.reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._socket.accept()
            self.peers.append(Peer(self, connection))

    def left(self, peer: Peer) -> None:
        """A connection is closed."""
        self.peers.remove(peer)
        if (served := self._served.pop(peer, None)) is not None:
            served.kill()
        if self.receiver is peer:
            self.receiver = None
        if not self.peers:
            self._alone_since = time.monotonic()

    # Requests: each returns what the answer holds besides `id` and `ok`.

    def request(self, peer: Peer, body: dict[str, Any]) -> dict[str, Any] | None:
        """The answer; null when it comes later, by `peer.reply`. Raises `Refused`."""
        op, epoch = body.get("op"), body.get("epoch")
        handler = getattr(self, f"_op_{op}", None)
        if handler is None or not isinstance(epoch, int):
            raise Refused(f"no such request: {op!r}, epoch {epoch!r}")
        if epoch < self.book.epoch:
            raise Refused("fenced")
        self._used = time.monotonic()
        self.book.seen(epoch)
        peer.epoch = epoch
        for other in list(self.peers):
            if other.epoch is not None and other.epoch < epoch:
                other.close()
        answer: dict[str, Any] | None = handler(peer, body)
        return answer

    def _op_hello(self, peer: Peer, body: dict[str, Any]) -> dict[str, Any]:
        after = body.get("after")
        if after is not None:
            try:
                cursor = self.spool.cursor(int(after))
            except ValueError as problem:
                raise Refused(str(problem)) from problem
            if self.receiver is not None and self.receiver is not peer:
                self.receiver.cursor = None
            self.receiver, peer.cursor = peer, cursor
        return {
            "sandbox": self.id, "last": self.spool.last, "isolation": self._place.mode, "kernel": self.kernel.state,
            "runs": self.book.runs,
        }  # fmt: skip

    def _op_execute(self, _peer: Peer, body: dict[str, Any]) -> dict[str, Any]:
        name, kind, code = body["run"], body["kind"], body["code"]
        if not isinstance(name, str) or not _RUN_ID.match(name) or kind not in ("python", "shell"):
            raise Refused(f"no such run: {name!r} of kind {kind!r}")
        if not isinstance(code, str):
            raise Refused("the code is not text")
        if not (body.get("cell") is None or (isinstance(body["cell"], str) and _RUN_ID.match(body["cell"]))):
            raise Refused("the cell's id is none")
        known = self.book.runs.get(name)
        if known is not None:
            return {"state": known["state"]}
        if self._ending:
            raise Refused("the sandbox is being shut down")
        try:
            self.book.begin(name, kind)
        except OSError as problem:
            self.book.runs.pop(name, None)
            raise Refused(f"the run cannot be noted on disk, so it is not started: {problem}") from problem
        run = self._runs[name] = Run(
            name, kind, code, loop=self.loop, record=self.record, ended=self._ended, workspace=self._place.workspace,
            raw=str(self._folder / f"output-{name}"), stdin=bool(body.get("stdin", True)), cell=body.get("cell"),
        )  # fmt: skip
        if kind == "python":
            self.kernel.execute(run)
        else:
            shell = ShellRun(run, self._place, self.loop, f"{self._mark}:{name}")
            if shell.tree is not None:
                self._shells[name] = shell
                self._adopt(shell.tree.pid, shell.died)
                shell.pause(self._paused)
        return {"state": self.book.runs[name]["state"]}

    def _op_serve(self, peer: Peer, body: dict[str, Any]) -> None:
        program, environment = body["program"], body["environment"]
        if not program or not all(isinstance(word, str) and "\0" not in word for word in program):
            raise Refused("the program is no list of words")
        if not all(isinstance(text, str) and "\0" not in text for pair in environment.items() for text in pair):
            raise Refused("the environment is no table of texts")
        if self._ending:
            raise Refused("the sandbox is being shut down")
        if peer in self._served or peer is self.receiver:
            raise Refused("a connection serves one program, and nothing else")
        try:
            served = Served(self._place, self.loop, f"{self._mark}:served", program, environment, peer)
        except OSError as problem:
            raise Refused(f"it could not be started: {problem}") from problem
        self._served[peer] = served
        self._adopt(served.tree.pid, served.died)
        try:
            peer.hand_over(body["id"], served.fds)
        except OSError:
            peer.close()
        finally:
            served.let_go()

    def _op_stop(self, _peer: Peer, body: dict[str, Any]) -> dict[str, Any]:
        self._stop(str(body["run"]))
        return {}

    def _op_answer(self, _peer: Peer, body: dict[str, Any]) -> dict[str, Any]:
        key, name, text = str(body["key"]), str(body["run"]), str(body["text"])
        if key in self._keys:
            return self._keys[key]
        run, entry = self._runs.get(name), body.get("input")
        if run is None:
            delivered = False
        elif run.kind == "python":
            delivered = entry is not None and self.kernel.run is run and self.kernel.answer(str(entry), text)
        else:
            shell = self._shells.get(name)
            delivered = shell is not None and shell.answer(text)
        if delivered and run is not None:
            run.record("answered", input=entry, key=key)
        return self._remember(key, {"delivered": delivered})

    def _op_question(self, peer: Peer, body: dict[str, Any]) -> None:
        kind, code, at, name = body["kind"], body["code"], int(body["at"]), body["id"]
        if kind not in ("complete", "inspect") or not isinstance(code, str):
            raise Refused(f"no such question: {kind!r}")
        if not self.kernel.question(kind, code, at, lambda answer: peer.reply(name, {"answer": answer})):
            raise Refused("the kernel is busy")

    def _op_restart_kernel(self, _peer: Peer, body: dict[str, Any]) -> dict[str, Any]:
        key = str(body["key"])
        if key not in self._keys:
            self._remember(key, {})
            self.kernel.restart()
        return {}

    def _op_ack(self, _peer: Peer, body: dict[str, Any]) -> dict[str, Any]:
        self.spool.ack(int(body["upto"]))
        self._mind_spool()
        return {}

    def _op_status(self, _peer: Peer, _body: dict[str, Any]) -> dict[str, Any]:
        members = self._members()
        return {
            "sandbox": self.id, "processes": len(members), "memory": processes.resident(members, 1 << 62),
            "kernel": self.kernel.state, "isolation": self._place.mode, "idle": time.monotonic() - self._used,
            "runs": sorted(self._runs), "spool": self.spool.size, "last": self.spool.last, "pid": os.getpid(),
        }  # fmt: skip

    def _op_shutdown(self, _peer: Peer, _body: dict[str, Any]) -> dict[str, Any]:
        self._shut_down()
        return {}

    def _remember(self, key: str, answer: dict[str, Any]) -> dict[str, Any]:
        self._keys[key] = answer
        while len(self._keys) > 10_000:
            del self._keys[next(iter(self._keys))]
        return answer

    # Runs.

    def _stop(self, name: str) -> None:
        run = self._runs.get(name)
        if run is None:
            return
        if run.kind == "python":
            self.kernel.stop(run)
        elif name in self._shells:
            run.stop(self._shells[name])

    def _ended(self, run: Run, status: str, reason: str | None, code: int | None) -> None:
        """Called by the run just before its `ended` is recorded."""
        self._used = time.monotonic()
        processes.give_back_memory()
        self._runs.pop(run.id, None)
        self._shells.pop(run.id, None)
        with contextlib.suppress(OSError):  # no room on the disk: the result is in memory and in the record
            self.book.end(run.id, status, reason, code)

    # Processes.

    def _adopt(self, pid: int, died: Callable[[int], None]) -> None:
        self._children[pid] = died

    def _signal(self, number: int) -> None:
        if number == signal.SIGCHLD:
            # Orphans come back to this process too: reap whoever there is.
            with contextlib.suppress(ChildProcessError):
                while True:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                    if pid == 0:
                        break
                    if (died := self._children.pop(pid, None)) is not None:
                        died(status)
        elif number == signal.SIGTERM:
            self._shut_down()

    def _owners(self) -> list[KernelHost | ShellRun | Served]:
        return [self.kernel, *self._shells.values(), *self._served.values()]

    def _members(self) -> list[processes.Process]:
        seen = processes.table()
        everyone = {p.pid: p for owner in self._owners() for p in owner.members(seen)}
        return list(everyone.values())

    def _watch(self) -> None:
        """Twice a second: limits, the disk, and whether anybody still needs this sandbox."""
        self.loop.after(WATCH_SECONDS if self._runs else WATCH_IDLE_SECONDS, self._watch)
        self.spool.write()
        self._mind_spool()
        if self.kernel.tree is not None or self._shells or self._served:
            self._check_limits()
        now = time.monotonic()
        if self.peers:
            self._alone_since = self._busy_since = now
        elif self._runs or self.spool.acked < self.spool.last:  # what no engine has stored yet must not go, either
            self._alone_since = now
            if now - self._busy_since > LONGEST_RUN_SECONDS:
                self._shut_down()
        elif now - self._alone_since >= self._orphan_seconds:
            self._shut_down()

    def _check_limits(self) -> None:
        most, memory = int(self._limits["processes"]), int(self._limits["memory_bytes"])
        seen = processes.table()
        everyone: dict[int, processes.Process] = {}
        biggest: tuple[int, KernelHost | ShellRun | Served] = (-1, self.kernel)
        crowd: tuple[int, KernelHost | ShellRun | Served] = (-1, self.kernel)
        for owner in self._owners():
            members = owner.members(seen)
            everyone |= {process.pid: process for process in members}
            biggest = max(biggest, (sum(process.pages for process in members), owner), key=lambda pair: pair[0])
            crowd = max(crowd, (len(members), owner), key=lambda pair: pair[0])
        if len(everyone) > most:
            crowd[1].limit(f"too many processes: {len(everyone)}, the limit is {most}")
            return
        used = processes.resident(list(everyone.values()), memory)
        if used > memory:
            biggest[1].limit(f"Out of memory: {used / 2**20:.0f} MiB in use, the limit is {memory / 2**20:.0f} MiB")

    def _purge(self) -> None:
        self.loop.after(PURGE_SECONDS, self._purge)
        with contextlib.suppress(OSError):
            self.book.purge()

    # The end.

    def _shut_down(self) -> None:
        """Stop everything, then this process."""
        if not self._ending:
            self._ending = True
            for name in list(self._runs):
                self._stop(name)
            self.kernel.shut_down()
            for served in self._served.values():
                served.kill()
            self._leave_when_empty(time.monotonic() + 10)

    def _leave_when_empty(self, until: float) -> None:
        if (self._runs or self.kernel.tree is not None) and time.monotonic() < until:
            self.loop.after(0.02, lambda: self._leave_when_empty(until))
            return
        processes.kill_marked(self._mark)
        for peer in list(self.peers):
            peer.wake()
        self._say_goodbye(time.monotonic() + GOODBYE_SECONDS)

    def _say_goodbye(self, until: float) -> None:
        """Let the engine have the last records, if it is listening."""
        if any(peer.behind for peer in self.peers) and time.monotonic() < until:
            self.loop.after(0.02, lambda: self._say_goodbye(until))
            return
        self.loop.stop()


def warden(mark: str) -> None:
    """Without bubblewrap nothing dies with the shim by itself: a forked child waits for its end and kills the rest.

    To be called before the lock is taken: the child would hold it too.
    """
    read, _stays_open = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.closerange(3, read)
        os.closerange(read + 1, 256)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        while os.read(read, 1):
            pass
        processes.kill_marked(mark)
        os._exit(0)
    os.close(read)


def main(folder: str, ready: int) -> None:
    """Become the shim of `folder`; one line to `ready` says `ready` or what is wrong.

    The parent returns at once, so that the shim is nobody's child and the server need not reap it.
    """
    if os.fork():
        os._exit(0)
    os.setsid()
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    os.umask(0o077)
    path = Path(folder).resolve()
    # The same notebook id may exist in another data folder on this machine: the mark names the folder.
    family = f"{zlib.crc32(bytes(path)):08x}-{path.name}:"
    name = os.urandom(16).hex()
    try:
        config = json.loads((path / "config.json").read_bytes())
        if config["place"]["mode"] == "process":
            warden(family + name)
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        for attempt in range(20):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # Whoever only looks whether a shim lives holds it for a moment.
                if attempt == 19:
                    raise
                time.sleep(0.05)
        processes.kill_marked(family)
        processes.become_subreaper()
        shim = Shim(path, name, family + name, config)
    except BlockingIOError:
        os.write(ready, b"another shim serves this notebook\n")
        os._exit(1)
    except Exception as problem:
        os.write(ready, f"{type(problem).__name__}: {problem}\n".encode())
        raise
    os.write(ready, b"ready\n")
    os.close(ready)
    try:
        shim.loop.run()
    except BaseException:
        traceback.print_exc()  # to the log; os._exit would hide it
    finally:
        with contextlib.suppress(OSError):
            (path / "shim.sock").unlink()
        sys.stderr.flush()
        # The lock goes with the process, after everything else.
        os._exit(0)
