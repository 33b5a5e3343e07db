"""Leaving with grace: what a signal stops, what it lets go on, and who is told."""

import contextlib
import json
import signal
from collections.abc import Callable

import httpx

from e2e.api import Api
from e2e.cells import LOG, ONCE, counted, counting
from e2e.server import Server
from e2e.waiting import until


def test_a_server_that_is_asked_to_leave_tells_who_looks_on_and_its_programs_go_on(
    processes: Callable[..., Server], api_of: Callable[[Server], Api]
) -> None:
    server = processes("serve")
    server.start()
    api = api_of(server)
    notebook = api.notebook(("python", counting(150, 0.03)))
    notebook.run(notebook.cells[0])
    until(lambda: "line 00005" in notebook.text(notebook.cells[0]), "the cell has begun", 60)
    told = []
    with (
        contextlib.suppress(httpx.RemoteProtocolError),
        api.client.stream("GET", f"/api/v1/notebooks/{notebook.id}/frames?operator=1", timeout=60) as stream,
    ):
        assert server.process is not None
        server.process.send_signal(signal.SIGINT)
        for line in stream.iter_lines():
            if line.startswith("data: ") and "engine" in (data := json.loads(line[6:])):
                told.append(data["engine"])
    assert server.wait(60) == 0
    assert "One sandbox goes on with what runs in it. Ctrl-C again ends that as well" in server.told()
    server.start()
    notebook.wait(notebook.cells[0], "done", seconds=60)
    assert notebook.text(notebook.cells[0]).splitlines() == counted(150)
    assert notebook.file(LOG) == ONCE
    assert "leaving" in told


def test_a_second_ctrl_c_ends_the_sandboxes_too(
    processes: Callable[..., Server], api_of: Callable[[Server], Api]
) -> None:
    server = processes("serve")
    server.start()
    notebook = api_of(server).notebook(("python", "print('begun')\nwhile True: pass"))
    notebook.run(notebook.cells[0])
    until(lambda: "begun" in notebook.text(notebook.cells[0]), "the cell has begun", 60)
    assert server.process is not None
    server.process.send_signal(signal.SIGINT)
    until(lambda: "Leaving." in server.told(), "it says that it leaves", 60)
    server.process.send_signal(signal.SIGINT)
    assert server.wait(60) == 0
    assert "Sandboxes ended: 1." in server.told()
