"""The document by the page: cells and notebooks are made, changed and moved, and nobody's typing is lost."""

import re
from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect

from e2e.api import Api, Notebook
from e2e.editor import expect_text, fill
from e2e.pages import NotebookPage, Visitor
from e2e.proxy import Proxy
from e2e.waiting import until

Visit = Callable[..., Visitor]


def sources(notebook: Notebook) -> list[str]:
    return [cell["source"] for cell in notebook.view()["cells"]]


def press(cell: Locator, name: str) -> None:
    """Presses one of a cell's small buttons, which show when the pointer is over it."""
    cell.hover()
    cell.get_by_role("button", name=name).click()


def row(page: Page, title: str) -> Locator:
    return page.get_by_test_id("notebook-row").filter(has_text=title)


def test_from_nothing_to_a_result(visitor: Visitor) -> None:
    page = visitor.home()
    page.get_by_test_id("notebook-new").first.click()
    page.wait_for_url(re.compile(r"/n/\w+"))
    opened = NotebookPage(page)
    opened.wait_live()
    cell_id = opened.cells.first.get_attribute("data-cell-id")
    assert cell_id
    opened.type(cell_id, "6 * 7")
    opened.source(cell_id).press("Control+Enter")
    opened.wait_done(cell_id)
    opened.wait_text(cell_id, "42")


def test_cells_are_added_moved_deleted_and_brought_back(api: Api, visit: Visit) -> None:
    notebook = api.notebook(("python", "first"))
    page, other = visit().open(notebook), visit().open(notebook)
    for kind, text in (("shell", "echo second"), ("markdown", "Third"), ("python", "fourth")):
        before = page.cells.count()
        page.page.get_by_test_id(f"cell-add-{kind}").click()
        expect(page.cells).to_have_count(before + 1)
        fill(page.cells.last.get_by_test_id("cell-source"), text)
    until(lambda: sources(notebook) == ["first", "echo second", "Third", "fourth"], "all that was typed is kept")
    assert [cell["kind"] for cell in notebook.view()["cells"]] == ["python", "shell", "markdown", "python"]

    first, second, third, fourth = (cell["id"] for cell in notebook.view()["cells"])
    press(page.cell(fourth), "Move up")
    until(lambda: sources(notebook) == ["first", "echo second", "fourth", "Third"], "the last moved up")
    page.wait_order([first, second, fourth, third])
    press(page.cell(first), "Move down")
    until(lambda: sources(notebook) == ["echo second", "first", "fourth", "Third"], "the first moved down")
    page.wait_order([second, first, fourth, third])

    press(page.cell(first), "Delete cell")
    expect(other.cells).to_have_count(3)
    assert sources(notebook) == ["echo second", "fourth", "Third"]
    page.page.get_by_role("button", name="Undo").click()
    other.wait_order([second, first, fourth, third])
    assert sources(notebook) == ["echo second", "first", "fourth", "Third"]


def test_two_persons_edit_different_cells(api: Api, visit: Visit) -> None:
    notebook = api.notebook(("python", "a = 1"), ("python", "b = 1"))
    first, second = visit().open(notebook), visit().open(notebook)
    for number in range(5):
        first.type(notebook.cells[0], f"a = {number} * 10")
        second.type(notebook.cells[1], f"b = {number} * 10")
    expect_text(first.source(notebook.cells[1]), "b = 4 * 10")
    expect_text(second.source(notebook.cells[0]), "a = 4 * 10")
    assert sources(notebook) == ["a = 4 * 10", "b = 4 * 10"]
    assert first.cells.count() == 2


def test_two_persons_edit_different_lines_of_one_cell(api: Api, visit: Visit, proxy: Proxy) -> None:
    notebook = api.notebook(("python", "top\n\nmiddle\n\nbottom"))
    cell_id = notebook.cells[0]
    here, away = visit().open(notebook), visit(origin=proxy.url).open(notebook)
    proxy.freeze()
    away.type(cell_id, "top\n\nmiddle\n\nbottom of the one who was away")
    here.type(cell_id, "top of the one who was here\n\nmiddle\n\nbottom")
    until(lambda: sources(notebook)[0].startswith("top of"), "the edit of who was here is kept")
    proxy.restore()
    both = "top of the one who was here\n\nmiddle\n\nbottom of the one who was away"
    until(lambda: sources(notebook) == [both], "both edits are in the cell")
    expect_text(here.source(cell_id), both)
    expect_text(away.source(cell_id), both)


