"""Connection pools. Our queries leave nothing behind in a session, so giving a connection back costs no query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg

if TYPE_CHECKING:
    Db = asyncpg.Pool[Any]

CONNECT_SECONDS = 5.0


class _Pool(asyncpg.Pool):
    """No wait is without end: neither for a connection nor, when one hangs, for the end of its statement."""

    def __init__(self, dsn: str, name: str, size: int, patience: float) -> None:
        super().__init__(
            dsn,
            connection_class=asyncpg.Connection,
            record_class=asyncpg.Record,
            init_size=2,
            min_size=2,
            max_size=size,
            max_queries=50_000,
            max_inactive_connection_lifetime=300.0,
            loop=None,
            connect=None,
            setup=None,
            init=None,
            reset=_nothing_to_reset,
            timeout=CONNECT_SECONDS,
            command_timeout=patience,
            server_settings={"application_name": name},
        )
        self._patience = patience

    def acquire(self, *, timeout: float | None = None) -> Any:
        return super().acquire(timeout=self._patience if timeout is None else timeout)


async def open_pool(dsn: str, name: str, size: int, patience: float) -> Db:
    """A pool on the calling loop, of 2 to `size` connections that call themselves `name`.

    A query raises TimeoutError after `patience` seconds without a connection, or without an answer. Raises asyncpg's
    errors or OSError when the database cannot be reached.
    """
    return await _Pool(dsn, name, size, patience)


async def _nothing_to_reset(_: Any) -> None:
    """asyncpg ends an open transaction by itself; its default would send a query besides, after each use."""
