"""The web half and the worker half as processes of their own: neither needs the other to do its part."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest

from e2e.api import Api
from e2e.cells import LOG, ONCE, counted, counting
from e2e.proxy import Proxy
from e2e.scale import SOAK
from e2e.server import Server
from e2e.waiting import pass_time, until

Processes = Callable[..., Server]

MANY = 500 if SOAK else 100


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
