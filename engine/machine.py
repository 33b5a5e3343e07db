"""Which machine a worker is on: whoever shares its data folder there can join the sandboxes in it, nobody else can.

A host name would not do: it repeats among machines, and a container that is made anew has another one each time while
its data folder stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """`id` tells machines apart, `name` is what people call it."""

    id: str
    name: str


def this_machine(folder: Path) -> Machine:
    """The machine, as workers that share `folder` see it. Makes the folder (0700) and a mark in it. Blocks."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mark = folder / "machine"
    own = folder / f".machine-{secrets.token_hex(8)}"
    own.write_text(secrets.token_hex(16))
    with contextlib.suppress(FileExistsError):
        os.link(own, mark)  # unlike a rename, this never replaces what another worker wrote first
    own.unlink()
    known = mark.read_text()
    with contextlib.suppress(OSError):  # one folder may be mounted on several machines
        known += Path("/etc/machine-id").read_text().strip()
    return Machine(hashlib.sha256(known.encode()).hexdigest()[:16], socket.gethostname())
