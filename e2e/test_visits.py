"""Visits leave nothing: who came and went costs the server neither memory nor a client, a viewer or a task."""

import json
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser

from e2e.api import Api
from e2e.cells import counting
from e2e.counted import FILE
from e2e.figures import Figures
from e2e.pages import Visitor
from e2e.scale import SOAK, VISITS
from e2e.server import Server
from e2e.waiting import until

pytestmark = [pytest.mark.own_machine("looks into the server process"), pytest.mark.timeout(600)]

GETS = 300
GIVEN_BACK_SECONDS = 120.0 if SOAK else 40.0
GROWTH = 20.0  # MiB that a process may grow by for other reasons than visitors


@pytest.fixture(scope="module")
def counted() -> Iterator[Server]:
    """A server that can be asked what it holds on to."""
    with tempfile.TemporaryDirectory(prefix="nightbook-e2e-") as folder:
        server = Server(Path(folder) / "data", launch=("-m", "e2e.counted"), POLL_SECONDS=1, REPLAY_SECONDS=1)
        try:
            server.start()
            yield server
        finally:
            server.stop_all()
        assert server.left_behind() == []


@pytest.fixture
def look(counted: Server) -> Callable[[], dict[str, int]]:
    """A function that tells what the server holds on to now."""

    def ask() -> dict[str, int]:
        place = counted.data / FILE
        place.unlink(missing_ok=True)
        psutil.Process(counted.pid).send_signal(signal.SIGUSR1)
        until(place.exists, "the server told its counts")
        found: dict[str, int] = json.loads(place.read_text())
        return found | {"sockets": len(psutil.Process(counted.pid).net_connections())}

    return ask


@pytest.fixture
def api(counted: Server) -> Iterator[Api]:
    client = Api(counted.url, counted.token)
    yield client
    client.close()


Look = Callable[[], dict[str, int]]


def test_the_server_starts_small_and_soon(counted: Server, figures: Figures) -> None:
    """The first start of all, with a database to be made, is given more time."""
    counted.terminate()
    counted.start()
    figures.at_most("server: ready after its start", counted.ready_seconds, 4.0)
    figures.at_most("server: resident after its start", counted.resident() / 2**20, 180.0, "MiB")


def test_tabs_opened_and_closed_give_everything_back(
    counted: Server, look: Look, api: Api, browser: Browser, figures: Figures
) -> None:
    notebook = api.notebook(("python", counting(2000, 0.001)), ("markdown", "# Text"))
    notebook.run(notebook.cells[0])
    notebook.wait(notebook.cells[0], "done")
    visitor = Visitor(browser, counted.link)
    home = visitor.home()  # what is loaded once, at the first visits, is no visitor's
    for _ in range(5):
        visitor.open(notebook).close()
    home.close()
    until(lambda: look()["clients"] == 0, "the first visitors are forgotten", GIVEN_BACK_SECONDS)
    before, resident = look(), counted.resident()
    for number in range(VISITS):
        page = visitor.open(notebook)
        page.wait_text(notebook.cells[0], "line 01999")
        if number == 0:
            assert look()["viewers"] == 1
        page.close()
    visitor.leave()
    until(lambda: look()["clients"] == 0, "all visitors are forgotten", GIVEN_BACK_SECONDS)
    for what, spare in (("viewers", -before["viewers"]), ("tasks", 2), ("sockets", 2)):
        until(lambda w=what, s=spare: look()[w] <= before[w] + s, f"their {what} are gone", GIVEN_BACK_SECONDS)
    grown = (counted.resident() - resident) / 2**20
    figures.at_most(f"{VISITS} tabs opened and closed: the server grew by", grown, GROWTH, "MiB")


@pytest.mark.soak("it waits for the framework to forget three hundred")
def test_plain_requests_for_a_page_leave_nothing(counted: Server, look: Look, api: Api, figures: Figures) -> None:
    """Crawlers, previews and scripts never open a socket."""
    notebook = api.notebook(("python", "1"))
    paths = (notebook.path, "/", "/n/there-is-none", "/nowhere", "/api/v1/nothing")
    # Memory that a process keeps for reuse is taken once, and no visitor's either.
    for number in range(GETS if SOAK else GETS // 3):
        api.client.get(paths[number % len(paths)])
    until(lambda: look()["clients"] == 0, "the first are forgotten", GIVEN_BACK_SECONDS)
    before, resident = look(), counted.resident()
    for number in range(GETS):
        assert api.client.get(paths[number % 2]).status_code == 200
    for path in paths[2:]:
        assert api.client.get(path).status_code == 404
    until(lambda: look()["clients"] == 0, "all are forgotten", GIVEN_BACK_SECONDS)
    after = look()
    assert after["viewers"] == 0
    assert after["tasks"] <= before["tasks"] + 2
    grown = (counted.resident() - resident) / 2**20
    figures.at_most(f"{GETS} plain GETs: the server grew by", grown, GROWTH, "MiB")


def test_an_asleep_notebook_is_no_process_and_no_task(look: Look, api: Api, counted: Server) -> None:
    """Notebooks that were only read, or that nobody ran, wake nobody."""
    for _ in range(20):
        api.notebook(("python", "1")).view()
    until(lambda: look()["viewers"] == 0, "readers are gone")
    names = [psutil.Process(child.pid).cmdline() for child in psutil.Process(counted.pid).children(recursive=True)]
    assert [name for name in names if "shim" in " ".join(name)] == []
