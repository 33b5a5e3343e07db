"""Which processes a start has led to, and how to end every one of them.

Under bubblewrap the answer is the process namespace: whoever kills its first process kills them all, the kernel sees to
that. Without it, descendants are followed by parent, and orphans come back to the shim (it is their subreaper). A mark
in the environment finds those that a dead shim left behind: without bubblewrap all, with it who was just starting.
"""

import ctypes
import os
import signal
from contextlib import suppress
from typing import NamedTuple

MARK = "NIGHTBOOK_TREE"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

# <linux/prctl.h>
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


class Process(NamedTuple):
    """One line of /proc. `began` is in clock ticks since boot; `(pid, began)` names a process for ever."""

    pid: int
    parent: int
    began: int
    pages: int
    zombie: bool


def become_subreaper() -> None:
    """Orphans among this process's descendants become its children, not those of process 1."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """For a child between fork and exec: be killed when the shim dies, also if it just did."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(127)


def prefer_for_oom_killer() -> None:
    """If memory runs out, the kernel takes notebook code before the server. 500 of 1000, see proc(5) oom_score_adj."""
    with suppress(OSError):
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(fd, b"500")
        os.close(fd)


def give_back_memory() -> None:
    """Hand freed memory back to the system; glibc keeps it otherwise."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)


def table() -> dict[int, Process]:
    """All processes that can be seen, by id."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := look(int(name))) is not None:
            found[process.pid] = process
    return found


def look(pid: int) -> Process | None:
    """One process as /proc/PID/stat tells it (proc(5)), or None when it is gone."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            stat = os.read(fd, 4096)
        finally:
            os.close(fd)
    except OSError:
        return None
    # The name in parentheses may hold anything, parentheses too: count from the last one.
    fields = stat[stat.rfind(b")") + 2 :].split()
    return Process(pid, int(fields[1]), int(fields[19]), int(fields[21]), fields[0] in (b"Z", b"X"))


def below(roots: set[int], processes: dict[int, Process]) -> list[Process]:
    """The roots and all that descend from them, zombies left out (they hold nothing and are not ours to reap)."""
    children: dict[int, list[Process]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    todo = [processes[pid] for pid in roots if pid in processes]
    seen: dict[int, Process] = {}
    while todo:
        process = todo.pop()
        if process.pid not in seen:
            seen[process.pid] = process
            todo += children.get(process.pid, ())
    return [process for process in seen.values() if not process.zombie]


def has_mark(pid: int, mark: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{MARK}={mark}".encode() in file.read().split(b"\0")
    except OSError:
        return False


def marked(prefix: str) -> list[int]:
    """Processes whose mark begins with `prefix`, wherever they hang now."""
    start = f"{MARK}={prefix}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if any(entry.startswith(start) for entry in file.read().split(b"\0")):
                    found.append(int(name))
    return found


def kill_marked(prefix: str) -> None:
    """Kill until none with the mark is left (a zombie has no environment and does not count)."""
    for _ in range(200):
        pids = marked(prefix)
        if not pids:
            return
        send(pids, signal.SIGSTOP)
        send(pids, signal.SIGKILL)


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def resident(processes: list[Process], limit: int) -> int:
    """Bytes of memory the processes hold together.

    Pages that forked processes share are counted once for each in the quick sum; only when that reaches `limit` is
    the proportional size asked for, which is exact and slow.
    """
    quick = sum(process.pages for process in processes) * PAGE_BYTES
    if quick < limit:
        return quick
    exact = 0
    for process in processes:
        with suppress(OSError), open(f"/proc/{process.pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    exact += int(line.split()[1]) * 1024
    return exact or quick


class Tree(NamedTuple):
    """All processes that came from one start.

    `pid` is the shim's own child; `inner` the first process of its namespace as seen from here, or None without
    bubblewrap; `mark` is what the environment carries. `began` and `inner_began` tell them from a later process that
    was given the same id.
    """

    pid: int
    began: int
    inner: int | None
    inner_began: int
    mark: str

    def members(self, processes: dict[int, Process] | None = None) -> list[Process]:
        """Who lives, the first process included."""
        processes = table() if processes is None else processes
        roots = {
            pid
            for pid, began in ((self.pid, self.began), (self.inner, self.inner_began))
            if pid in processes and processes[pid].began == began
        }
        if self.inner is None:
            here = os.getpid()
            for process in processes.values():
                # An orphan that cleared its environment belongs to whoever is old enough to have started it.
                if (
                    process.parent == here
                    and process.pid != self.pid
                    and not process.zombie
                    and (
                        has_mark(process.pid, self.mark)
                        or (process.began >= self.began and not has_any_mark(process.pid))
                    )
                ):
                    roots.add(process.pid)
        return below(roots, processes)

    def programs(self, processes: dict[int, Process] | None = None) -> list[Process]:
        """Who lives, without bubblewrap's own two processes."""
        return [process for process in self.members(processes) if process.pid not in (self.inner_outer())]

    def inner_outer(self) -> tuple[int, ...]:
        return () if self.inner is None else (self.pid, self.inner)

    def destroy(self) -> bool:
        """Stop all and kill all; True when none was left to kill. Call again until it is."""
        members = self.members()
        if not members:
            return True
        pids = [process.pid for process in members]
        if self.inner is not None:
            # The namespace goes down at once with its first process; nothing in it can fork away from that.
            send([self.inner] if self.inner in pids else pids, signal.SIGKILL)
        else:
            send(pids, signal.SIGSTOP)
            send(pids, signal.SIGKILL)
        return False


def has_any_mark(pid: int) -> bool:
    """Whether the process carries a mark of any tree. One that cannot be read any more counts as marked."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return any(entry.startswith(f"{MARK}=".encode()) for entry in file.read().split(b"\0"))
    except OSError:
        return True
