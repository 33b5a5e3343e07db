"""The schema: migrations and models say the same, any number of processes may start at once, and newer is told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.ext.asyncio import create_async_engine
from sqlmodel import SQLModel

from engine.store import models, schema

MIGRATIONS = Path(schema.__file__).parent / "migrations"


@pytest.mark.asyncio
async def test_what_migrations_make_is_what_the_models_say(database: str) -> None:
    assert models.Notebook.metadata is SQLModel.metadata

    async def connect() -> Any:
        return await asyncpg.connect(database)

    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect)
    async with engine.connect() as connection:
        differences = await connection.run_sync(
            lambda sync: compare_metadata(
                MigrationContext.configure(sync, opts={"compare_server_default": False}), SQLModel.metadata
            )
        )
    await engine.dispose()
    assert differences == []


def test_the_newest_migration_is_the_one_that_starts_look_for() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == schema.HEAD


@pytest.mark.asyncio
async def test_processes_that_start_at_once_on_an_empty_database_all_succeed(empty_database: str) -> None:
    await asyncio.gather(*(schema.migrate(empty_database) for _ in range(4)))
    connection = await asyncpg.connect(empty_database)
    assert await connection.fetch("SELECT version_num FROM alembic_version") == [(schema.HEAD,)]
    await connection.close()


@pytest.mark.asyncio
async def test_a_database_of_a_newer_version_is_left_alone(database: str) -> None:
    connection = await asyncpg.connect(database)
    await connection.execute("UPDATE alembic_version SET version_num = '9999'")
    await connection.close()
    with pytest.raises(schema.SchemaNewer, match="9999"):
        await schema.migrate(database)
