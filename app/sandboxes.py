"""The sandboxes of a data folder, seen from the command line: which live, and ending them without a server.

A sandbox outlives its server by design, so somebody has to be able to end it when no server runs. That is done by
SIGTERM, not by the shim's own `shutdown` request: a request needs an epoch, and one made up here would fence off the
engines that come later.
"""

import contextlib
import fcntl
import os
import signal
import socket
import struct
import time
from pathlib import Path

_SECONDS = 20.0  # a shim gives its programs 10 s to go


def find_sandboxes(data: Path) -> list[Path]:
    """List the state folders below `data` whose shim lives, which is to say: holds its lock."""
    return [path.parent for path in sorted((data / "sandboxes").glob("*/lock")) if _is_locked(path)]


def shut_down(folder: Path) -> bool:
    """End all that runs in the sandbox of `folder`, and its shim; returns whether it was gone within 20 seconds."""
    with contextlib.suppress(OSError):
        os.kill(_shim(folder), signal.SIGTERM)
    deadline = time.monotonic() + _SECONDS
    while _is_locked(folder / "lock"):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _is_locked(path: Path) -> bool:
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _shim(folder: Path) -> int:
    """Ask the kernel which process listens on the shim's socket. Raises OSError when nobody does."""
    fd = os.open(folder, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            # By way of /proc, as the folder's own path may be too long for a socket.
            connection.connect(f"/proc/self/fd/{fd}/shim.sock")
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    finally:
        os.close(fd)
    pid: int = struct.unpack("3i", credentials)[0]
    return pid
