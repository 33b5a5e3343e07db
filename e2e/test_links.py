"""Networks fail without a word: the page comes back by itself, misses nothing, and the work never noticed."""

import time
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from e2e.api import Api, Notebook
from e2e.cells import LOG, ONCE, counted, counting
from e2e.figures import Figures
from e2e.pages import NotebookPage, Visitor
from e2e.proxy import Proxy
from e2e.scale import CUT, CUTS, IDLE_LIMIT, SILENCE
from e2e.waiting import pass_time, until

LINES, PAUSE = 400, 0.025
CAUGHT_UP = "seq => +document.querySelector('[data-testid=feed-state]').dataset.seq >= seq"


@pytest.fixture
def notebook(api: Api) -> Notebook:
    return api.notebook(("python", counting(LINES, PAUSE)))


@pytest.fixture
def page(notebook: Notebook, visit: Callable[..., Visitor], proxy: Proxy) -> NotebookPage:
    """The notebook, running, on a page behind the proxy."""
    opened = visit(origin=proxy.url).open(notebook)
    opened.run(notebook.cells[0])
    opened.wait_text(notebook.cells[0], "line 00010")
    return opened


def assert_whole(page: NotebookPage, notebook: Notebook, lines: int = LINES) -> None:
    cell_id = notebook.cells[0]
    page.wait_done(cell_id, seconds=60)
    until(lambda: len(page.lines(cell_id)) >= lines, "every line is on the page")
    assert page.lines(cell_id) == counted(lines)
    assert notebook.file(LOG) == ONCE
    assert page.problems == []


def catch_up(page: NotebookPage, notebook: Notebook, seconds: float = 10.0) -> float:
    """Waits until the page shows all that there is at this moment; returns how many seconds that took."""
    began = time.monotonic()
    page.wait_in_page(CAUGHT_UP, notebook.head(), seconds)
    return time.monotonic() - began


@pytest.mark.parametrize("how", ["cut", "freeze", "refuse"])
def test_the_link_is_gone_for_five_seconds(
    page: NotebookPage, notebook: Notebook, proxy: Proxy, figures: Figures, how: str
) -> None:
    same = page.mark()
    getattr(proxy, how)()
    stood = page.seq()
    pass_time(CUT, f"no network ({how})")
    expect(page.feed).to_have_attribute("data-state", "offline")
    assert page.seq() <= stood + 5, "nothing can have come through"
    proxy.restore()
    figures.at_most(f"link back after 5 s ({how}): caught up", catch_up(page, notebook), 1.0)
    page.wait_live(2)
    assert_whole(page, notebook)
    assert same(), "the page was reloaded"


def test_twenty_cuts_in_a_row(api: Api, visit: Callable[..., Visitor], proxy: Proxy, figures: Figures) -> None:
    notebook = api.notebook(("python", counting(60 * CUTS, 0.04)))
    page = visit(origin=proxy.url).open(notebook)
    page.run(notebook.cells[0])
    page.wait_text(notebook.cells[0], "line 00010")
    same = page.mark()
    took = []
    for number in range(CUTS):
        (proxy.cut, proxy.freeze, proxy.refuse)[number % 3]()
        pass_time(0.3 + 0.05 * number, "a short cut")
        proxy.restore()
        took.append(catch_up(page, notebook))
        shown = page.lines(notebook.cells[0])
        assert shown == counted(len(shown))
    figures.at_most("twenty cuts: slowest to catch up", max(took), 5.0)
    assert_whole(page, notebook, 60 * CUTS)
    assert same(), "the page was reloaded"


def test_what_is_asked_for_without_a_link_is_done_once_when_it_is_back(
    api: Api, visit: Callable[..., Visitor], proxy: Proxy, figures: Figures
) -> None:
    """Though the browser keeps up to six connections that the cut has killed, and tries each of them first."""
    notebook = api.notebook(("python", counting(5, 0)))
    page = visit(origin=proxy.url).open(notebook)
    proxy.cut()
    page.run(notebook.cells[0])
    pass_time(CUT / 2, "the command is lost on its way")
    proxy.restore()
    began = time.monotonic()
    page.wait_done(notebook.cells[0], seconds=60)
    figures.at_most("link back: a command lost with it is done", time.monotonic() - began, 10.0)
    assert_whole(page, notebook, 5)
    assert [frame["body"]["event"] for frame in notebook.runs()][:3] == ["queued", "started", "ended"]


def test_a_proxy_that_ends_idle_connections_and_a_silent_cell(
    api: Api, visit: Callable[..., Visitor], proxy: Proxy
) -> None:
    """Heartbeats keep the page's connection from being idle; one that is ended all the same is made again."""
    proxy.idle_seconds = IDLE_LIMIT
    notebook = api.notebook(("python", counting(20, 0.01, first_pause=SILENCE)))
    page = visit(origin=proxy.url).open(notebook)
    same = page.mark()
    page.run(notebook.cells[0])
    page.wait_state(notebook.cells[0], "running")
    assert_whole(page, notebook, 20)
    expect(page.feed).to_have_attribute("data-state", "live")
    assert same(), "the page was reloaded"


@pytest.mark.soak("takes the time that a thin link takes")
def test_a_thin_link_delays_and_loses_nothing(api: Api, visit: Callable[..., Visitor], proxy: Proxy) -> None:
    notebook = api.notebook(("python", counting(2000, 0.001)))
    page = visit(origin=proxy.url).open(notebook)
    proxy.bytes_per_second = 20_000
    page.run(notebook.cells[0])
    assert_whole(page, notebook, 2000)
