"""A phone, 390 pixels wide: everything can be reached with a thumb, and nothing is wider than the screen."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from e2e.api import Api
from e2e.pages import Visitor
from e2e.waiting import until

WIDTH = 390
PHONE = {"viewport": {"width": WIDTH, "height": 844}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}


@pytest.fixture
def phone(visit: Callable[..., Visitor]) -> Visitor:
    return visit(**PHONE)


def assert_fits(page: Page) -> None:
    """The page does not scroll sideways."""
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTH


def assert_reachable(control: Locator) -> None:
    """A control can be scrolled to, lies within the screen, and takes a tap."""
    control.scroll_into_view_if_needed()
    box = control.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= WIDTH
    control.tap(trial=True)


def test_a_notebook_is_written_and_run_on_a_phone(api: Api, phone: Visitor) -> None:
    notebook = api.notebook(title="A title that is rather long for a screen of this width, and then some")
    page = phone.open(notebook)
    page.page.get_by_test_id("cell-add-python").tap()
    expect(page.cells).to_have_count(1)
    cell_id = page.cells.first.get_attribute("data-cell-id") or ""
    page.type(cell_id, "name = input('A question: ')\nprint('wide ' * 60)\nwhile True: pass")
    page.cell(cell_id).get_by_test_id("cell-run").tap()
    page.wait_state(cell_id, "waiting")
    field = page.cell(cell_id).get_by_test_id("input-field")
    assert_reachable(field)
    field.fill("thumbs")
    page.cell(cell_id).get_by_role("button", name="Send").tap()
    page.wait_text(cell_id, "wide wide")
    assert_fits(page.page)
    assert_reachable(page.cell(cell_id).get_by_test_id("cell-stop"))
    page.cell(cell_id).get_by_test_id("cell-stop").tap()
    page.wait_state(cell_id, "cancelled")


def test_everything_can_be_reached_on_a_phone(api: Api, phone: Visitor) -> None:
    notebook = api.notebook(
        ("python", "x = '" + "long " * 60 + "'"), ("shell", "seq 3"), ("markdown", "# Text\n\n" + "word " * 90)
    )
    page = phone.open(notebook)
    assert_fits(page.page)
    for test_id in (
        "run-all",
        "cell-add-python",
        "cell-add-shell",
        "cell-add-markdown",
        "notebook-title",
        "sandbox-state",
        "feed-state",
    ):
        assert_reachable(page.page.get_by_test_id(test_id))
    assert page.page.get_by_role("button", name="Stop", exact=True).is_visible()
    page.page.get_by_role("button", name="More", exact=True).tap()
    for name in ("Restart kernel", "Archive notebook"):
        assert_reachable(page.page.get_by_role("menuitem", name=name))
    page.page.keyboard.press("Escape")
    cell = page.cells.nth(1)
    cell.get_by_test_id("cell-source").tap()
    for name in ("Move up", "Move down", "Add a cell below", "Delete cell"):
        assert_reachable(cell.get_by_role("button", name=name))
    assert_reachable(cell.get_by_label("Kind of cell"))
    assert_reachable(cell.get_by_test_id("cell-run"))
    cell.get_by_role("button", name="Move up").tap()
    until(lambda: notebook.view()["cells"][0]["id"] == notebook.cells[1], "the cell moved up")
    page.wait_order([notebook.cells[1], notebook.cells[0], notebook.cells[2]])
    cell = page.cell(notebook.cells[1])
    cell.get_by_role("button", name="Delete cell").tap()
    expect(page.cells).to_have_count(2)
    undo = page.page.get_by_role("button", name="Undo")
    assert_reachable(undo)
    undo.tap()
    expect(page.cells).to_have_count(3)
    assert_fits(page.page)


def test_the_list_on_a_phone(api: Api, phone: Visitor) -> None:
    notebook = api.notebook(title="Another title that is rather long for a screen of this width, and then some more")
    home = phone.home()
    entry = home.locator(f'[data-notebook-id="{notebook.id}"]')
    expect(entry).to_be_visible()
    assert_fits(home)
    assert_reachable(home.get_by_test_id("notebook-new").first)
    entry.get_by_role("button", name="More").tap()
    for name in ("Rename", "Archive"):
        assert_reachable(entry.get_by_role("menuitem", name=name))
    home.keyboard.press("Escape")
    entry.get_by_role("link").tap()
    home.wait_for_url(f"**{notebook.path}")
