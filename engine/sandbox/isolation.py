"""What notebook code can see: the environment built for it, and the bubblewrap command line.

Mounted are the system folders and the Python environment, read-only, and this notebook's workspace and private /tmp.
Nothing of the server: not its data folder, not the database's socket, not another notebook. Standard library only, the
shim uses it too.
"""

import functools
import os
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MODES = ("auto", "bubblewrap", "process")
WORKSPACE = "/workspace"
PACKAGE_ROOT = Path(__file__).resolve().parent.parent.parent
_INSIDE = "/run/nightbook"
_LARGEST_SHARED_MEMORY = 1024 * 1024 * 1024
_HIDDEN_BYTES = 1024 * 1024  # for the empty folder that covers a hidden one

_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# What programs look up. No shadow, no keys, no configuration of services.
_ETC = (
    "alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "crypto-policies", "fonts", "group",
    "host.conf", "hosts", "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "locale.conf",
    "localtime", "magic", "mime.types", "nsswitch.conf", "os-release", "passwd", "pki/ca-trust", "pki/tls/certs",
    "profile", "protocols", "resolv.conf", "rpc", "services", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
    "vim", "xattr.conf",
)  # fmt: skip
# The kernel's own code, and nothing else of this package.
_KERNEL_FILES = (
    "engine/__init__.py", "engine/sandbox/__init__.py", "engine/sandbox/channel.py", "engine/sandbox/kernel.py",
    "engine/sandbox/knowledge.py", "engine/sandbox/tables.py", "engine/sandbox/unimported.py", "engine/sandbox/wire.py",
)  # fmt: skip


class IsolationUnavailable(Exception):
    """Bubblewrap was asked for and does not work here."""


