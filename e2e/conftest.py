"""The stage of the detachment suite: one real server, one Chromium, and persons who come and go.

| variable | does |
| --- | --- |
| `NIGHTBOOK_URL`, `NIGHTBOOK_TOKEN` | test that running server; what would need its machine is skipped by name |
| `NIGHTBOOK_SOAK=1` | the long form: whole times and sizes, and the server's default time limits |

Without a URL the suite starts a server of its own and, in the short form, gives it short time limits, so that seconds
of absence are as long for it as minutes are otherwise.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Playwright, sync_playwright

from e2e.api import Api
from e2e.figures import Figure, Figures
from e2e.pages import Visitor, launch
from e2e.proxy import Proxy
from e2e.scale import SHORT_LIMITS, SOAK
from e2e.server import Server

REMOTE = os.environ.get("NIGHTBOOK_URL")

_figures = Figures()


@dataclass(frozen=True)
class Target:
    """The server under test. `server` is None when it runs elsewhere."""

    url: str
    link: str
    token: str
    server: Server | None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "own_machine(why): needs the machine of the server")
    config.addinivalue_line("markers", "soak(why): only in the long form")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if REMOTE and (mark := item.get_closest_marker("own_machine")):
            item.add_marker(pytest.mark.skip(reason=f"needs its own machine: {mark.args[0]}"))
        if not SOAK and (mark := item.get_closest_marker("soak")):
            item.add_marker(pytest.mark.skip(reason=f"only with NIGHTBOOK_SOAK=1: {mark.args[0]}"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """One of several processes hands its figures to the one that prints them."""
    if (handed := getattr(session.config, "workeroutput", None)) is not None:
        handed["figures"] = [asdict(figure) for figure in _figures.taken]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _figures.taken += [Figure(**figure) for figure in getattr(node, "workeroutput", {}).get("figures", ())]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _figures.taken:
        terminalreporter.section("figures")
        for figure in _figures.taken:
            terminalreporter.line(str(figure))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Shows the end of the server's log beside what failed."""
    report: Any = yield
    target = getattr(item, "funcargs", {}).get("target")
    if report.failed and target is not None and target.server is not None:
        report.sections.append(("server log", target.server.told()[-6000:]))
    return report


@pytest.fixture(scope="package")
def target() -> Iterator[Target]:
    """The server that NIGHTBOOK_URL names, or one started here; at the end nothing of that is left."""
    if REMOTE:
        token = os.environ["NIGHTBOOK_TOKEN"]
        url = REMOTE.rstrip("/")
        yield Target(url, f"{url}/?token={token}", token, None)
        return
    with tempfile.TemporaryDirectory(prefix="nightbook-e2e-") as folder:
        server = Server(Path(folder) / "data", **({} if SOAK else SHORT_LIMITS))
        try:
            server.start()
            yield Target(server.url, server.link, server.token, server)
        finally:
            server.stop_all()
        assert server.left_behind() == []


@pytest.fixture
def server(target: Target) -> Iterator[Server]:
    """The server process, to be killed: whatever the test does, it runs again afterwards."""
    assert target.server is not None
    yield target.server
    if not target.server.running:
        target.server.start()


@pytest.fixture(scope="package")
def api(target: Target) -> Iterator[Api]:
    client = Api(target.url, target.token)
    yield client
    client.close()


@pytest.fixture(scope="package")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="package")
def browser(playwright: Playwright) -> Iterator[Browser]:
    running = launch(playwright)
    yield running
    running.close()


@pytest.fixture
def another_browser(playwright: Playwright) -> Iterator[Browser]:
    """A browser of its own, to be closed as a whole."""
    running = launch(playwright)
    yield running
    if running.is_connected():
        running.close()


@pytest.fixture
def visit(browser: Browser, target: Target) -> Iterator[Callable[..., Visitor]]:
    """A function that lets a new person in, in a browser context of their own; all leave at the end of the test."""
    came: list[Visitor] = []

    def enter(
        browser: Browser = browser, origin: str | None = None, link: str = target.link, **options: Any
    ) -> Visitor:
        came.append(Visitor(browser, link, origin, **options))
        return came[-1]

    yield enter
    for visitor in came:
        if visitor.context.browser is None or visitor.context.browser.is_connected():
            visitor.leave()


@pytest.fixture
def visitor(visit: Callable[..., Visitor]) -> Visitor:
    """One person."""
    return visit()


@pytest.fixture
def proxy(target: Target) -> Iterator[Proxy]:
    """A network between browser and server that can be broken."""
    parts = urlsplit(target.url)
    if parts.scheme != "http":
        pytest.skip("needs its own machine: the suite's proxy cannot stand before a server with TLS")
    with Proxy(parts.hostname or "", parts.port or 80) as between:
        yield between


@pytest.fixture(scope="session")
def figures() -> Figures:
    """Where measured figures go; printed at the end of the run."""
    return _figures
