"""What the tests stand on: one real PostgreSQL for the whole session, and a migrated database of its own per test."""

import asyncio
import secrets
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from hypothesis import settings

from engine.store import embedded

settings.register_profile("shared machine", deadline=None)  # how long an example takes says nothing there
settings.load_profile("shared machine")


@pytest.fixture(scope="session")
def postgres() -> Iterator[embedded.Embedded]:
    """The embedded PostgreSQL in a temporary data folder, released at the end of the session."""
    with tempfile.TemporaryDirectory(prefix="nightbook-test-") as folder:
        server = embedded.start(Path(folder))
        try:
            yield server
        finally:
            server.release()


@pytest.fixture(scope="session")
def migrated(postgres: embedded.Embedded) -> str:
    """The name of a database with the current schema, to copy from."""
    from engine.store import schema

    name = "migrated"
    _run(_execute(postgres.dsn, f"CREATE DATABASE {name}"))
    _run(schema.migrate(_with_database(postgres.dsn, name)))
    return name


@pytest.fixture
def empty_database(postgres: embedded.Embedded) -> Iterator[str]:
    """The address of a fresh database without a schema."""
    yield from _fresh(postgres, "template1")


@pytest.fixture
def database(postgres: embedded.Embedded, migrated: str) -> Iterator[str]:
    """The address of a fresh database with the current schema."""
    yield from _fresh(postgres, migrated)


def _fresh(server: embedded.Embedded, template: str) -> Iterator[str]:
    name = f"test_{secrets.token_hex(6)}"
    _run(_execute(server.dsn, f"CREATE DATABASE {name} TEMPLATE {template}"))
    try:
        yield _with_database(server.dsn, name)
    finally:
        _run(_execute(server.dsn, f"DROP DATABASE {name} WITH (FORCE)"))


def _with_database(dsn: str, name: str) -> str:
    return urlsplit(dsn)._replace(path=f"/{name}").geturl()


async def _execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end in a thread of its own, so that a test's event loop is neither needed nor disturbed."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(work)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
