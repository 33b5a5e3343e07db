"""How a server is reached: its program inside the notebook's sandbox, or its address."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import trio

from engine.agent.mcp.connection import Connection, Opening
from engine.agent.mcp.pipes import Spoken, over_pipes
from engine.agent.mcp.spec import ServerSpec
from engine.sandbox.client import Sandbox

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

LAST_WORDS_SECONDS = (
    1.0  # that what a program wrote before its end may take to come; what it left behind may hold the pipe
)


def opening(spec: ServerSpec, sandbox: Callable[[], Awaitable[Sandbox]], fetch_allow: Sequence[str]) -> Opening:
    """What opens a connection to the server. `sandbox` gives the notebook's, awake."""
    if spec.url is not None:

        def address(connection: Connection) -> AbstractAsyncContextManager[TransportStreams]:
            from engine.agent.mcp.web import over_http  # by now it is imported, in a thread

            return over_http(spec, fetch_allow, connection)

        return address

    @contextlib.asynccontextmanager
    async def program(connection: Connection) -> AsyncIterator[TransportStreams]:
        served = await (await sandbox()).serve(spec.command, spec.environment)
        spoken = Spoken()

        async def watch() -> None:
            why = await served.ended()
            with trio.move_on_after(LAST_WORDS_SECONDS):
                await spoken.silent.wait()
            connection.fail(f"its program is gone: {why}{connection.aside}")

        connection.spoken = spoken
        try:
            async with (
                over_pipes(served, connection.flow, spoken, connection.fail) as streams,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(watch)
                try:
                    yield streams
                finally:
                    nursery.cancel_scope.cancel()
        finally:
            await served.aclose()

    return program
