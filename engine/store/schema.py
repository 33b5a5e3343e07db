"""Brings a database to the current schema. alembic runs only when there is work, in a process of its own."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import asyncpg

HEAD = "0006"  # the newest revision in migrations/versions
LOCK = 0x6E62_6D69  # advisory lock: two processes that start at once migrate one after the other


ROOT = Path(__file__).parents[2]


class MigrationFailed(Exception):
    """The schema could not be brought up to date; what alembic said."""


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
    """Runs alembic in a process of its own: its imports would cost this one a second and 30 MiB for good."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__), stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT
    )
    _, said = await process.communicate(dsn.encode())  # not as an argument: it holds a password
    if process.returncode:
        raise MigrationFailed(said.decode(errors="replace").strip() or f"exit status {process.returncode}")


async def _upgrade_here(dsn: str) -> None:
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


if __name__ == "__main__":
    asyncio.run(_upgrade_here(sys.stdin.read()))
