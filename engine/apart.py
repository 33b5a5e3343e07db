"""Work on what strangers wrote, in a process of its own: it can be ended when it takes too long or too much memory.

Python holds its lock while it matches an expression or parses a page, so a thread could not be. The process sees the
standard library and this package, no environment, and the descriptors it is given.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import trio

MEMORY_BYTES = 1024 * 1024 * 1024
OUTPUT_BYTES = 8 * 1024 * 1024
_ROOT = Path(__file__).resolve().parent.parent
_RUN = f"""
import sys, resource, importlib
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_BYTES}, {MEMORY_BYTES}))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.path.insert(0, sys.argv[1])
importlib.import_module(sys.argv[2]).main(*map(int, sys.argv[3:]))
"""


@dataclass(frozen=True, slots=True)
class Output:
    """What the process said, to the last whole line when it was ended before its time (`whole` false)."""

    data: bytes
    whole: bool
    timed_out: bool


async def run_apart(module: str, data: bytes, seconds: float, *, descriptors: Sequence[int] = ()) -> Output:
    """Runs `module.main(*descriptors)` with `data` as its stdin, for at most `seconds`.

    Cancelled or late, the process is killed; it never outlives this call.
    """
    process = await trio.lowlevel.open_process(
        [sys.executable, "-I", "-S", "-c", _RUN, str(_ROOT), module, *map(str, descriptors)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        pass_fds=tuple(descriptors), env={"LANG": "C.UTF-8"}, cwd="/",
    )  # fmt: skip
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    parts: list[bytes] = []
    ended = False
    try:
        with trio.move_on_after(seconds) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_feed, stdin, data)
                size = 0
                while size < OUTPUT_BYTES:
                    part = await stdout.receive_some(64 * 1024)
                    if not part:
                        ended = True
                        break
                    parts.append(bytes(part))
                    size += len(part)
                nursery.cancel_scope.cancel()
            if ended:
                ended = await process.wait() == 0
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await trio.aclose_forcefully(stdin)
            await trio.aclose_forcefully(stdout)
    told = b"".join(parts)
    return Output(told if ended else told[: told.rfind(b"\n") + 1], ended, scope.cancelled_caught)


async def _feed(stdin: trio.abc.SendStream, data: bytes) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await stdin.send_all(data)
        await stdin.aclose()
