"""The server is killed with -9 in the middle: programs go on without it, and nothing of what they print is lost."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Route, expect

from e2e.api import Api, Notebook
from e2e.cells import LOG, ONCE, asking, counted, counting
from e2e.pages import NotebookPage, Visitor
from e2e.scale import DEAD, KILL_LINES, KILL_PAUSE
from e2e.server import Server
from e2e.waiting import pass_time, until

pytestmark = pytest.mark.own_machine("the server is killed")


@pytest.fixture
def notebook(api: Api) -> Notebook:
    return api.notebook(("python", counting(KILL_LINES, KILL_PAUSE)), ("python", "print('second')"))


def run_to_line_100(visitor: Visitor, notebook: Notebook) -> NotebookPage:
    page = visitor.open(notebook)
    page.run(notebook.cells[0])
    page.wait_text(notebook.cells[0], "line 00100")
    return page


def kill_and_start_again(server: Server) -> None:
    server.kill()
    pass_time(DEAD, "the server is dead")
    server.start()


def assert_whole(page: NotebookPage, notebook: Notebook) -> None:
    cell_id = notebook.cells[0]
    page.wait_done(cell_id, seconds=60)
    until(lambda: len(page.lines(cell_id)) >= KILL_LINES, "every line is on the page")
    assert page.lines(cell_id) == counted(KILL_LINES)


def test_the_server_is_killed_with_the_page_open(
    notebook: Notebook, visit: Callable[..., Visitor], server: Server
) -> None:
    page = run_to_line_100(visit(), notebook)
    same = page.mark()
    kill_and_start_again(server)
    assert_whole(page, notebook)
    assert same(), "the page was loaded again, and what a person did in it is gone"
    assert_whole(visit().open(notebook), notebook)
    assert notebook.file(LOG) == ONCE
    assert page.problems == []


def test_another_version_of_the_server_brings_its_own_page(
    notebook: Notebook, visit: Callable[..., Visitor], server: Server
) -> None:
    page = run_to_line_100(visit(), notebook)
    same = page.mark()

    def of_another_version(route: Route) -> None:
        if route.request.resource_type != "fetch":
            route.continue_()
            return
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text().replace("/esm/", "/esm/another-", 1))

    page.page.route(f"**/n/{notebook.id}", of_another_version)
    with page.page.expect_navigation(timeout=60_000):
        kill_and_start_again(server)
    page.wait_live(60)
    assert not same()
    assert_whole(page, notebook)


def test_a_person_in_the_midst_of_a_text_notices_no_restart(
    api: Api, visit: Callable[..., Visitor], server: Server
) -> None:
    """The caret stays where it is, and what is typed before, while and after the server is dead is in the text."""
    notebook = api.notebook(("python", "one = 1\n"), ("python", "two"), ("markdown", "\n\n".join(["paragraph"] * 80)))
    page = visit().open(notebook)
    cell_id = notebook.cells[0]
    page.source(cell_id).click()
    page.page.keyboard.press("Control+End")
    page.page.keyboard.type("before ")
    server.kill()
    page.page.keyboard.type("while ")
    expect(page.feed).not_to_have_attribute("data-state", "live")
    server.start()
    page.wait_live(60)
    page.page.keyboard.type("after")
    until(lambda: notebook.view()["cells"][0]["source"] == "one = 1\nbefore while after", "all of it is kept", 30)
    assert [cell["source"] for cell in notebook.view()["cells"]][1:2] == ["two"]


def test_other_pages_outlive_the_server_too(api: Api, visit: Callable[..., Visitor], server: Server) -> None:
    """None is loaded again: into a server that has just gone, that would end in the browser's own error."""
    visitor = visit()
    pages = [visitor.home(), *(visitor.context.new_page() for _ in range(2))]
    for page, path in zip(pages[1:], ("/inbox", "/settings"), strict=True):
        page.goto(visitor.origin + path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
    for page in pages:
        page.wait_for_function("window.socket?.connected")
        page.evaluate("window.markOfTheSuite = window.clientId")
    for _ in range(2):
        server.kill()
        server.start()
    known = "window.socket?.connected && window.markOfTheSuite && window.clientId !== window.markOfTheSuite"
    for page in pages:
        page.wait_for_function(known, timeout=30_000)
    made = api.notebook(("python", "1"))
    expect(pages[0].locator(f'[data-notebook-id="{made.id}"]')).to_be_visible()


def test_the_server_leaves_in_order_and_the_page_finds_the_next_one(
    notebook: Notebook, visit: Callable[..., Visitor], server: Server
) -> None:
    page = run_to_line_100(visit(), notebook)
    assert server.terminate() == 0
    expect(page.feed).to_have_text(re.compile("Server restarts|Server does not answer"), timeout=30_000)
    server.start()
    page.wait_live(60)
    assert_whole(page, notebook)
    assert notebook.file(LOG) == ONCE
    assert page.problems == []


def test_the_server_is_killed_with_the_page_closed(
    notebook: Notebook, visit: Callable[..., Visitor], server: Server
) -> None:
    run_to_line_100(visit(), notebook).close()
    kill_and_start_again(server)
    assert_whole(visit().open(notebook), notebook)
    assert notebook.file(LOG) == ONCE


def test_what_was_seen_before_the_kill_is_there_after_it(notebook: Notebook, visitor: Visitor, server: Server) -> None:
    """Stored before seen: the journal that comes up again holds every frame that a page had drawn."""
    page = run_to_line_100(visitor, notebook)
    server.kill()
    seen, shown = page.seq(), page.lines(notebook.cells[0])
    server.start()
    assert notebook.head() >= seen
    assert counted(KILL_LINES)[: len(shown)] == shown
    notebook.wait(notebook.cells[0], "done", seconds=60)
    frames = notebook.frames()
    assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))


