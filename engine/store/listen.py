"""LISTEN on a connection of its own. A pool's release would UNLISTEN, so it never comes from one.

A hint is never content: it says where to look. After each (re)connection the caller is told to look everywhere, since
hints sent meanwhile are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import asyncpg

from engine.store.steps import UNREACHABLE

CHECK_SECONDS = 2.0


async def listen(
    dsn: str,
    channels: dict[str, Callable[[str], None]],
    connected: Callable[[], None],
    away: Callable[[], None],
) -> None:
    """Serves for ever: a channel's function gets each payload; `connected` follows each LISTEN, `away` each cut."""
    attempt = 0
    while True:
        connection: asyncpg.Connection[Any] | None = None
        try:
            connection = await asyncpg.connect(dsn, timeout=5, server_settings={"application_name": "nightbook listen"})
            gone = asyncio.Event()
            connection.add_termination_listener(lambda _, gone=gone: gone.set())
            for channel, function in channels.items():
                await connection.add_listener(channel, lambda _c, _p, _n, payload, f=function: f(str(payload)))
            attempt = 0
            connected()
            while not gone.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CHECK_SECONDS):
                        await gone.wait()
                if not gone.is_set():
                    await connection.fetchval("SELECT 1", timeout=10)
        except UNREACHABLE:
            pass
        finally:
            if connection is not None:
                connection.terminate()
        away()
        await asyncio.sleep(min(0.1 * 2**attempt, 2.0))
        attempt += 1
