"""The keys people know, each once, on one page; and what opens by them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from e2e.editor import caret, expect_text, fill, place, take, text_of
from e2e.pages import PATIENCE
from tests.ui.conftest import Site
from tests.ui.test_output_in_browser import opened
from tests.ui.test_page_in_browser import eventually


def cell(page: Page, at: int) -> Any:
    return page.get_by_test_id("cell").nth(at)


def choose(page: Page, at: int) -> None:
    """The cell as a whole has the focus."""
    cell(page, at).evaluate("node => node.focus()")


def sources(page: Page) -> list[str]:
    return [text_of(source) for source in page.get_by_test_id("cell-source").all()]


@pytest.fixture(scope="module")
def desk(browser: Browser, site: Site) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert not errors


@pytest.fixture
def three(desk: Page, site: Site) -> Page:
    """One page with cells "one", "two", "three", the second chosen."""
    opened(desk, site, site.notebook(("python", "one"), ("python", "two"), ("python", "three")))
    choose(desk, 1)
    return desk


# keys, then what comes of them: the kinds of the commands sent, and their fields
SENT: list[tuple[str, list[str], list[dict[str, Any]]]] = [
    ("run", ["Control+Enter"], [{"kind": "run_cell", "cell_id": "c1"}]),
    ("run and go on", ["Shift+Enter"], [{"kind": "run_cell", "cell_id": "c1"}]),
    ("run and insert", ["Alt+Enter"], [{"kind": "add_cell", "after": "c1"}, {"kind": "run_cell", "cell_id": "c1"}]),
    ("insert above", ["a"], [{"kind": "add_cell", "after": "c0"}]),
    ("insert below", ["b"], [{"kind": "add_cell", "after": "c1"}]),
    ("delete", ["d", "d"], [{"kind": "delete_cell", "cell_id": "c1"}]),
    ("delete and undo", ["d", "d", "z"], [{"kind": "delete_cell"}, {"kind": "restore_cell", "cell_id": "c1"}]),
    ("text", ["m"], [{"kind": "edit_cell", "cell_id": "c1", "cell_kind": "markdown"}]),
    ("shell", ["s"], [{"kind": "edit_cell", "cell_id": "c1", "cell_kind": "shell"}]),
    ("shell and python", ["s", "y"], [{"cell_kind": "shell"}, {"cell_kind": "python"}]),
    ("move up", ["Shift+ArrowUp"], [{"kind": "move_cell", "cell_id": "c1", "after": None}]),
    ("move down", ["Control+Shift+ArrowDown"], [{"kind": "move_cell", "cell_id": "c1", "after": "c2"}]),
    ("fold output", ["o"], [{"kind": "collapse", "cell_id": "c1", "output": True}]),
    ("fold source", ["Shift+O"], [{"kind": "collapse", "cell_id": "c1", "source": True}]),
    ("copy and paste", ["c", "v"], [{"kind": "add_cell", "after": "c1", "source": "two"}]),
    ("cut", ["x"], [{"kind": "delete_cell", "cell_id": "c1"}]),
    ("merge", ["Shift+M"], [{"kind": "merge_cells", "cell_id": "c1", "other": "c2"}]),
    ("stop", ["i", "i"], [{"kind": "stop"}]),
]


@pytest.mark.parametrize(("keys", "expected"), [row[1:] for row in SENT], ids=[row[0] for row in SENT])
def test_a_key_of_a_chosen_cell_asks_for_what_it_says(
    three: Page, site: Site, keys: list[str], expected: list[dict[str, Any]]
) -> None:
    known = len(site.call("GET", "/commands"))
    for key in keys:
        three.keyboard.press(key)
        if key in ("d", "s"):  # the page must have it before the next key is about what it leads to
            three.evaluate("() => new Promise(requestAnimationFrame)")
        if keys[-1] == "z" and key == "d":
            continue
        if keys == ["s", "y"] and key == "s":
            expect(cell(three, 1)).to_have_attribute("data-kind", "shell")
    sent = eventually(
        three, lambda: (all_ := site.call("GET", "/commands")[known:]) and len(all_) >= len(expected) and all_
    )
    for command, fields in zip(sent, expected, strict=True):
        assert {name: command.get(name) for name in fields} == fields


def test_restart_is_asked_before_it_is_done(three: Page, site: Site) -> None:
    known = len(site.commands("restart_kernel"))
    three.keyboard.press("0")
    three.keyboard.press("0")
    question = three.get_by_role("dialog")
    expect(question).to_contain_text("Restart the kernel?")
    three.keyboard.press("d")  # a dialog has the keys
    three.keyboard.press("d")
    three.keyboard.press("Escape")
    expect(question).to_have_count(0)
    expect(cell(three, 1)).to_be_focused()
    three.keyboard.press("0")
    three.keyboard.press("0")
    question.get_by_role("button", name="Restart").click()
    eventually(three, lambda: len(site.commands("restart_kernel")) == known + 1)
    expect(three.get_by_test_id("cell")).to_have_count(3)


def test_the_choice_goes_up_and_down_and_into_the_text_and_out(three: Page) -> None:
    for key, at in (("k", 0), ("ArrowDown", 1), ("j", 2), ("j", 2), ("ArrowUp", 1)):
        three.keyboard.press(key)
        expect(cell(three, at)).to_be_focused()
    three.keyboard.press("Enter")
    expect(three.get_by_test_id("cell-source").nth(1)).to_be_focused()
    three.keyboard.press("Escape")
    expect(cell(three, 1)).to_be_focused()
    assert sources(three) == ["one", "two", "three"]


def test_keys_in_a_text_are_text(three: Page, site: Site) -> None:
    known = len(site.call("GET", "/commands"))
    three.keyboard.press("Enter")
    expect(three.get_by_test_id("cell-source").nth(1)).to_be_focused()
    three.keyboard.press("End")
    three.keyboard.type("ddabmy?/z")
    expect_text(three.get_by_test_id("cell-source").nth(1), "twoddabmy?/z")
    kinds = {command["kind"] for command in eventually(three, lambda: site.call("GET", "/commands")[known:])}
    assert kinds == {"edit_cell"}


def test_one_d_and_a_held_d_delete_nothing(three: Page, site: Site) -> None:
    known = len(site.commands("delete_cell"))
    three.keyboard.press("d")
    three.keyboard.press("j")
    three.keyboard.press("d")
    choose(three, 0)
    three.keyboard.down("d")
    for _ in range(5):
        three.keyboard.down("d")  # without a key up: repeated
    three.keyboard.up("d")
    three.keyboard.press("?")
    expect(three.get_by_role("dialog")).to_be_visible()
    three.keyboard.press("Escape")
    assert len(site.commands("delete_cell")) == known


def test_a_cell_is_split_at_the_caret_and_the_split_undone(three: Page, site: Site) -> None:
    source = three.get_by_test_id("cell-source")
    fill(source.nth(1), "one = 1\ntwo = 2 😀")
    place(source.nth(1), 8)
    three.keyboard.press("Control+Shift+Minus")
    expect(three.get_by_test_id("cell")).to_have_count(4)
    expect(source.nth(2)).to_be_focused()
    assert caret(source.nth(2)) == 0
    assert sources(three) == ["one", "one = 1", "two = 2 😀", "three"]
    three.get_by_role("button", name="Undo").click()
    expect(three.get_by_test_id("cell")).to_have_count(3)
    expect_text(source.nth(1), "one = 1\ntwo = 2 😀")


def test_a_merge_is_undone(three: Page) -> None:
    three.keyboard.press("Shift+M")
    expect(three.get_by_test_id("cell")).to_have_count(2)
    expect_text(three.get_by_test_id("cell-source").nth(1), "two\nthree")
    three.keyboard.press("z")
    expect(three.get_by_test_id("cell")).to_have_count(3)
    assert sources(three) == ["one", "two", "three"]


def test_folded_parts_open_again(three: Page, site: Site) -> None:
    three.keyboard.press("Shift+O")
    folded = cell(three, 1).locator(".folded")
    expect(folded).to_contain_text("two")
    expect(three.get_by_test_id("cell-source").nth(1)).to_be_hidden()
    folded.click()
    expect(three.get_by_test_id("cell-source").nth(1)).to_be_visible()


def test_everything_is_found_by_name(three: Page, site: Site) -> None:
    known = len(site.commands("run_all"))
    three.keyboard.press("Control+k")
    field = three.get_by_role("combobox", name="Name of what to do")
    expect(field).to_be_focused()
    three.keyboard.type("rnbl")  # letters in order are enough
    expect(three.get_by_role("dialog").get_by_role("option").first).to_be_visible()
    fill_in = "from here"
    field.fill(fill_in)
    expect(three.get_by_role("dialog").get_by_role("option")).to_have_text([re.compile("Run from here on")])
    three.keyboard.press("Enter")
    assert eventually(three, lambda: site.commands("run_all")[known:])[0]["since"] == "c1"
    expect(cell(three, 1)).to_be_focused()
    three.keyboard.press("Enter")
    three.keyboard.press("Control+k")
    field.fill("no such thing")
    expect(three.get_by_text("Nothing of that name")).to_be_visible()
    three.keyboard.press("Escape")
    expect(three.get_by_test_id("cell-source").nth(1)).to_be_focused()


def test_the_list_of_keys_names_each(three: Page) -> None:
    three.keyboard.press("?")
    listed = three.get_by_role("dialog")
    for name in ("Insert cell above", "Delete cell", "Run cell and go on", "Merge with the cell below"):
        expect(listed.get_by_text(name, exact=True)).to_be_visible()
    expect(listed.locator("div", has_text="Delete cell").last.locator("kbd")).to_have_text(["D", "D"])


def test_find_and_replace_in_all_cells(three: Page, site: Site) -> None:
    fill(three.get_by_test_id("cell-source").nth(1), "Two twofold tree")
    three.keyboard.press("Control+Shift+f")
    bar = three.get_by_role("search")
    bar.get_by_label("Find").fill("t(w|r)")
    expect(bar.get_by_role("status")).to_have_text("Nothing found")
    bar.get_by_label("Pattern").check()
    expect(bar.get_by_role("status")).to_have_text("1 of 3")
    bar.get_by_label("Match case").check()
    expect(bar.get_by_role("status")).to_have_text(re.compile("of 2"))
    bar.get_by_label("Find").fill("(")
    expect(bar.get_by_role("status")).to_have_text("No valid pattern")
    bar.get_by_label("Find").fill("t(w|r)")
    bar.get_by_label("Replace by").fill("<$1>")
    bar.get_by_role("button", name="Replace", exact=True).click()
    expect_text(three.get_by_test_id("cell-source").nth(1), "Two <w>ofold tree")
    bar.get_by_role("button", name="All").click()
    expect_text(three.get_by_test_id("cell-source").nth(1), "Two <w>ofold <r>ee")
    three.get_by_role("button", name="Undo").click()
    expect_text(three.get_by_test_id("cell-source").nth(1), "Two <w>ofold tree")
    bar.get_by_label("Find").press("Escape")
    expect(bar).to_have_count(0)
    eventually(three, lambda: site.commands("edit_cell")[-1]["insert"].endswith("tr"))


def test_find_reaches_cells_that_are_far_away_and_texts_that_are_drawn(desk: Page, site: Site) -> None:
    cells = [("python", f"x = {number}") for number in range(120)] + [("markdown", "# Title\nneedle here")]
    opened(desk, site, site.notebook(*cells))
    expect(desk.get_by_test_id("cell")).to_have_count(121)
    desk.keyboard.press("/")
    bar = desk.get_by_role("search")
    bar.get_by_label("Find").fill("needle")
    expect(bar.get_by_role("status")).to_have_text("1 of 1")
    expect(desk.get_by_test_id("cell-source").last).to_be_in_viewport()
    desk.keyboard.press("Escape")
    expect(cell(desk, 120)).to_be_focused()
    expect(desk.locator(".prose").last).to_be_visible()


def test_a_cell_is_dragged_by_its_grip(three: Page, site: Site) -> None:
    known = len(site.commands("move_cell"))
    cell(three, 0).hover()
    grip = cell(three, 0).locator(".grip").bounding_box()
    last = cell(three, 2).bounding_box()
    assert grip
    assert last
    three.mouse.move(grip["x"] + 8, grip["y"] + 8)
    three.mouse.down()
    three.mouse.move(grip["x"] + 8, last["y"] + last["height"] - 4, steps=6)
    expect(three.locator(".drop")).to_have_count(1)
    three.mouse.up()
    [moved] = eventually(three, lambda: site.commands("move_cell")[known:])
    assert (moved["cell_id"], moved["after"]) == ("c0", "c2")
    expect(three.locator(".drop")).to_have_count(0)
    assert sources(three) == ["two", "three", "one"]


def test_an_input_method_keeps_its_keys_and_what_comes_from_elsewhere_waits_for_nobody(three: Page, site: Site) -> None:
    source = three.get_by_test_id("cell-source").nth(1)
    fill(source, "one\ntwo\n")
    eventually(three, lambda: "two" in site.commands("edit_cell")[-1]["insert"])
    place(source, 8)
    session = three.context.new_cdp_session(three)
    session.send("Input.imeSetComposition", {"text": "ni", "selectionStart": 2, "selectionEnd": 2})
    notebook = three.url.rsplit("/", 1)[-1]
    site.write((notebook, "cell", {"event": "edited", "cell_id": "c1", "at": 0, "insert": "zero ", "by": "another"}))
    eventually(three, lambda: text_of(source).startswith("zero one"))
    session.send("Input.insertText", {"text": "你"})
    expect_text(source, "zero one\ntwo\n你")
    take(source)


def test_what_is_typed_before_the_new_cell_is_there_goes_into_it(desk: Page, site: Site) -> None:
    opened(desk, site, site.notebook(("python", "one")))
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route) if '"add_cell"' in (route.request.post_data or "") else route.continue_()

    desk.route("**/commands", hold)
    take(cell(desk, 0).get_by_test_id("cell-source"))
    desk.keyboard.press("Shift+Enter")
    desk.keyboard.type("two = 2")
    desk.keyboard.press("Shift+Enter")  # there is nothing to run yet
    desk.keyboard.press("Enter")
    desk.keyboard.type("two")
    eventually(desk, lambda: held)
    assert sources(desk) == ["one"]
    held[0].continue_()
    new = cell(desk, 1).get_by_test_id("cell-source")
    expect_text(new, "two = 2\ntwo")
    expect(new).to_be_focused()
    desk.keyboard.type("!")
    expect_text(new, "two = 2\ntwo!")
    assert len(held) == 1
    desk.unroute("**/commands")
