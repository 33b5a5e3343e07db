"""How processes start: two at once, on nothing, on a newer database; and what they keep to themselves."""

import asyncio
import re
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import asyncpg
import httpx
import pytest

from e2e.api import Api
from e2e.scale import SOAK
from e2e.server import Server
from tests.app.conftest import TOKEN

Processes = Callable[..., Server]
Connect = Callable[[Server], Api]


@pytest.mark.skipif(not SOAK, reason="only with NIGHTBOOK_SOAK=1: the embedded database has the same test below")
@pytest.mark.parametrize("command", ["serve", "web", "worker"])
def test_two_processes_start_at_once_on_an_empty_database(
    processes: Processes, own_database: Callable[..., str], command: str
) -> None:
    address = own_database(empty=True)
    both = processes(command, DATABASE_URL=address), processes(command, DATABASE_URL=address)
    for one in both:
        one.launch()
    for one in both:
        one.wait_ready()
    for one in both:
        if command != "worker":
            assert httpx.get(f"{one.url}/healthz", trust_env=False).status_code == 200
        assert "Traceback" not in one.told()


def test_the_server_takes_as_many_open_files_as_it_may(processes: Processes) -> None:
    """Each viewer is one, and the usual limit of a login or a service is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    try:
        web = processes("web")
        web.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    limits = Path(f"/proc/{web.pid}/limits").read_text()
    found = re.search(r"Max open files +(\d+)", limits)
    assert found is not None
    assert int(found[1]) == min(hard, 65536)


def test_two_processes_start_at_once_on_an_empty_data_folder(processes: Processes, api_of: Connect) -> None:
    """With the embedded PostgreSQL: one of them makes it, both use it, and the last one to leave ends it."""
    both = processes("serve", DATABASE_URL=""), processes("serve", DATABASE_URL="")
    for one in both:
        one.launch()
    for one in both:
        one.wait_ready()
    notebook = api_of(both[0]).notebook(("python", "print('one')"), title="Shared")
    other = api_of(both[1])
    assert [row["title"] for row in other.client.get("/api/v1/notebooks").json()] == ["Shared"]
    notebook.run(notebook.cells[0])
    notebook.wait(notebook.cells[0], "done")
    both[0].terminate()
    assert [row["title"] for row in other.client.get("/api/v1/notebooks").json()] == ["Shared"]


def test_a_database_of_a_newer_version_stops_the_start(processes: Processes, own_database: Callable[..., str]) -> None:
    address = own_database()
    first = processes("worker", DATABASE_URL=address)
    first.start()
    first.terminate()

    async def from_the_future() -> None:
        connection = await asyncpg.connect(address)
        await connection.execute("UPDATE alembic_version SET version_num = '9999'")
        await connection.close()

    asyncio.run(from_the_future())
    first.launch()
    assert first.wait(30) == 1
    said = [line for line in first.told().splitlines() if line]
    assert len(said) == 1, said
    assert "9999" in said[0]
    assert "update Nightbook" in said[0]


def test_no_secret_of_the_server_is_in_its_log_or_its_command_lines(processes: Processes, api_of: Connect) -> None:
    server = processes("serve", DATABASE_URL="")
    server.start()
    notebook = api_of(server).notebook(("python", "import os; print(sorted(os.environ))"))
    notebook.run(notebook.cells[0])
    notebook.wait(notebook.cells[0], "done")
    assert "NIGHTBOOK" not in notebook.text(notebook.cells[0])
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    password = next((server.data / "postgres").glob("*password*")).read_text().strip()
    assert len(password) > 10
    for secret in (TOKEN, password):
        assert secret not in listed
        assert secret not in server.told().replace(f"?token={TOKEN}", "", 1), "but for the link that it prints"
