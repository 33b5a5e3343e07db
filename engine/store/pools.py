"""Connection pools. Our queries leave nothing behind in a session, so giving a connection back costs no query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg

if TYPE_CHECKING:
    Db = asyncpg.Pool[Any]


async def open_pool(dsn: str, name: str, size: int) -> Db:
    """A pool on the calling loop, of 2 to `size` connections that call themselves `name`.

    Raises asyncpg's errors or OSError when the database cannot be reached.
    """
    return await asyncpg.create_pool(
        dsn,
        min_size=2,
        max_size=size,
        command_timeout=60,
        reset=_nothing_to_reset,
        server_settings={"application_name": name},
    )


async def _nothing_to_reset(_: Any) -> None:
    """asyncpg ends an open transaction by itself; its default would send a query besides, after each use."""
