"""The sandboxes of a data folder, seen from the command line: which live, and ending them when no server runs.

A sandbox outlives its server by design, so somebody has to be able to end it without one. This speaks the one request
of the shim protocol (docs/architecture.md) that this takes.
"""

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

_ABOVE_ANY_EPOCH = 2**62  # whoever asks for the end of everything is never an engine that lost its notebook
_SECONDS = 20.0


def find_sandboxes(data: Path) -> list[Path]:
    """List the state folders below `data` whose shim accepts a connection."""
    found = []
    for path in sorted((data / "sandboxes").glob("*/shim.sock")):
        with contextlib.suppress(OSError), _connected(path.parent):
            found.append(path.parent)
    return found


def shut_down(folder: Path) -> bool:
    """Ask the shim in `folder` to end all it runs and then itself; returns whether it was gone within 20 seconds."""
    request = {"id": "stop", "op": "shutdown", "epoch": _ABOVE_ANY_EPOCH}
    with contextlib.suppress(OSError), _connected(folder) as connection:
        connection.settimeout(_SECONDS)
        connection.sendall(json.dumps(request).encode() + b"\n")
        while connection.recv(65536):
            pass  # its answer, and records until the end
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        try:
            with _connected(folder):
                time.sleep(0.05)
        except OSError:
            return True
    return False


@contextlib.contextmanager
def _connected(folder: Path) -> Iterator[socket.socket]:
    """Connect to the shim's socket by way of /proc, as the folder's own path may be too long for a socket."""
    fd = os.open(folder, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_SECONDS)
            connection.connect(f"/proc/self/fd/{fd}/shim.sock")
            yield connection
    finally:
        os.close(fd)