def test_it_ends_while_the_server_is_dead(api: Api, visitor: Visitor, server: Server) -> None:
    """The next server tells the end once, and runs what was queued behind; variables are still there. A page that was
    frozen all the while, as phones do it, has missed nothing when it is thawed, and shows nothing twice."""
    notebook = api.notebook(("python", counting(100, 0.01) + "\nkept = 41"), ("python", "print(kept + 1)"))
    page = visitor.open(notebook)
    page.run(notebook.cells[0])
    page.run(notebook.cells[1])
    frozen = visitor.open(notebook)
    page.wait_text(notebook.cells[0], "line 00020")
    frozen.wait_text(notebook.cells[0], "line 00020")
    power = frozen.page.context.new_cdp_session(frozen.page)
    power.send("Debugger.enable")
    power.send("Debugger.pause")  # no timer and no message comes through: what a browser does to pages of a phone
    kill_and_start_again(server)
    notebook.wait(notebook.cells[1], "done")
    ends = [frame["body"]["status"] for frame in notebook.runs() if frame["body"]["event"] == "ended"]
    assert ends == ["done", "done"]
    page.wait_done(notebook.cells[1])
    assert page.lines(notebook.cells[0]) == counted(100)
    assert page.lines(notebook.cells[1]) == ["42"]
    assert notebook.file(LOG) == ONCE
    power.send("Debugger.resume")
    frozen.wait_done(notebook.cells[1], seconds=60)
    expect(frozen.cells).to_have_count(3)  # and the one that read the file
    assert frozen.lines(notebook.cells[0]) == counted(100)
    assert frozen.lines(notebook.cells[1]) == ["42"]


@pytest.mark.soak("the kills above show each case once")
def test_killed_again_and_again(api: Api, visitor: Visitor, server: Server) -> None:
    notebook = api.notebook(("python", counting(KILL_LINES, KILL_PAUSE)))
    page = run_to_line_100(visitor, notebook)
    same = page.mark()
    for _ in range(5):
        server.kill()
        server.start()
    assert_whole(page, notebook)
    assert same()
    assert notebook.file(LOG) == ONCE


def test_a_question_outlives_the_server(api: Api, visit: Callable[..., Visitor], server: Server) -> None:
    notebook = api.notebook(("python", asking("input('name? ')")))
    visit().open(notebook).run(notebook.cells[0])
    notebook.wait(notebook.cells[0], "waiting")
    kill_and_start_again(server)
    page = visit().open(notebook)
    page.wait_state(notebook.cells[0], "waiting")
    page.answer(notebook.cells[0], "Ada")
    page.wait_done(notebook.cells[0])
    assert page.lines(notebook.cells[0]) == ["before", "name? Ada", "got 3 characters"]
    assert notebook.file(LOG) == ONCE


def test_a_run_can_be_stopped_after_the_restart(api: Api, visitor: Visitor, server: Server) -> None:
    notebook = api.notebook(("python", "print('begun')\nwhile True: pass"))
    page = visitor.open(notebook)
    page.run(notebook.cells[0])
    page.wait_text(notebook.cells[0], "begun")
    kill_and_start_again(server)
    page.wait_live()
    page.stop(notebook.cells[0])
    page.wait_state(notebook.cells[0], "cancelled")