def test_overlapping_edits_keep_both(api: Api, visit: Visit, proxy: Proxy) -> None:
    notebook = api.notebook(("python", "value = 1"))
    cell_id = notebook.cells[0]
    here, away = visit().open(notebook), visit(origin=proxy.url).open(notebook)
    proxy.freeze()
    away.type(cell_id, "value = 'of the one who was away'")
    here.type(cell_id, "value = 'of the one who was here'")
    until(lambda: sources(notebook) == ["value = 'of the one who was here'"], "the edit of who was here is kept")
    proxy.restore()
    expect(away.cells).to_have_count(2)
    expect(here.cells).to_have_count(2)
    until(
        lambda: sources(notebook) == ["value = 'of the one who was here'", "value = 'of the one who was away'"],
        "both versions are kept, as two cells",
    )
    expect(away.page.get_by_text("Two people changed the same text")).to_be_visible()


def test_what_was_typed_survives_a_reload(api: Api, visit: Visit, proxy: Proxy) -> None:
    """Even when the link was down while it was typed, and the tab was reloaded before it came back."""
    notebook = api.notebook(("python", "old"))
    page = visit(origin=proxy.url).open(notebook)
    proxy.refuse()
    page.type(notebook.cells[0], "typed without a link")
    proxy.restore()
    page.reload()
    expect_text(page.source(notebook.cells[0]), "typed without a link")
    until(lambda: sources(notebook) == ["typed without a link"], "what was typed reached the server")


def test_a_notebook_is_renamed_on_both_pages(api: Api, visitor: Visitor) -> None:
    notebook = api.notebook(("python", ""), title="Before")
    home, page = visitor.home(), visitor.open(notebook)
    title = page.page.get_by_test_id("notebook-title")
    title.fill("After ≤ <b>")
    title.press("Enter")
    expect(row(home, "After ≤ <b>")).to_be_visible()
    entry = home.locator(f'[data-notebook-id="{notebook.id}"]')
    entry.get_by_role("button", name="More").click()
    entry.get_by_role("menuitem", name="Rename").click()
    field = home.get_by_label("New title")
    field.fill("Renamed at home")
    field.press("Enter")
    expect(title).to_have_text("Renamed at home")
    expect(page.page).to_have_title(re.compile("Renamed at home"))


def test_a_notebook_is_archived_and_taken_back(api: Api, visitor: Visitor) -> None:
    notebook = api.notebook(("python", ""), title="Old work")
    home = visitor.home()
    entry = home.locator(f'[data-notebook-id="{notebook.id}"]')
    entry.get_by_role("button", name="More").click()
    entry.get_by_role("menuitem", name="Archive").click()
    expect(entry).to_have_count(0)
    home.get_by_role("button", name="Archive", exact=True).click()
    expect(entry).to_be_visible()
    entry.get_by_role("button", name="More").click()
    entry.get_by_role("menuitem", name="Take back").click()
    expect(entry).to_have_count(0)
    home.get_by_role("button", name="Notebooks", exact=True).click()
    expect(entry).to_be_visible()


def test_the_list_shows_what_runs_and_what_waits(api: Api, visitor: Visitor) -> None:
    notebook = api.notebook(("python", "input('? ')"), title="Asks something")
    home = visitor.home()
    entry = home.locator(f'[data-notebook-id="{notebook.id}"]')
    expect(entry).to_have_attribute("data-state", "idle")
    notebook.run(notebook.cells[0])
    expect(entry).to_have_attribute("data-state", "waiting")
    notebook.ask("stop")
    notebook.wait(notebook.cells[0], "cancelled")
    expect(entry).to_have_attribute("data-state", "idle")


def test_a_page_of_a_notebook_that_is_not_there_says_so(visitor: Visitor) -> None:
    page = visitor.context.new_page()
    answer = page.goto(visitor.origin + "/n/there-is-none")
    assert answer is not None
    assert answer.status == 404
    expect(page.get_by_text("no such notebook", exact=False)).to_be_visible()
