"""The stdio transport: JSON-RPC lines through the pipes of a program that the sandbox serves, bounded.

The SDK has one of its own, which starts the program itself, with the server's own eyes. Here the sandbox starts it.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import trio

from engine.agent.mcp.flow import MESSAGE_BYTES, Flooded, Flow
from engine.sandbox.program import Program

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

READ_BYTES = 64 * 1024
ERRORS_KEPT = 2_000  # bytes of what it last wrote to stderr


class Spoken:
    """What a program said beside the protocol, for whoever asks why it does not answer."""

    def __init__(self) -> None:
        self._last: deque[bytes] = deque()
        self._size = 0
        self.silent = trio.Event()  # set when nothing more can come
        self.stray: str | None = None  # the last line on stdout that was no message

    def errors(self, data: bytes) -> None:
        self._last.append(data)
        self._size += len(data)
        while self._size - len(self._last[0]) > ERRORS_KEPT:
            self._size -= len(self._last.popleft())

    def __str__(self) -> str:
        told = b"".join(self._last)[-ERRORS_KEPT:].decode("utf-8", "replace").strip()
        last = told.splitlines()[-1].strip() if told else ""
        return last or (f"it wrote {self.stray!r}, which is no message" if self.stray else "")


@contextlib.asynccontextmanager
async def over_pipes(
    program: Program, flow: Flow, spoken: Spoken, failed: Callable[[str], None]
) -> AsyncIterator[TransportStreams]:
    """The program's pipes as the streams that a session of the SDK talks over. `failed` is told why they broke."""
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    into, read = anyio.create_memory_object_stream[Any](0)
    write, out = anyio.create_memory_object_stream[Any](0)

    def message(line: bytes) -> Any:
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except (ValueError, RecursionError):
            spoken.stray = line[:200].decode("utf-8", "replace").strip()
            return None

    async def receive() -> None:
        held = bytearray()
        searched = 0
        async with into:
            try:
                while data := await program.stdout.receive_some(READ_BYTES):
                    flow.came(len(data))
                    held += data
                    while (end := held.find(b"\n", searched)) >= 0:
                        line = bytes(held[:end])
                        del held[: end + 1]
                        searched = 0
                        if line.strip():
                            flow.message()
                            if (got := message(line)) is not None:
                                await into.send(got)
                    searched = len(held)
                    if searched > MESSAGE_BYTES:
                        raise Flooded(f"it sent a message of more than {MESSAGE_BYTES // 2**20} MiB")
            except Flooded as flooded:
                failed(str(flooded))
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, anyio.BrokenResourceError):
                pass  # how it ended, the sandbox tells

    async def send() -> None:
        with contextlib.suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            async with out:
                async for item in out:
                    text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await program.stdin.send_all(text.encode() + b"\n")

    async def listen() -> None:
        with contextlib.suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await program.stderr.receive_some(READ_BYTES):
                spoken.errors(data)
        spoken.silent.set()

    async with trio.open_nursery() as nursery:
        for task in (receive, send, listen):
            nursery.start_soon(task)
        try:
            yield read, write
        finally:
            nursery.cancel_scope.cancel()
            for stream in (into, read, write, out):
                stream.close()
