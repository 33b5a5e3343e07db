"""People leave in the middle: the work goes on, and who comes back sees all of it, each line once, in order."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser

from e2e.api import Api, Notebook
from e2e.cells import LOG, ONCE, counted, counting
from e2e.figures import Figures
from e2e.pages import NotebookPage, Visitor
from e2e.scale import AWAY, LINES, LONG_AWAY, PAUSE, SOAK
from e2e.waiting import pass_time, until

Visit = Callable[..., Visitor]


@pytest.fixture
def notebook(api: Api) -> Notebook:
    return api.notebook(("python", counting(LINES, PAUSE)))


def begin(visitor: Visitor, notebook: Notebook, line: int = 20) -> NotebookPage:
    """Opens the notebook, presses run, and waits until the page shows some lines."""
    page = visitor.open(notebook)
    page.run(notebook.cells[0])
    page.wait_text(notebook.cells[0], f"line {line:05d}")
    return page


def assert_whole(page: NotebookPage, notebook: Notebook, lines: int = LINES) -> None:
    """The run is over, ran once, and the page shows each line once and in order, and so does the API."""
    cell_id = notebook.cells[0]
    page.wait_done(cell_id, seconds=60)
    until(lambda: len(page.lines(cell_id)) >= lines, "every line is on the page")
    assert page.lines(cell_id) == counted(lines)
    assert notebook.text(cell_id).splitlines() == counted(lines)
    assert notebook.file(LOG) == ONCE
    assert page.problems == []


def test_the_tab_is_closed_mid_run(notebook: Notebook, visitor: Visitor, figures: Figures) -> None:
    begin(visitor, notebook).close()
    pass_time(AWAY, "the tab is closed")
    page = visitor.open(notebook, live=False)
    first = page.wait_in_page(
        "id => document.querySelector(`[data-cell-id='${id}'] [data-testid='cell-output']`)?.innerText.length > 9"
        " && performance.now()",
        notebook.cells[0],
    )
    figures.at_most("reopened mid-run: first output visible after navigation", first / 1000, 1.0)
    if notebook.cell(notebook.cells[0])["state"] == "running":
        page.wait_live()
        assert page.state(notebook.cells[0]) in {"running", "done"}
    assert_whole(page, notebook)


def test_a_page_opened_mid_run_shows_that_it_runs(api: Api, visitor: Visitor) -> None:
    """And what is queued behind stays queued, and runs in its turn."""
    lines = 40
    until_told = "import os\nwhile not os.path.exists('go'): time.sleep(0.05)\n"  # however slow the machine is
    notebook = api.notebook(("python", counting(lines, 0.05) + until_told), ("python", "print('second')"))
    page = begin(visitor, notebook, line=3)
    page.run(notebook.cells[1])
    page.wait_state(notebook.cells[1], "queued")
    page.close()
    page = visitor.open(notebook)
    assert [page.state(cell_id) for cell_id in notebook.cells] == ["running", "queued"]
    assert api.client.put(f"/api/v1/notebooks/{notebook.id}/files/go", content=b"").status_code == 202
    page.wait_done(notebook.cells[1])
    assert page.lines(notebook.cells[1]) == ["second"]
    assert_whole(page, notebook, lines)


def test_the_whole_browser_is_closed(notebook: Notebook, visit: Visit, another_browser: Browser) -> None:
    begin(visit(another_browser), notebook)
    another_browser.close()
    pass_time(AWAY, "the browser is closed")
    assert_whole(visit().open(notebook), notebook)


def test_the_page_is_reloaded_mid_run(notebook: Notebook, visitor: Visitor) -> None:
    page = begin(visitor, notebook)
    for line in (40, 60, 80):
        page.reload()
        page.wait_text(notebook.cells[0], f"line {line:05d}")
        shown = page.lines(notebook.cells[0])
        assert shown == counted(len(shown))
    assert_whole(page, notebook)


def test_two_tabs_show_the_same(notebook: Notebook, visitor: Visitor) -> None:
    first, second = visitor.open(notebook), visitor.open(notebook)
    first.run(notebook.cells[0])
    second.wait_text(notebook.cells[0], "line 00010")
    assert_whole(first, notebook)
    assert_whole(second, notebook)


def test_two_persons_see_the_same(notebook: Notebook, visit: Visit) -> None:
    first = begin(visit(), notebook)
    second = visit().open(notebook)
    assert_whole(second, notebook)
    assert_whole(first, notebook)


@pytest.mark.timeout(240)
def test_nobody_is_there_for_long(api: Api, visitor: Visitor) -> None:
    """No time limit ends a run because nobody looks: not of the feed, not of the sandbox, not of the engine."""
    lines, pause = (2000, 0.05) if SOAK else (300, 0.04)
    notebook = api.notebook(("python", counting(lines, pause)))
    begin(visitor, notebook).close()
    pass_time(LONG_AWAY, "nobody is there")
    page = visitor.open(notebook)
    assert page.state(notebook.cells[0]) == "running"
    assert_whole(page, notebook, lines)


def test_it_finishes_while_nobody_is_there(notebook: Notebook, visitor: Visitor) -> None:
    """Who comes after the end sees that it ended, and all of it, though no buffer holds it any more."""
    begin(visitor, notebook).close()
    pass_time(LINES * PAUSE + AWAY, "the run ends with nobody there")
    page = visitor.open(notebook)
    assert page.state(notebook.cells[0]) == "done"
    assert_whole(page, notebook)


def test_the_tab_is_closed_before_the_first_byte_of_output(api: Api, visitor: Visitor) -> None:
    notebook = api.notebook(("python", counting(30, 0.01, first_pause=2.0)))
    page = visitor.open(notebook)
    page.run(notebook.cells[0])
    page.wait_state(notebook.cells[0], "queued", "running")
    assert page.text(notebook.cells[0]) == ""
    page.close()
    pass_time(AWAY, "closed before anything was printed")
    assert_whole(visitor.open(notebook), notebook, 30)


def test_opening_in_three_tabs_runs_nothing(api: Api, visit: Visit) -> None:
    notebook = api.notebook(("python", counting(5, 0)), ("python", "print('never asked for')"))
    notebook.run(notebook.cells[0])
    notebook.wait(notebook.cells[0], "done")
    until(lambda: any(frame["kind"] == "file" for frame in notebook.frames()), "the file that it wrote is kept")
    before = notebook.head()
    visitor, other = visit(), visit()
    pages = [visitor.open(notebook), visitor.open(notebook), other.open(notebook)]
    for page in pages:
        page.reload()
        page.wait_live()
        assert [page.state(cell_id) for cell_id in notebook.cells] == ["done", "idle"]
        assert page.lines(notebook.cells[0]) == counted(5)
    assert [frame for frame in notebook.frames(before) if frame["kind"] != "session"] == []
    assert notebook.file(LOG) == ONCE
