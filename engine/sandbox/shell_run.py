"""A shell cell: bash in a pseudo-terminal, a session and (where it works) a bubblewrap of its own.

Everything it started ends with it, as when a terminal is closed for good: what shall stay belongs in a Python cell.
"""

import contextlib
import errno
import fcntl
import os
import pty
import signal
import struct
import termios

from engine.sandbox.isolation import Place, shell
from engine.sandbox.loop import Loop
from engine.sandbox.processes import Process, Tree, send
from engine.sandbox.run import Run, memory_file, unfit
from engine.sandbox.spawn import ending, spawn

COLUMNS, ROWS = 100, 40
# The kernel takes at most 128 KiB in one argument.
LONGEST_ARGUMENT = 100_000
# How long after the end of everything the terminal may take to say so.
DRAIN_SECONDS = 1.0

# The shell must lead a session inside the namespace: bubblewrap itself would die of a Ctrl-C for the group.
_LEAD = (
    "import os,sys,fcntl,termios\n"
    "os.setsid()\n"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    "os.execv(sys.argv[1], sys.argv[1:])"
)
# Without input the session has no terminal of its own, so nothing can wait at /dev/tty either; and nothing pages.
_LEAD_ALONE = (
    "import os,sys\n"
    "os.setsid()\n"
    "os.dup2(os.open('/dev/null', os.O_RDONLY), 0)\n"
    "os.environ.update(PAGER='cat', GIT_PAGER='cat', TERM='dumb')\n"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class ShellRun:
    """Runs at once. The shim tells it about its child's death (`died`), limits (`limit`) and when to pause reading."""

    def __init__(self, run: Run, place: Place, loop: Loop, mark: str) -> None:
        self.run = run
        self.tree: Tree | None = None
        self._loop = loop
        self._master = -1
        self._status: int | None = None
        self._why: str | None = None
        self._unsent = bytearray()
        self._paused = False
        self._cleared = False  # after the shell's end: nothing that it started is left
        run.begin()
        if (reason := unfit(run.code)) is not None:
            run.end("error", reason)
            return
        self._start(place, mark)

    def _start(self, place: Place, mark: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.set_blocking(self._master, False)
        code, extra = self.run.code.encode(), -1
        program = [place.python, "-I", "-S", "-c", _LEAD if self.run.stdin else _LEAD_ALONE, shell()]
        try:
            if len(code) <= LONGEST_ARGUMENT:
                program += ["-c", self.run.code, os.path.basename(shell())]
            else:
                extra = memory_file("cell", code)
                program += [f"/dev/fd/{extra}"]
            self.tree = spawn(
                place, program, mark, stdin=slave, stdout=slave, stderr=slave, leader=False,
                pass_fds=(extra,) if extra >= 0 else (),
            )  # fmt: skip
        except OSError as problem:
            self._close()
            self.run.end("error", f"the shell could not be started: {problem}")
            return
        finally:
            os.close(slave)
            if extra >= 0:
                os.close(extra)
        self._loop.reader(self._master, self._read)

    # Told by the shim.

    def died(self, status: int) -> None:
        """The shell has ended: end what it left behind, then read the terminal to its end."""
        self._status = status
        self.run.calm()
        if self._paused:
            self.pause(False)
        self._clear_away()

    def limit(self, reason: str) -> None:
        if self._why is None and self._status is None:
            self._why = reason
            self.kill()

    def pause(self, paused: bool) -> None:
        """Stop reading while the spool is full: the terminal fills up and the program waits."""
        self._paused = paused
        if self._master >= 0 and (self._status is None or not paused):
            self._loop.reader(self._master, None if paused else self._read)

    def members(self, processes: dict[int, Process]) -> list[Process]:
        return self.tree.members(processes) if self.tree else []

    # Stopping.

    def interrupt(self) -> None:
        """Ctrl-C: to the group in the terminal's foreground."""
        with contextlib.suppress(OSError):
            group = os.tcgetpgrp(self._master)
            if group > 1:
                os.killpg(group, signal.SIGINT)

    def terminate(self) -> None:
        if self.tree is not None:
            send([process.pid for process in self.tree.programs()], signal.SIGTERM)

    def kill(self) -> None:
        """Until none is left; also when the shell itself is stuck."""
        if self.tree is not None and not self.run.over and not self.tree.destroy() and self._status is None:
            self._loop.after(0.1, self.kill)

    # Input and output.

    def answer(self, text: str) -> bool:
        if self._master < 0 or self._status is not None or not self.run.stdin:
            return False
        self._unsent += text.encode("utf-8", "replace") + b"\n"
        self._write()
        return True

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            while self._unsent:
                del self._unsent[: os.write(self._master, self._unsent)]
        if self._master >= 0:
            self._loop.writer(self._master, self._write if self._unsent else None)

    def _read(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except BlockingIOError:
            return
        except OSError as problem:
            if problem.errno != errno.EIO:
                raise
            data = b""  # no process holds the other side any more
        if data:
            self.run.output("terminal", data)
        elif self._cleared:
            self._finish()
        else:
            # The shell gave its terminal up but lives on (`exec >/dev/null 2>&1 </dev/null`), or others still do.
            self._loop.reader(self._master, None)

    def _clear_away(self) -> None:
        if self.tree is not None and not self.tree.destroy():
            self._loop.after(0.01, self._clear_away)
            return
        self._cleared = True
        self._loop.reader(self._master, self._read)
        self._loop.after(DRAIN_SECONDS, self._finish)

    def _finish(self) -> None:
        if self.run.over:
            return
        self._close()
        code, reason = ending(self._status or 0)
        if self._why is not None:
            self.run.end("error", self._why, code)
        elif reason is None:
            self.run.end("done", None, code)
        else:
            self.run.end("error", reason, code)

    def _close(self) -> None:
        if self._master >= 0:
            self._loop.forget(self._master)
            os.close(self._master)
            self._master = -1
