"""The list of notebooks: found, sorted, put away, by hand and by keyboard; quick with thousands; a tour to begin."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from engine.agent.models.runbook import parse
from engine.agent.tools import TOOLS
from engine.ids import new_id
from engine.rules import POLICIES
from tests.ui.conftest import ROOT, Site
from tests.ui.test_page_in_browser import eventually


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A site of its own, so that the list has only what a test put there."""
    process = subprocess.Popen([sys.executable, "-m", "tests.ui.site"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield Site(f"http://127.0.0.1:{process.stdout.readline().strip()}")
    process.terminate()
    process.wait(10)


@pytest.fixture(autouse=True)
def empty(site: Site) -> None:
    site.call("POST", "/forget")


def titles(page: Page) -> list[str]:
    return page.locator(".entry .name").all_inner_texts()


def test_an_empty_list_offers_the_tour_which_is_a_real_notebook(page: Page, site: Site) -> None:
    page.goto(site.address)
    made: list[dict[str, object]] = []

    def answer(route: object) -> None:
        made.append(route.request.post_data_json)  # type: ignore[attr-defined]
        route.fulfill(status=201, json={"id": "none"})  # type: ignore[attr-defined]

    page.route("**/api/v1/notebooks", answer)
    page.get_by_test_id("tour-start").click()
    page.wait_for_url("**/n/none")
    cells = made[0]["cells"]
    assert isinstance(cells, list)
    assert {cell["kind"] for cell in cells} == {"markdown", "python", "agent"}
    sources = "\n".join(cell["source"] for cell in cells)
    for lesson in ("range(1, 61)", "close this tab", "input(", "while True", "Come back", "Silence means no"):
        assert lesson in sources
    (book,) = [parse(cell["source"]) for cell in cells if cell["kind"] == "agent"]
    asking = [step.tool for step in book.steps if TOOLS[step.tool].risk not in POLICIES["ask"]]
    assert (len(book.steps), asking) == (3, ["write_file"])  # one step that waits for a yes


def test_search_finds_titles_as_one_types_and_sort_orders_them(page: Page, site: Site) -> None:
    for title in ("Churn week 10", "Churn week 9", "Éclair sales", "Zebra"):
        site.notebook(("python", "1"), title=title)
    running = site.notebook(("python", "1"), title="Mid run")
    site.start(running)
    page.goto(site.address)
    expect(page.locator(".entry")).to_have_count(5)
    page.keyboard.press("/")
    page.keyboard.type("week churn")
    expect(page.locator(".entry")).to_have_count(2)
    page.get_by_test_id("notebook-search").fill("eclair")
    expect(page.locator(".entry .name")).to_have_text("Éclair sales")
    page.get_by_test_id("notebook-search").fill("nothing like it")
    expect(page.get_by_role("heading", name="Nothing found")).to_be_visible()
    page.get_by_role("button", name="Clear the search").click()
    page.get_by_test_id("notebook-sort").select_option("title")
    assert titles(page) == ["Churn week 9", "Churn week 10", "Éclair sales", "Mid run", "Zebra"]
    page.get_by_test_id("notebook-sort").select_option("state")
    assert titles(page)[0] == "Mid run"
    page.reload()
    expect(page.get_by_test_id("notebook-sort")).to_have_value("state")


def test_the_list_is_worked_by_keyboard(page: Page, site: Site) -> None:
    for title in ("a", "b", "c"):
        site.notebook(("python", "1"), title=title)
    page.goto(site.address)
    page.get_by_test_id("notebook-sort").select_option("title")
    page.locator("body").click(position={"x": 5, "y": 500})
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".name", has_text="b")).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(page.get_by_test_id("notebook-search")).to_be_focused()
    page.keyboard.type("c")
    expect(page.locator(".entry")).to_have_count(1)
    page.keyboard.press("Enter")
    page.wait_for_url("**/n/*")


def test_a_notebook_is_put_away_and_back_with_undo(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "1"), title="Old work")
    page.goto(site.address)
    page.get_by_role("button", name="More for Old work").click()
    page.get_by_role("menuitem", name="Archive").click()
    expect(page.locator(".undo")).to_contain_text("Old work is in the archive.")
    eventually(page, lambda: site.commands("archive"))
    site.write((notebook, "session", {"event": "archived"}))
    expect(page.locator(".entry")).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    eventually(page, lambda: [sent["archived"] for sent in site.commands("archive")][-2:] == [True, False])


def test_people_and_state_are_in_the_row_and_change_by_themselves(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "1"), title="Shared")
    site.call("POST", "/world", {"people": ["maya", "owner"]})
    page.goto(site.address)
    expect(page.locator(".entry .faces li")).to_have_count(2)
    site.start(notebook)
    expect(page.locator(".entry .chip")).to_have_text("Running")
    site.call("POST", "/world", {})
    expect(page.locator(".entry .faces li")).to_have_count(0)


def test_three_thousand_notebooks_stay_quick(page: Page, site: Site) -> None:
    frames = [(new_id(), "session", {"event": "created", "title": f"Notebook {number:04}"}) for number in range(3000)]
    site.write(*frames)
    page.goto(site.address)
    expect(page.locator(".entry").first).to_be_visible()
    page.get_by_test_id("notebook-sort").select_option("title")
    assert page.locator(".entry").count() < 80
    page.get_by_test_id("notebook-search").fill("2999")
    expect(page.locator(".entry .name")).to_have_text("Notebook 2999")
    page.get_by_test_id("notebook-search").fill("")
    page.evaluate("scrollTo(0, 1500 * 55)")
    expect(page.locator(".name", has_text="Notebook 1500")).to_be_visible()
    assert page.locator(".entry").count() < 80
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    expect(page.locator(".name", has_text="Notebook 2999")).to_be_visible()
