"""A browser and the scripted site, once for all tests of the pages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from e2e.pages import PATIENCE, launch
from engine.ids import new_id
from tests.engine.agent.models.spoken import Provider, provider, refusal

ROOT = Path(__file__).parents[2]


class Site:
    """The scripted site as tests use it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.earlier = 0  # how many commands are of earlier tests

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read() or b"null")

    def blob(self, mime: str, data: bytes) -> dict[str, Any]:
        """Keeps bytes as a blob and gives the value that a frame has in its place."""
        request = urllib.request.Request(self.address + "/blob", data, {"X-Mime": mime}, method="POST")
        with urllib.request.urlopen(request, timeout=10) as answer:
            value: dict[str, Any] = json.loads(answer.read())
        return value

    def shows(self, notebook_id: str, *bundles: dict[str, Any], **fields: Any) -> None:
        """Displays of the run that `start` began."""
        place = {"cell_id": "c0", "run_id": "r0"}
        self.write(*[(notebook_id, "output", {"data": data, **place, **fields}) for data in bundles])

    def write(self, *frames: tuple[str, str, dict[str, Any]]) -> None:
        self.call("POST", "/script", {"frames": frames})

    def notebook(self, *cells: tuple[str, str], title: str = "T") -> str:
        """A notebook with cells c0, c1 … of (kind, source)."""
        notebook_id = new_id()
        frames: list[tuple[str, str, dict[str, Any]]] = [(notebook_id, "session", {"event": "created", "title": title})]
        for number, (kind, source) in enumerate(cells):
            after = {} if number == 0 else {"after": f"c{number - 1}"}
            frames.append(
                (
                    notebook_id,
                    "cell",
                    {"event": "added", "cell_id": f"c{number}", "kind": kind, "source": source, **after},
                )
            )
        self.write(*frames)
        return notebook_id

    def start(self, notebook_id: str, cell_id: str = "c0", run_id: str = "r0") -> None:
        place = {"cell_id": cell_id, "run_id": run_id}
        self.write(*[(notebook_id, "run", {"event": event, **place}) for event in ("queued", "started")])

    def prints(self, notebook_id: str, *texts: str, stream: str = "stdout") -> None:
        """Output of the run that `start` began."""
        place = {"cell_id": "c0", "run_id": "r0", "stream": stream}
        self.write(*[(notebook_id, "output", {"text": text, **place}) for text in texts])

    def notebook_seq(self, notebook_id: str) -> int:
        """The last frame of a notebook."""
        seq: int = self.call("GET", f"/head/{notebook_id}")
        return seq

    def commands(self, kind: str) -> list[dict[str, Any]]:
        """What pages sent during this test."""
        return [command for command in self.call("GET", "/commands")[self.earlier :] if command["kind"] == kind]


@pytest.fixture(scope="session")
def models() -> Iterator[Provider]:
    """What answers at the site's places of models: by default with a list of them, which both protocols write so."""
    with provider([refusal(200, {"data": [{"id": "claude-test"}, {"id": "small"}]})]) as server:
        yield server


@pytest.fixture(scope="session")
def site(models: Provider) -> Iterator[Site]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment["MODELS_URL"] = models.url
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.ui.site"], cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port, "the site did not start"
        yield Site(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(autouse=True)
def of_this_test(request: pytest.FixtureRequest) -> None:
    """A test never takes a command of the one before it for its own."""
    if "site" in request.fixturenames:
        site: Site = request.getfixturevalue("site")
        site.earlier = len(site.call("GET", "/commands"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Gone with the module: its loop would stop asyncio tests."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def profile(browser: Browser) -> Iterator[BrowserContext]:
    """What the tabs of a module share: above all the cache, without which opening a page takes twice the work.

    Without motion: a ring that turns, drawn by the processor, takes a quarter of one for as long as it is seen.
    """
    context = browser.new_context(viewport={"width": 1200, "height": 900}, reduced_motion="reduce")
    yield context
    context.close()


@pytest.fixture
def page(profile: BrowserContext) -> Iterator[Page]:
    """A tab that finds nothing stored; a script error in it fails the test."""
    page = profile.new_page()
    page.set_default_timeout(PATIENCE)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: errors.append(said.text) if "drawing failed" in said.text else None)
    yield page
    profile.set_offline(False)
    for tab in profile.pages:
        if tab.url.startswith("http"):
            tab.evaluate("localStorage.clear()")
        tab.close()
    assert not errors
