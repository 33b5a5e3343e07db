"""The web half and the worker half as processes of their own: neither needs the other to do its part."""

import asyncio
import re
import resource
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import httpx
import pytest

from e2e.api import Api
from e2e.cells import LOG, ONCE, counted, counting
from e2e.proxy import Proxy
from e2e.scale import SOAK
from e2e.server import Server
from e2e.waiting import pass_time, until
from tests.app.conftest import TOKEN

Processes = Callable[..., Server]

MANY = 500 if SOAK else 100


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


Connect = Callable[[Server], Api]


@pytest.mark.parametrize("how", ["kill", *(["terminate"] if SOAK else [])])
def test_the_web_half_is_stopped_mid_run_and_nothing_changes_for_the_run(
    processes: Processes, api_of: Connect, how: str
) -> None:
    web, worker = processes("web"), processes("worker")
    web.launch()
    worker.launch()
    web.wait_ready()
    worker.wait_ready()
    notebook = api_of(web).notebook(("python", counting(150, 0.03)))
    notebook.run(notebook.cells[0])
    until(lambda: "line 00010" in notebook.text(notebook.cells[0]), "the cell has begun")
    getattr(web, how)()
    left = datetime.now(UTC).timestamp()
    pass_time(2, "there is no web half")
    came = datetime.now(UTC).timestamp()
    assert worker.running
    web.start()
    notebook.wait(notebook.cells[0], "done")
    assert notebook.text(notebook.cells[0]).splitlines() == counted(150)
    frames = notebook.frames()
    assert [frame["body"]["event"] for frame in frames if frame["kind"] == "run"] == ["queued", "started", "ended"]
    assert [frame["body"].get("event") for frame in frames].count("resumed") == 0, "the engine was not even moved"
    times = [datetime.fromisoformat(frame["at"]).timestamp() for frame in frames if frame["kind"] == "output"]
    assert len([time for time in times if left < time < came]) > 5, "it went on printing"
    assert notebook.file(LOG) == ONCE


def test_without_a_worker_notebooks_can_be_read_and_wishes_wait(processes: Processes, api_of: Connect) -> None:
    web, worker = processes("web"), processes("worker")
    web.start()
    api = api_of(web)
    assert api.client.get("/readyz").status_code == 503
    notebook = api.notebook(("python", "print('at last')"))
    notebook.run(notebook.cells[0])
    assert notebook.view()["cells"][0]["source"] == "print('at last')", "reading waits for no lease"
    worker.start()
    notebook.wait(notebook.cells[0], "done")
    assert notebook.text(notebook.cells[0]) == "at last\n"
    until(lambda: api.client.get("/readyz").status_code == 200, "it is ready")


def test_a_worker_that_was_killed_is_followed_by_the_next(processes: Processes, api_of: Connect) -> None:
    """History is there at once after a fast restart, and the run goes on."""
    web, worker = processes("web"), processes("worker")
    web.launch()
    worker.start()
    web.wait_ready()
    notebook = api_of(web).notebook(("python", counting(150, 0.03)))
    notebook.run(notebook.cells[0])
    until(lambda: "line 00010" in notebook.text(notebook.cells[0]), "the cell has begun")
    worker.kill()
    assert "line 00010" in notebook.text(notebook.cells[0]), "before anybody takes it over"
    processes("worker").start()
    notebook.wait(notebook.cells[0], "done")
    assert notebook.text(notebook.cells[0]).splitlines() == counted(150)
    assert notebook.file(LOG) == ONCE


def test_many_notebooks_are_written_at_once(processes: Processes, api_of: Connect) -> None:
    """A hint that names all of them would be over the 8,000 bytes of a NOTIFY, and roll their frames back."""
    web = processes("web")
    web.start()
    api = api_of(web)
    with ThreadPoolExecutor(8) as pool:
        notebooks = list(pool.map(lambda number: api.notebook(title=f"Before {number}"), range(MANY)))
        list(pool.map(lambda notebook: notebook.ask("rename", title="After"), notebooks))
    worker = processes("worker")
    worker.start()

    def renamed() -> bool:
        listed = api.client.get("/api/v1/notebooks").json()
        return [row["title"] for row in listed] == ["After"] * MANY

    until(renamed, "all are renamed", 60)
    assert "BadStep" not in worker.told()
    assert "payload string too long" not in worker.told()
    for notebook in notebooks[::100]:
        frames = notebook.frames()
        assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))


# Starting


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


def test_the_web_half_answers_at_once_while_the_database_is_silent_or_away(
    processes: Processes, api_of: Connect, own_database: Callable[..., str]
) -> None:
    """A request is told that it may come again, and when; it neither hangs nor fails inside. A stream of what is known
    here begins, says so, and goes on. A page opens, and its link waits."""
    parts = urlsplit(own_database())
    folder = parse_qs(parts.query)["host"][0]
    with Proxy(folder, int(parse_qs(parts.query).get("port", ["5432"])[0])) as proxy:
        address = f"postgresql://{parts.username}:{parts.password}@127.0.0.1:{proxy.port}{parts.path}"
        web = processes("web", DATABASE_URL=address)
        web.start()
        api = api_of(web)
        notebook = api.notebook(("python", "1"))
        for trouble in (proxy.refuse, proxy.freeze):
            notebook.view()
            trouble()
            answer = api.client.get("/api/v1/notebooks", timeout=60)
            assert answer.status_code == 503
            assert answer.headers["content-type"] == "application/problem+json"
            assert int(answer.headers["retry-after"]) > 0
            assert api.client.get(notebook.path, timeout=60).status_code == 200
            with api.client.stream("GET", f"/api/v1/notebooks/{notebook.id}/frames?after=0", timeout=60) as stream:
                lines = stream.iter_lines()
                assert next(line for line in lines if line.startswith("data: ")) == 'data: {"seq": 0, "engine": "away"}'
                proxy.restore()
                assert next(line for line in lines if line.startswith("id: ")) == "id: 1"
            until(
                lambda: api.client.get("/api/v1/notebooks", timeout=60).status_code == 200, "it goes on by itself", 60
            )
        assert notebook.view()["cells"][0]["source"] == "1"
        said = web.told()
        assert "Traceback" not in said
        assert "WARNING app.api.stream: database away: " in said
