"""Agents ask before they act: the question waits for whoever comes, one answer counts, and silence is no."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from e2e.api import Api, Frame, Notebook
from e2e.conftest import Target
from e2e.pages import NotebookPage, Visitor
from e2e.scale import AWAY, SOAK
from e2e.server import Server
from e2e.waiting import pass_time, until

Visit = Callable[..., Visitor]

FENCE = "```"
MISSING = "(no such file)"
APPROVAL, GRACE = (60, 20) if SOAK else (10, 3)  # seconds, on the server of the silences


def step(command: str) -> str:
    return f"{FENCE}sh\n{command}\n{FENCE}"


APPEND = "Now the log.\n\n" + step("echo once >> done.txt") + "\n\nThat was it."


def verdicts(notebook: Notebook) -> list[Frame]:
    return [frame for frame in notebook.frames() if frame["kind"] == "verdict"]


def card(page: NotebookPage) -> Locator:
    """The newest question on the page."""
    return page.page.get_by_test_id("ask").last


def press(page: NotebookPage, button: str) -> None:
    """Answers as a person does, once the card stands still."""
    found = card(page).get_by_test_id(button)
    expect(found).to_have_attribute("aria-disabled", "false")
    found.click()


def waiting(notebook: Notebook, count: int = 1) -> None:
    until(lambda: len([f for f in notebook.frames() if f["kind"] == "ask"]) >= count, f"{notebook} asks", 30)


@pytest.fixture
def asking(api: Api) -> Notebook:
    """A notebook whose one cell asks before it appends a line to done.txt."""
    return api.notebook(("agent", APPEND))


def test_approved_by_who_came_back_it_runs_once_and_the_turn_ends(visit: Visit, asking: Notebook) -> None:
    [cell] = asking.cells
    first = visit()
    page = first.open(asking)
    page.run(cell)
    expect(card(page)).to_contain_text("echo once >> done.txt")
    first.leave()
    pass_time(AWAY, "the question waits with nobody there")
    page = visit().open(asking)
    page.wait_state(cell, "waiting")
    press(page, "ask-approve")
    page.wait_done(cell)
    assert asking.file("done.txt") == "once\n"
    page.reload()
    expect(card(page)).to_contain_text(re.compile(r"Approved by owner at \d\d:\d\d"))
    assert [frame["body"]["verdict"] for frame in verdicts(asking)] == ["approve"]


def test_stopped_while_it_asks_it_is_denied_as_cancelled(visit: Visit, asking: Notebook) -> None:
    [cell] = asking.cells
    page = visit().open(asking)
    page.run(cell)
    page.wait_state(cell, "waiting")
    page.reload()
    page.wait_live()
    page.stop(cell)
    page.wait_state(cell, "cancelled")
    expect(card(page)).to_contain_text("the turn was stopped")
    [verdict] = verdicts(asking)
    assert (verdict["body"]["verdict"], verdict["body"]["reason"]) == ("deny", "cancelled")
    assert asking.file("done.txt") == MISSING


def test_answered_in_one_tab_it_closes_in_the_one_that_was_reloading(visit: Visit, asking: Notebook) -> None:
    [cell] = asking.cells
    one, other = visit().open(asking), visit().open(asking)
    one.run(cell)
    other.wait_state(cell, "waiting")
    other.reload()
    press(one, "ask-deny")
    expect(card(other)).to_contain_text("Denied by owner")
    expect(other.page.get_by_test_id("ask-approve")).to_have_count(0)
    assert asking.wait(cell)["state"] == "error"
    assert asking.file("done.txt") == MISSING


def test_of_two_people_at_once_one_decides_and_both_are_told(visit: Visit, asking: Notebook) -> None:
    [cell] = asking.cells
    pages = [visit().open(asking), visit().open(asking)]
    pages[0].run(cell)
    for page in pages:
        expect(card(page).get_by_test_id("ask-approve")).to_have_attribute("aria-disabled", "false")
    for page, button in zip(pages, ("ask-approve", "ask-deny"), strict=True):
        press_at_once = f"document.querySelector('[data-testid={button}]')?.click()"
        page.page.evaluate(press_at_once)
    asking.wait(cell)
    [verdict] = verdicts(asking)
    words = "Approved by owner" if verdict["body"]["verdict"] == "approve" else "Denied by owner"
    for page in pages:
        expect(card(page)).to_contain_text(words)
    assert asking.file("done.txt") == ("once\n" if verdict["body"]["verdict"] == "approve" else MISSING)


def test_an_ask_below_the_fold_is_noticed_and_the_inbox_answers_it(api: Api, visit: Visit) -> None:
    notebook = api.notebook(("markdown", "word " * 1500), ("markdown", "word " * 1500), ("agent", APPEND))
    cell = notebook.cells[2]
    visitor = visit()
    page = visitor.open(notebook)
    notebook.run(cell)
    bar = page.page.get_by_test_id("ask-bar")
    expect(bar).to_contain_text("1 question waits")
    expect(page.page).to_have_title(re.compile("Waits: "))
    bar.get_by_role("button").click()
    expect(card(page)).to_be_in_viewport()
    expect(card(page)).to_be_focused()
    inbox = NotebookPage(visitor.context.new_page())
    inbox.page.goto(f"{visitor.origin}/inbox")
    here = inbox.page.locator("[data-testid=inbox-item]", has=inbox.page.locator(f"a[href^='{notebook.path}']"))
    expect(here.locator("[data-testid=ask-approve][aria-disabled=false]")).to_be_visible()
    here.get_by_test_id("ask-approve").click()
    expect(card(page)).to_contain_text("Approved by owner")
    page.wait_done(cell)
    assert notebook.file("done.txt") == "once\n"


@pytest.mark.own_machine("the server is killed")
def test_a_server_killed_while_it_asks_asks_on(visit: Visit, asking: Notebook, server: Server) -> None:
    [cell] = asking.cells
    page = visit().open(asking)
    page.run(cell)
    page.wait_state(cell, "waiting")
    before = int(card(page).get_by_test_id("ask-countdown").get_attribute("data-seconds") or 0)
    server.kill()
    server.start()
    page.wait_live(60)
    page.wait_state(cell, "waiting")
    after = int(card(page).get_by_test_id("ask-countdown").get_attribute("data-seconds") or 0)
    assert after <= before
    press(page, "ask-approve")
    page.wait_done(cell)
    assert asking.file("done.txt") == "once\n"
    assert len(verdicts(asking)) == 1


def test_ten_steps_two_of_which_ask_are_done_across_a_closed_tab_and_a_reload(api: Api, visit: Visit) -> None:
    free = [f"{FENCE}check Step {number}\n{FENCE}" for number in range(1, 9)]
    asks = [step("echo first >> done.txt"), step("echo second >> done.txt")]
    notebook = api.notebook(("agent", "\n\n".join([*free[:4], asks[0], *free[4:], asks[1]])))
    [cell] = notebook.cells
    first = visit()
    page = first.open(notebook)
    page.run(cell)
    page.wait_state(cell, "waiting")
    first.leave()
    page = visit().open(notebook)
    press(page, "ask-approve")
    waiting(notebook, 2)
    page.reload()
    page.wait_live()
    expect(page.page.get_by_test_id("ask")).to_have_count(2)
    press(page, "ask-approve")
    page.wait_done(cell)
    assert notebook.file("done.txt") == "first\nsecond\n"
    expect(page.page.get_by_test_id("turn-done")).to_contain_text("10 calls")
    expect(page.page.get_by_test_id("checklist")).to_contain_text("8 of 8")


@pytest.fixture(scope="module")
def silent(target: Target) -> Iterator[Server]:
    """A server that waits only a little for people."""
    if target.server is None:
        pytest.skip("needs a server with time limits of its own")
    with tempfile.TemporaryDirectory(prefix="nightbook-e2e-") as folder:
        server = Server(Path(folder) / "data", APPROVAL_SECONDS=APPROVAL, OPERATOR_GRACE_SECONDS=GRACE, POLL_SECONDS=1)
        try:
            server.start()
            yield server
        finally:
            server.stop_all()


@pytest.mark.own_machine("needs time limits of its own")
def test_silence_is_no_and_says_whether_somebody_was_there(visit: Visit, silent: Server) -> None:
    client = Api(silent.url, silent.token)
    alone = client.notebook(("agent", APPEND))
    alone.run(alone.cells[0])
    assert alone.wait(alone.cells[0], seconds=GRACE + 40)["state"] == "error"
    assert verdicts(alone)[0]["body"]["reason"] == "no_operator"
    watched = client.notebook(("agent", APPEND))
    visitor = visit(origin=silent.url, link=silent.link)
    page = visitor.open(watched)
    watched.run(watched.cells[0])
    expect(card(page)).to_contain_text("Denies itself in")
    page.wait_state(watched.cells[0], "error", seconds=APPROVAL + 40)
    expect(card(page)).to_contain_text("nobody answered in time")
    assert verdicts(watched)[0]["body"]["reason"] == "timeout"
    for notebook in (alone, watched):
        assert notebook.file("done.txt") == MISSING
    page = visitor.open(alone)
    expect(card(page)).to_contain_text("nobody was here")
    card(page).get_by_test_id("ask-reconsider").click()
    alone.wait(alone.cells[0], "done")
    page.wait_done(alone.cells[0])
    assert alone.file("done.txt") == "once\n"
    client.close()
