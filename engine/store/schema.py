"""Brings a database to the current schema. alembic, and SQLAlchemy with it, is imported only when there is work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import asyncpg

HEAD = "0001"  # the newest revision in migrations/versions
LOCK = 0x6E62_6D69  # advisory lock: two processes that start at once migrate one after the other


class SchemaNewer(Exception):
    """The database belongs to a newer Nightbook: update this one, or point it at another database."""


async def migrate(dsn: str) -> None:
    """Creates or upgrades the schema at `dsn`. Safe from several processes at once.

    Raises `SchemaNewer`, or asyncpg's errors when the database cannot be reached.
    """
    connection: asyncpg.Connection[Any] = await asyncpg.connect(dsn, timeout=10)
    try:
        if await _revision(connection) == HEAD:
            return
        await connection.execute("SELECT pg_advisory_lock($1)", LOCK)
        try:
            revision = await _revision(connection)
            if revision is not None and revision > HEAD:
                raise SchemaNewer(
                    f"the database has schema {revision}, this Nightbook knows up to {HEAD}: update Nightbook"
                )
            if revision != HEAD:
                await _upgrade(dsn)
        finally:
            await connection.execute("SELECT pg_advisory_unlock($1)", LOCK)
    finally:
        await connection.close()


async def _revision(connection: asyncpg.Connection[Any]) -> str | None:
    if not await connection.fetchval("SELECT to_regclass('alembic_version') IS NOT NULL"):
        return None
    revision: str | None = await connection.fetchval("SELECT version_num FROM alembic_version")
    return revision


async def _upgrade(dsn: str) -> None:
    from alembic import command
    from alembic.config import Config
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    async def connect() -> asyncpg.Connection[Any]:
        return await asyncpg.connect(dsn, timeout=10)

    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))

    def upgrade(connection: Any) -> None:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")

    try:
        async with engine.begin() as connection:
            await connection.run_sync(upgrade)
    finally:
        await engine.dispose()
