"""Starting a program in the notebook's place: built environment, limits for the worst case, and its process tree."""

import json
import os
import resource
import select
import signal
import subprocess
import time

from engine.sandbox.isolation import Place
from engine.sandbox.processes import MARK, Tree, die_with_parent, look, prefer_for_oom_killer
from engine.sandbox.run import memory_file

INFO_SECONDS = 10.0


def spawn(
    place: Place, program: list[str], mark: str, *, stdin: int, stdout: int, stderr: int, leader: bool,
    pass_fds: tuple[int, ...] = (), environment: dict[str, str] | None = None,
) -> Tree:  # fmt: skip
    """Start `program`; raises `OSError` when it cannot be started.

    `mark` names the tree where no namespace does so yet: bubblewrap carries it, and its program does not. `leader`
    starts a session; a program that makes its own must not be the leader of one already. The child is the caller's to
    reap. `environment` comes on top of the built one; it may hold secrets, so it is on no command line.
    """
    isolated = place.mode == "bubblewrap"
    more = environment or {}
    variables = {MARK: mark} if isolated else {**place.environment(), **more, MARK: mark}
    options = -1
    if isolated and more:
        options = memory_file("options", b"".join(f"--setenv\0{name}\0{more[name]}\0".encode() for name in more))
    here = os.getpid()
    read, write = os.pipe()
    inherited = (*pass_fds, *(fd for fd in (write, options) if fd >= 0)) if isolated else pass_fds

    def between_fork_and_exec() -> None:
        os.umask(0o022)  # the shim's own is stricter
        prefer_for_oom_killer()
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        die_with_parent(here)

    try:
        child = subprocess.Popen(
            place.command(program, write, options), env=variables, cwd=place.workspace, stdin=stdin, stdout=stdout,
            stderr=stderr, pass_fds=inherited, preexec_fn=between_fork_and_exec,
            start_new_session=isolated or leader,
        )  # fmt: skip
        os.close(write)
        write = -1
        child.returncode = 0  # reaped by the shim's own SIGCHLD handling, not by this object
        inner = _first_process(read) if isolated else None
    finally:
        os.close(read)
        for fd in (write, options):
            if fd >= 0:
                os.close(fd)
    return Tree(child.pid, _began(child.pid), inner, _began(inner), mark)


def _began(pid: int | None) -> int:
    """When a process began, or -1: then there is nothing of it to end."""
    process = look(pid) if pid is not None else None
    return process.began if process is not None else -1


def _first_process(info: int) -> int | None:
    """The namespace's process 1 as bubblewrap tells it; None when bubblewrap ended before."""
    told = b""
    until = time.monotonic() + INFO_SECONDS
    while b"}" not in told:
        if not select.select([info], [], [], max(0.0, until - time.monotonic()))[0] or not (
            data := os.read(info, 4096)
        ):
            return None
        told += data
    return int(json.loads(told)["child-pid"])


def ending(status: int) -> tuple[int | None, str | None]:
    """A wait status as `(exit code, reason)`; reason None for 0.

    A shell and bubblewrap report a signal as 128 plus its number, so that looks like `exit 137`: both are said.
    """
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return 128 + number, f"killed by signal {number} ({signal_name(number)})"
    code = os.WEXITSTATUS(status)
    if code == 0:
        return 0, None
    if code > 128 and signal_name(code - 128):
        return code, f"exit status {code}, killed by signal {code - 128} ({signal_name(code - 128)})"
    return code, f"exit status {code}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
