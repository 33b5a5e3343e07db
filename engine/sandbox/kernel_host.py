"""The shim's side of the Python kernel: starts it, hands it one cell at a time, notices how it ends.

What background threads print between two cells belongs to no run and is dropped; while a cell runs it counts as that
cell's.
"""

import fcntl
import json
import os
import signal
import socket
import struct
import termios
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from engine.sandbox import wire
from engine.sandbox.isolation import Place
from engine.sandbox.loop import Loop
from engine.sandbox.processes import Process, Tree, send, table
from engine.sandbox.run import Run, unfit
from engine.sandbox.spawn import signal_name, spawn

READ_BYTES = 256 * 1024
DRAIN_SECONDS = 1.0
# What a stopped cell started is asked to end, then made to.
GRACE_SECONDS = 0.2
# A kernel that took the interrupt gets so much longer before it is told to terminate.
PATIENCE_SECONDS = 0.6
QUESTIONS = 64  # that a kernel may owe an answer to
SAID_BYTES = 2000  # kept of what a kernel prints before it is ready

# The folder comes back to its place at the front of the path only after: a `queue.py` of the notebook must not keep its
# kernel from starting.
_BOOT = (
    "import sys; sys.path[0] = sys.argv[1]; from engine.sandbox.kernel import main; "
    "sys.path[0] = ''; main(int(sys.argv[2]))"
)


