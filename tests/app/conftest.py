"""What tests of the running application stand on: real server processes, each on a database of its own."""

import asyncio
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from e2e.api import Api
from e2e.server import Server
from engine.store import embedded

TOKEN = "a-token-for-these-tests"


@pytest.fixture(scope="session")
def own_database(postgres: embedded.Embedded, migrated: str) -> Callable[..., str]:
    """A function that makes a database and returns its address; one that is up to date, or `empty`."""

    def make(*, empty: bool = False) -> str:
        name = f"app_{secrets.token_hex(6)}"

        async def create() -> None:
            connection = await asyncpg.connect(postgres.dsn)
            await connection.execute(f"CREATE DATABASE {name} TEMPLATE {'template1' if empty else migrated}")
            await connection.close()

        asyncio.run(create())
        return urlsplit(postgres.dsn)._replace(path=f"/{name}").geturl()

    return make


@pytest.fixture(scope="session")
def served(own_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`nightbook serve`, one for all tests that do not harm it."""
    data = tmp_path_factory.mktemp("served") / "data"
    server = Server(data, DATABASE_URL=own_database(), TOKEN=TOKEN, SANDBOX_IDLE_SECONDS=2)
    try:
        server.start()
        yield server
    finally:
        server.stop_all()
    assert server.left_behind() == []


@pytest.fixture
def api(served: Server) -> Iterator[Api]:
    """The owner, at the API of `served`."""
    client = Api(served.url, TOKEN)
    yield client
    client.close()


@pytest.fixture
def processes(own_database: Callable[..., str], tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """A function that makes (and does not start) a process; all of a test share a data folder and a database."""
    address = own_database()
    made: list[Server] = []

    def make(command: str, **settings: object) -> Server:
        chosen = {"DATABASE_URL": address, "TOKEN": TOKEN, "POLL_SECONDS": 1} | settings
        made.append(Server(Path(str(chosen.pop("DATA", tmp_path / "data"))), command, **chosen))
        return made[-1]

    yield make
    for server in made:
        server.stop_all()
    for server in made:
        assert server.left_behind() == []


@pytest.fixture
def api_of() -> Iterator[Callable[[Server], Api]]:
    """A function that gives the owner at the API of a process."""
    made: list[Api] = []

    def connect(server: Server) -> Api:
        made.append(Api(server.url, TOKEN))
        return made[-1]

    yield connect
    for api in made:
        api.close()