class Place(NamedTuple):
    """Where one notebook's code runs. Paths are absolute; `hidden` are folders that must not be seen."""

    mode: str  # bubblewrap or process
    workspace: str
    temporary: str
    python: str
    prefixes: tuple[str, ...]
    hidden: tuple[str, ...]
    shared_memory: int = 0  # what /dev/shm may hold, in bytes; 0: no bound, bubblewrap is too old to set one

    @property
    def folder(self) -> str:
        """The workspace as the code sees it."""
        return WORKSPACE if self.mode == "bubblewrap" else self.workspace

    @property
    def package_root(self) -> str:
        """Where the code finds `engine.sandbox.kernel`."""
        return _INSIDE if self.mode == "bubblewrap" else str(PACKAGE_ROOT)

    def environment(self) -> dict[str, str]:
        """Built from nothing: nothing of the server's environment is handed on."""
        temporary = "/tmp" if self.mode == "bubblewrap" else self.temporary  # the private one, see command()
        return {
            "PATH": os.pathsep.join(
                (os.path.dirname(self.python), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
            ),
            "HOME": self.folder,
            "PWD": self.folder,
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "SHELL": shell(),
            "TMPDIR": temporary,
            "IPYTHONDIR": f"{temporary}/.ipython",
            "MPLCONFIGDIR": f"{temporary}/.matplotlib",
            # Figures are shown at the end of their cell, plots as their specification.
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
            "PLOTLY_RENDERER": "plotly_mimetype",
            "XDG_CACHE_HOME": f"{temporary}/.cache",
        }

    def command(self, program: list[str], info_fd: int, options_fd: int = -1, *, tied: bool = True) -> list[str]:
        """`program` as it is to be started; bubblewrap writes the id of its first process to `info_fd` as JSON, and
        reads more options (ended by NUL) from `options_fd`. `tied`: it dies with who started it."""
        if self.mode == "process":
            return program
        command = [
            bubblewrap(),
            "--unshare-user", "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL",
            "--clearenv", *(["--die-with-parent"] if tied else []), "--info-fd", str(info_fd),
        ]  # fmt: skip
        # /tmp and /run first: the Python environment may live below them.
        command += ["--proc", "/proc"]
        for path in host_settings():
            command += ["--ro-bind-try", path, path]
        command += ["--dev", "/dev", *self._tmpfs("/dev/shm", self.shared_memory), "--tmpfs", "/run"]
        command += ["--bind", self.temporary, "/tmp"]
        command += ["--ro-bind", "/usr", "/usr"]
        for name in _SYSTEM:
            path = f"/{name}"
            if os.path.islink(path):
                command += ["--symlink", os.readlink(path), path]
            elif os.path.isdir(path):
                command += ["--ro-bind", path, path]
        for name in _ETC:
            if os.path.exists(f"/etc/{name}"):
                command += ["--ro-bind", os.path.realpath(f"/etc/{name}"), f"/etc/{name}"]
        for prefix in self.prefixes:
            if not within(prefix, "/usr"):
                command += ["--ro-bind", prefix, prefix]
        for folder in self.hidden:
            if any(within(folder, mounted) for mounted in ("/usr", *self.prefixes)):
                command += self._tmpfs(folder, min(self.shared_memory, _HIDDEN_BYTES))
        for file in _KERNEL_FILES:
            command += ["--ro-bind", str(PACKAGE_ROOT / file), f"{_INSIDE}/{file}"]
        command += ["--bind", self.workspace, WORKSPACE, "--chdir", WORKSPACE]
        # What is written to a tmpfs is memory that no process holds and no limit counts.
        command += ["--remount-ro", "/run", "--remount-ro", "/dev", "--remount-ro", "/"]
        for name, value in self.environment().items():
            command += ["--setenv", name, value]
        if options_fd >= 0:
            command += ["--args", str(options_fd)]
        return [*command, "--", *program]

    def _tmpfs(self, folder: str, size: int) -> list[str]:
        return [*(("--size", str(size)) if size else ()), "--tmpfs", folder]


def host_settings(proc: str = "/proc") -> list[str]:
    """What in /proc belongs to the machine and not to a process, and could be written: sysctls and their like.

    User 0 of the machine may write them without any capability, inside a user namespace too: `core_pattern` alone
    would be a way out. All of /proc cannot be read-only, a process has files of its own there.
    """
    found = []
    for name in sorted(os.listdir(proc)):
        path = f"{proc}/{name}"
        if not name.isdecimal() and not os.path.islink(path):
            with suppress(OSError):
                mode = os.stat(path).st_mode
                if stat.S_ISDIR(mode) or mode & 0o222:
                    found.append(path)
    return found


def shell() -> str:
    """bash where there is one, else sh."""
    return next((path for path in ("/bin/bash", "/usr/bin/bash") if os.path.exists(path)), "/bin/sh")


def bubblewrap() -> str:
    """The program's path; the bare name when it is not installed, so that starting it says so."""
    return next(
        (path for path in ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap") if os.path.exists(path)), "bwrap"
    )


@functools.cache
def bounds_tmpfs(program: str) -> bool:
    """Whether this bubblewrap has `--size`."""
    try:
        done = subprocess.run([program, "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return False
    return "--size " in done.stdout + done.stderr


def shared_memory_for(memory: int) -> int:
    """What /dev/shm may hold where notebook code may use so much memory: 0 where it cannot be bounded."""
    return min(memory, _LARGEST_SHARED_MEMORY) if bounds_tmpfs(bubblewrap()) else 0


def within(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or below it."""
    return os.path.commonpath((os.path.realpath(path), os.path.realpath(folder))) == os.path.realpath(folder)


def python_prefixes(python: str) -> tuple[str, ...]:
    """The folders a Python interpreter needs: its environment's, the one it was made from, and where links lead.

    Raises `OSError` or `subprocess.SubprocessError` when `python` cannot be run.
    """
    if python == sys.executable:
        found = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]
    else:
        ask = "import sys; print(sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, sep='\\n')"
        found = subprocess.run([python, "-I", "-c", ask], capture_output=True, text=True, check=True).stdout.split(
            "\n"
        )[:4]
    target = python
    while os.path.islink(target):  # venv/bin/python → python3.11 → /where/it/is/bin/python3.11
        target = os.path.join(os.path.dirname(target), os.readlink(target))
        folder = os.path.dirname(os.path.dirname(os.path.abspath(target)))
        if os.path.basename(os.path.dirname(target)) == "bin":
            found.append(folder)
    kept: list[str] = []
    for prefix in dict.fromkeys(os.path.abspath(path) for path in found):
        if prefix != "/" and not within(prefix, "/usr"):
            kept.append(prefix)
    return tuple(kept)


def choose(mode: str, place: Place) -> str:
    """`bubblewrap` or `process`, by trying. Raises `IsolationUnavailable` when it was demanded and fails."""
    if mode not in MODES:
        raise ValueError(f"isolation is {mode!r}, expected one of {', '.join(MODES)}")
    if mode == "process":
        return mode
    read, write = os.pipe()
    try:
        # Bubblewrap that is killed while it starts leaves a child that waits for it for ever: this one, which ends by
        # itself soon, dies neither with this process nor by the signals of its group.
        command = place.command([place.python, "-I", "-S", "-c", "pass"], write, tied=False)
        done = subprocess.run(
            command, pass_fds=(write,), env={}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20,
            start_new_session=True,
        )  # fmt: skip
        told = None if done.returncode == 0 else done.stderr.strip() or f"exit status {done.returncode}"
    except (OSError, subprocess.SubprocessError) as problem:
        told = str(problem)
    finally:
        os.close(read)
        os.close(write)
    if told is None:
        return "bubblewrap"
    if mode == "bubblewrap":
        raise IsolationUnavailable(f"bubblewrap does not work here: {told}")
    return "process"