class KernelHost:
    """The Python lane of one notebook. `state` is none, starting, ready or gone."""

    def __init__(
        self, place: Place, loop: Loop, mark: str, record: Callable[[dict[str, Any]], object],
        adopt: Callable[[int, Callable[[int], None]], None],
    ) -> None:  # fmt: skip
        self.state = "none"
        self.tree: Tree | None = None
        self.run: Run | None = None
        self._place = place
        self._loop = loop
        self._mark = mark
        self._record = record
        self._adopt = adopt
        self._queue: deque[Run] = deque()
        self._frames = wire.Unpacker()
        self._socket: socket.socket | None = None
        self._pipes: dict[int, str] = {}
        self._unsent = bytearray()
        self._said = b""  # the end of what a kernel that is not ready yet prints: why it cannot start
        self._status: int | None = None
        self._cleared = False  # after the kernel's end: nothing that it started is left
        self._why: str | None = None
        self._running = False  # between the kernel's `begin` and `end`
        self._reacted = self._raised = False  # what the kernel said of an interrupt
        self._before: set[tuple[int, int]] = set()
        self._pid = 0
        self._paused = False
        self._again = False
        self._asked = 0
        self._questions: dict[int, Callable[[dict[str, Any]], None]] = {}

    # Requests.

    def execute(self, run: Run) -> None:
        """Run it after those before it; starts a kernel when there is none."""
        self._queue.append(run)
        self._next()

    def stop(self, run: Run) -> None:
        if run in self._queue:
            self._queue.remove(run)
            run.end("cancelled", "stopped before it started")
        elif run is self.run:
            run.stop(self)

    def answer(self, key: str, text: str) -> bool:
        if self.state != "ready" or self.run is None or key not in self.run.inputs:
            return False
        self.run.inputs.discard(key)
        self._send({"op": "answer", "input": key, "text": text})
        return True

    def question(self, kind: str, code: str, at: int, answered: Callable[[dict[str, Any]], None]) -> bool:
        """Asks the kernel between two cells; False, and `answered` is never called, when it is not idle."""
        if self.state != "ready" or self.run is not None or self._queue or self._why is not None:
            return False
        self._asked += 1
        self._questions[self._asked] = answered
        while len(self._questions) > QUESTIONS:
            del self._questions[next(iter(self._questions))]
        self._send({"op": "question", "key": self._asked, "kind": kind, "code": code, "at": at})
        return True

    def restart(self) -> None:
        """A new kernel, without variables. The running cell ends; those that wait go on in the new one."""
        self._again = True
        if self.tree is None:
            self._next()
        elif self._why is None:
            self._why = "restarted"
            self.kill()

    def shut_down(self) -> None:
        for run in list(self._queue):
            self.stop(run)
        self._again = False
        if self.tree is not None:
            self._why = self._why or "the sandbox is shut down"
            self.kill()

    def limit(self, reason: str) -> None:
        if self._why is None and self.tree is not None:
            self._why = reason
            self.kill()

    def members(self, processes: dict[int, Process]) -> list[Process]:
        return self.tree.members(processes) if self.tree else []

    def pause(self, paused: bool) -> None:
        """Stop reading while the spool is full: the kernel's pipes fill up and its program waits."""
        self._paused = paused
        if self._status is None:
            for fd in self._pipes:
                self._loop.reader(fd, None if paused else self._reader(fd))
            if self._socket is not None:
                self._loop.reader(self._socket.fileno(), None if paused else self._receive)

    # Stopping the running cell: see run.STOP_STEPS.

    def interrupt(self) -> None:
        """Not at once again when it was raised in the code: that would only break the clean-up."""
        if self._running and self._pid and not self._raised:
            send([self._pid], signal.SIGINT)

    def terminate(self) -> None:
        """Later, if it reacted to the interrupt: then it is at work on its end, or a bare `except` swallowed it."""
        run = self.run
        if self._reacted:
            self._reacted = self._raised = False
            self.interrupt()
            self._loop.after(PATIENCE_SECONDS, lambda: self.terminate() if run is self.run and self._running else None)
            return
        if self._why is None:
            self._why = "stopped by force"
        if self._pid and self._status is None:
            send([self._pid], signal.SIGTERM)

    def kill(self) -> None:
        if self._why is None:
            self._why = "stopped by force"
        tree = self.tree
        if tree is not None and not tree.destroy() and self._status is None:
            # Only this one again: its successor may be there by then.
            self._loop.after(0.1, lambda: self.kill() if self.tree is tree else None)

    # The kernel process.

    def _next(self) -> None:
        if self.tree is None:
            if self._queue or self._again:
                self._again = False
                self._start()
            return
        if self.state != "ready" or self.run is not None or not self._queue or self._why is not None:
            return
        run = self.run = self._queue.popleft()
        run.begin()
        if (reason := unfit(run.code)) is not None:
            self.run = None
            run.end("error", reason)
            self._next()
            return
        self._before = {(process.pid, process.began) for process in self.tree.members()}
        wanted = {"run": run.id, "code": run.code, "stdin": run.stdin, "cell": run.cell}
        self._send({"op": "execute", **wanted})

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        self._set_state("starting")
        devnull = os.open(os.devnull, os.O_RDONLY)
        program = [self._place.python, "-c", _BOOT, self._place.package_root, str(theirs.fileno())]
        try:
            self.tree = spawn(
                self._place, program, self._mark, stdin=devnull, stdout=out_write, stderr=err_write,
                pass_fds=(theirs.fileno(),), leader=True,
            )  # fmt: skip
        except OSError as problem:
            ours.close()
            os.close(out_read)
            os.close(err_read)
            self._not_started(str(problem))
            return
        finally:
            theirs.close()
            for fd in (out_write, err_write, devnull):
                os.close(fd)
        self._frames = wire.Unpacker()
        self._unsent.clear()
        self._said = b""
        self._status = self._why = None
        self._cleared = False
        self._pid = self.tree.pid if self.tree.inner is None else 0
        self._socket = ours
        ours.setblocking(False)
        self._pipes = {out_read: "stdout", err_read: "stderr"}
        for fd in self._pipes:
            os.set_blocking(fd, False)
        self._adopt(self.tree.pid, self._died)
        self.pause(self._paused)

    def _not_started(self, reason: str) -> None:
        """Whoever waits for the kernel is told; it is tried again when the next one asks, not for ever."""
        reason = f"Python could not be started: {reason}"
        self._set_state("gone", reason)
        while self._queue:
            run = self._queue.popleft()
            run.begin()
            run.end("error", reason)

    def _died(self, status: int) -> None:
        """It ended: end what it left, read what it sent to the end, then tell."""
        self._status = status
        if self.run is not None:
            self.run.calm()
        if self.tree is not None:
            self._clear_away(self.tree)

    def _clear_away(self, tree: Tree) -> None:
        if not tree.destroy():
            self._loop.after(0.01, lambda: self._clear_away(tree))
            return
        self._cleared = True
        for fd in self._pipes:
            self._loop.reader(fd, self._reader(fd))
        if self._socket is not None:
            self._loop.reader(self._socket.fileno(), self._receive)
        self._loop.after(DRAIN_SECONDS, lambda: self._gone() if self.tree is tree else None)
        self._gone_if_drained()

    def _gone_if_drained(self) -> None:
        if self._cleared and not self._pipes and self._socket is None:
            self._gone()

    def _gone(self) -> None:
        if self._status is None or self.tree is None:
            return
        for fd in list(self._pipes):
            self._close_pipe(fd)
        self._close_socket()
        self._questions.clear()
        reason = self._why or self._reason(self._status)
        self.tree = None
        self._status = None
        self._pid = 0
        self._cleared = False
        self._running = False
        code = None
        if self.state == "starting" and self._why is None:
            said = self._said.decode(errors="replace").strip().rpartition("\n")[2]
            self._not_started(f"{reason}: {said}" if said else reason)
            return
        self._set_state("gone", reason)
        run, self.run = self.run, None
        if run is not None:
            if self._why in ("restarted", "the sandbox is shut down"):
                run.end("cancelled", f"the kernel was {self._why}" if self._why == "restarted" else self._why, code)
            else:
                run.end("error", reason if self._why else f"the kernel ended: {reason}", code)
        self._why = None
        self._next()

    def _reason(self, status: int) -> str:
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
        else:
            code = os.WEXITSTATUS(status)
            if code <= 128 or not signal_name(code - 128):
                return f"exit status {code}"
            number = code - 128
        return (
            f"killed by signal {number}, perhaps memory"
            if number == 9
            else f"killed by signal {number} ({signal_name(number)})"
        )

    def _set_state(self, state: str, reason: str | None = None) -> None:
        self.state = state
        self._record({"t": "kernel", "state": state, "reason": reason})

    # What comes from it.

    def _reader(self, fd: int) -> Callable[[], None]:
        def read() -> None:
            self._read_pipe(fd, READ_BYTES)

        return read

    def _read_pipe(self, fd: int, size: int) -> int:
        try:
            data = os.read(fd, size)
        except BlockingIOError:
            return 0
        if not data:
            self._close_pipe(fd)
            self._gone_if_drained()
        elif self.run is not None:
            self.run.output(self._pipes[fd], data)
        elif self.state == "starting":
            self._said = (self._said + data)[-SAID_BYTES:]
        return len(data)

    def _drain_pipes(self) -> None:
        """Read all that lies in the raw pipes now: it was written before the message that is being handled."""
        for fd in list(self._pipes):
            left = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0]
            while left > 0 and fd in self._pipes and (size := self._read_pipe(fd, min(left, READ_BYTES))):
                left -= size

    def _receive(self) -> None:
        if self._socket is None:
            return
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close_socket()
            self._gone_if_drained()
            return
        self._frames.feed(data)
        try:
            for kind, payload in self._frames.whole():
                if kind == wire.MESSAGE:
                    self._message(json.loads(payload))
                elif self.run is not None and self._running:
                    self.run.output(wire.STREAMS[kind], payload)
        except (wire.BrokenWire, ValueError, KeyError, TypeError, AttributeError) as problem:
            # Code in the kernel wrote into the socket itself: nothing that follows can be trusted.
            self._close_socket()
            self.limit(f"the kernel's channel is broken: {problem}")

    def _message(self, body: dict[str, Any]) -> None:
        kind, run = body["t"], self.run
        if kind == "ready":
            self._pid = self._find_kernel()
            self._set_state("ready")
            self._next()
        elif kind == "answer":
            if (answered := self._questions.pop(int(body["key"]), None)) is not None:
                answered(dict(body["answer"]))
        elif run is None:
            return
        elif kind == "begin" and body["run"] == run.id:
            self._running = True
            self._reacted = self._raised = False
            if run.stopping:
                self.interrupt()
        elif kind == "data":
            data, metadata, display = body["data"], body["metadata"], body["display"]
            if not isinstance(data, dict) or not isinstance(metadata, dict):
                raise TypeError("data is not a MIME bundle")
            fields = {"result": bool(body["result"]), "display": display, "update": bool(body["update"])}
            if "count" in body:
                fields["count"] = int(body["count"])
            run.display(data=data, metadata=metadata, **fields)
        elif kind == "clear":
            run.clear(bool(body["wait"]))
        elif kind == "input":
            key = str(body["input"])
            run.inputs.add(key)
            run.record("input", input=key, prompt=str(body["prompt"]), password=bool(body["password"]))
        elif kind == "interrupted":
            self._reacted, self._raised = True, bool(body["raised"])
        elif kind == "end" and body["run"] == run.id:
            self._running = False
            self._drain_pipes()
            run.calm()
            self._settle(run, str(body["status"]), body["reason"], time.monotonic())

    def _find_kernel(self) -> int:
        """The kernel's process id as seen from here: the only child of the namespace's first process."""
        if self.tree is None or self.tree.inner is None:
            return self.tree.pid if self.tree else 0
        inner = self.tree.inner
        return min((p.pid for p in table().values() if p.parent == inner), default=0)

    def _settle(self, run: Run, status: str, reason: str | None, since: float) -> None:
        """The cell is over. If it was stopped, what it started goes too, before that is said."""
        if run is not self.run or run.over:
            return
        if run.stopping and (left := self._started_since()):
            hard = time.monotonic() - since > GRACE_SECONDS
            send([process.pid for process in left], signal.SIGKILL if hard else signal.SIGTERM)
            self._loop.after(0.02, lambda: self._settle(run, status, reason, since))
            return
        self._drain_pipes()
        self.run = None
        run.end(status if status == "done" else "error", reason, 0 if status == "done" else None)
        self._next()

    def _started_since(self) -> list[Process]:
        """What lives in the kernel's tree and was not there when the cell began, nor descends from what was."""
        if self.tree is None:
            return []
        processes = table()
        keep = {*self.tree.inner_outer(), self._pid}
        members = {process.pid: process for process in self.tree.members(processes)}

        def older(process: Process) -> bool:
            while process.pid in members and process.pid not in keep:
                if (process.pid, process.began) in self._before:
                    return True
                parent = members.get(process.parent)
                if parent is None:
                    return False
                process = parent
            return False

        return [process for process in members.values() if process.pid not in keep and not older(process)]

    # What goes to it.

    def _send(self, body: dict[str, Any]) -> None:
        self._unsent += wire.message(body)
        self._write()

    def _write(self) -> None:
        if self._socket is None:
            return
        with suppress(OSError):
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        self._loop.writer(self._socket.fileno(), self._write if self._unsent else None)

    def _close_pipe(self, fd: int) -> None:
        if self._pipes.pop(fd, None) is not None:
            self._loop.forget(fd)
            os.close(fd)

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._loop.forget(self._socket.fileno())
            self._socket.close()
            self._socket = None
