"""The pages in a real browser: what a person does reaches the server once, and nothing typed is lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from e2e.editor import caret, expect_text, fill, place, text_of
from e2e.scale import SOAK
from tests.ui.conftest import Site
from tests.ui.test_output_in_browser import drawn, opened


def eventually(page: Page, condition: Callable[[], Any]) -> Any:
    """Asks until the answer is true, at most twenty seconds; the page goes on meanwhile.

    An entry that is not there yet is an answer, too.
    """
    seen: object = None
    for _ in range(400):
        try:
            if answer := condition():
                return answer
            seen = answer
        except LookupError as error:
            seen = error
        page.evaluate("() => new Promise((done) => setTimeout(done, 50))")
    raise AssertionError(f"it did not happen within twenty seconds; last seen: {seen!r}")


def test_typing_becomes_small_splices_in_code_points(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "start 😀\n" + "# filler\n" * 11_000))
    opened(page, site, notebook)
    area = page.get_by_test_id("cell-source")
    place(area, 8)
    before = len(site.commands("edit_cell"))
    page.keyboard.type("abc")
    eventually(page, lambda: len(site.commands("edit_cell")) > before)
    edits = site.commands("edit_cell")[before:]
    assert "".join(edit["insert"] for edit in edits) == "abc"
    assert (edits[0]["at"], edits[0]["remove"]) == (7, 0)
    assert all(len(str(edit)) < 400 for edit in edits)


def test_an_edit_from_elsewhere_leaves_caret_and_typing_alone(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "one\ntwo"))
    opened(page, site, notebook)
    area = page.get_by_test_id("cell-source")
    place(area, 7)
    page.keyboard.type("!")
    site.write((notebook, "cell", {"event": "edited", "cell_id": "c0", "at": 0, "insert": "zero ", "by": "another"}))
    expect_text(area, "zero one\ntwo!")
    assert caret(area) == 13


def test_run_sends_what_was_typed_first(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", ""))
    opened(page, site, notebook)
    edits, runs = len(site.commands("edit_cell")), len(site.commands("run_cell"))
    page.get_by_test_id("cell-source").click()
    page.keyboard.type("1 + 1")
    page.keyboard.press("Control+Enter")
    eventually(page, lambda: len(site.commands("run_cell")) > runs)
    kinds = [command["kind"] for command in site.call("GET", "/commands")]
    assert kinds.index("edit_cell", 0) < len(kinds) - 1
    assert kinds[-1] == "run_cell"
    assert "".join(edit["insert"] for edit in site.commands("edit_cell")[edits:]) == "1 + 1"


def test_a_command_is_asked_again_under_the_same_id_until_it_is_answered(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    opened(page, site, notebook)
    ids: list[str] = []
    page.on("request", lambda said: ids.append(said.post_data_json["id"]) if "/commands" in said.url else None)
    before = len(site.commands("run_cell"))
    site.call("POST", "/refuse/503/3")
    page.get_by_test_id("cell-run").click()
    eventually(page, lambda: len(site.commands("run_cell")) > before and len(ids) == 4)
    assert len(set(ids)) == 1


def test_a_refusal_is_told_calmly_and_the_next_command_goes_on(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    opened(page, site, notebook)
    before = len(site.commands("run_cell"))
    site.call("POST", "/refuse/422/1")
    page.get_by_test_id("cell-run").click()
    expect(page.get_by_role("alert")).to_contain_text("Not now")
    page.get_by_test_id("cell-run").click()
    eventually(page, lambda: len(site.commands("run_cell")) == before + 1)


def test_what_was_typed_and_asked_survives_a_reload_of_the_tab(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "keep"))
    opened(page, site, notebook)
    before = len(site.commands("run_cell"))
    site.call("POST", "/refuse/503/1000")
    page.get_by_test_id("cell-source").click()
    page.keyboard.press("End")
    page.keyboard.type(" me")
    page.get_by_test_id("cell-add-python").click()
    expect(page.locator(".chip", has_text="not sent yet")).to_be_visible()
    page.reload()
    expect_text(page.get_by_test_id("cell-source").first, "keep me")
    site.call("POST", "/refuse/503/0")
    drawn(page, 4)
    expect(page.get_by_test_id("cell")).to_have_count(2)
    expect_text(page.get_by_test_id("cell-source").first, "keep me")
    assert len(site.commands("run_cell")) == before


@pytest.mark.parametrize("arrived", [True, False])
@pytest.mark.parametrize("elsewhere", ["", "!"])
def test_what_was_typed_on_while_an_edit_was_on_its_way_makes_no_second_cell(
    page: Page, site: Site, arrived: bool, elsewhere: str
) -> None:
    notebook = site.notebook(("python", "# begin\n# end"), ("python", "other"))
    opened(page, site, notebook)
    area = page.get_by_test_id("cell-source").first
    place(area, 8)
    known = len(site.commands("edit_cell"))
    page.keyboard.type("# one\n")
    drawn(page, 4)
    page.evaluate("() => new Promise((done) => setTimeout(done, 500))")
    site.call("POST", "/refuse/503/1000")  # whatever the page sends from here on, however late, the site has it from us
    page.keyboard.type("# two\n")
    kept = f"JSON.parse(sessionStorage.getItem('nightbook.commands.{notebook}'))"
    [waiting] = eventually(page, lambda: page.evaluate(kept))
    page.keyboard.type("# three\n")
    page.goto("about:blank")
    if arrived:
        site.call("POST", "/refuse/503/0")
        site.call("POST", f"/api/v1/notebooks/{notebook}/commands", waiting)
    else:
        site.call("POST", "/refuse/503/4")  # the page is whole before its edit goes
    if elsewhere:
        end = len("# begin\n# one\n# end") + (len("# two\n") if arrived else 0)
        site.write((notebook, "cell", {"event": "edited", "cell_id": "c0", "at": end, "insert": "!", "by": "another"}))
    opened(page, site, notebook)
    whole = f"# begin\n# one\n# two\n# three\n# end{elsewhere}"
    expect_text(area, whole)
    eventually(page, lambda: any("three" in edit["insert"] for edit in site.commands("edit_cell")[known:]))
    drafts = "Object.keys(sessionStorage).filter((key) => key.startsWith('nightbook.draft')).length"
    eventually(page, lambda: page.evaluate(drafts) == 0)
    page.reload()
    expect_text(area, whole)
    expect(page.get_by_test_id("cell")).to_have_count(2)


def test_an_edit_from_elsewhere_during_a_flight_keeps_what_was_typed_since(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "# begin\n# end"))
    opened(page, site, notebook)
    area = page.get_by_test_id("cell-source")
    place(area, 8)
    known = len(site.commands("edit_cell"))
    site.call("POST", "/refuse/503/1000")
    page.keyboard.type("# one\n")
    expect(page.locator(".chip", has_text="not sent yet")).to_be_visible()
    page.keyboard.type("# two\n")
    site.write((notebook, "cell", {"event": "edited", "cell_id": "c0", "at": 13, "insert": "!", "by": "another"}))
    whole = "# begin\n# one\n# two\n# end!"
    expect_text(area, whole)
    site.call("POST", "/refuse/503/0")
    eventually(page, lambda: any("two" in edit["insert"] for edit in site.commands("edit_cell")[known:]))
    page.reload()
    expect_text(area, whole)


def test_a_source_over_512_kib_is_told_and_not_sent(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    opened(page, site, notebook)
    before = len(site.commands("edit_cell"))
    fill(page.get_by_test_id("cell-source"), "y" * (512 * 1024 + 1))
    expect(page.get_by_role("alert")).to_contain_text("512 KiB")
    fill(page.get_by_test_id("cell-source"), "z")
    eventually(page, lambda: len(site.commands("edit_cell")) == before + 1)
    assert site.commands("edit_cell")[-1]["insert"] == "z"


def test_the_input_line_keeps_text_and_focus_while_output_streams(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    site.start(notebook)
    opened(page, site, notebook)
    ask = {"event": "asked", "cell_id": "c0", "run_id": "r0", "input": "i1", "prompt": "Name? ", "password": False}
    site.write((notebook, "input", ask))
    field = page.get_by_test_id("input-field")
    field.click()
    page.keyboard.type("Ad")
    site.prints(notebook, *[f"{number}\n" for number in range(30)])
    drawn(page, 35)
    page.keyboard.type("a")
    expect(field).to_have_value("Ada")
    expect(page.get_by_label("Name?")).to_be_visible()
    expect(page.get_by_test_id("cell")).to_have_attribute("data-state", "waiting")
    page.keyboard.press("Enter")
    sent = eventually(page, lambda: site.commands("input"))[-1]
    assert (sent["run_id"], sent["input"], sent["text"]) == ("r0", "i1", "Ada")
    expect(field).to_have_count(0)
    expect(page.get_by_test_id("cell")).to_be_focused()
    site.write((notebook, "input", {**ask, "input": "i2", "prompt": "Password: ", "password": True}))
    expect(field).to_have_attribute("type", "password")
    expect(field).to_be_focused()


def test_a_password_waits_nowhere_but_in_the_page(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    site.start(notebook)
    ask = {"event": "asked", "cell_id": "c0", "run_id": "r0", "input": "i1", "prompt": "", "password": True}
    site.write((notebook, "input", ask))
    opened(page, site, notebook)
    site.call("POST", "/refuse/503/1000")
    page.get_by_test_id("input-field").fill("secret!")
    page.keyboard.press("Enter")
    expect(page.locator(".chip", has_text="not sent yet")).to_be_visible()
    assert "secret!" not in page.evaluate("JSON.stringify(sessionStorage) + JSON.stringify(localStorage)")
    site.call("POST", "/refuse/503/0")


def test_a_deleted_cell_can_be_brought_back(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "one"), ("python", "two"))
    opened(page, site, notebook)
    page.get_by_test_id("cell").first.hover()
    page.get_by_test_id("cell").first.get_by_label("Delete cell").click()
    expect(page.get_by_test_id("cell")).to_have_count(1)
    page.get_by_role("button", name="Undo").click()
    assert eventually(page, lambda: site.commands("restore_cell"))[-1]["cell_id"] == "c0"


def test_deletions_are_undone_one_after_the_other_and_the_focus_stays_near(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "one"), ("python", "two"), ("python", "three"))
    opened(page, site, notebook)
    sources = page.get_by_test_id("cell-source")
    for text in ("two", "three"):
        page.get_by_test_id("cell").nth(1).hover()
        page.get_by_test_id("cell").nth(1).get_by_label("Delete cell").click()
        expect(page.get_by_test_id("cell")).to_have_count(2 if text == "two" else 1)
        expect(sources.last).to_be_focused()
    expect(page.locator(".undo")).to_contain_text("2 cells deleted.")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".undo")).to_contain_text("Cell deleted.")
    expect_text(sources.last, "three")
    expect(sources.last).to_be_focused()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".undo")).to_have_count(0)
    expect(page.get_by_test_id("cell")).to_have_count(3)
    assert [text_of(area) for area in sources.all()] == ["one", "two", "three"]


def test_shift_enter_in_the_last_cell_runs_it_and_adds_one(page: Page, site: Site) -> None:
    notebook = site.notebook(("shell", "ls"))
    opened(page, site, notebook)
    runs = len(site.commands("run_cell"))
    page.get_by_test_id("cell-source").click()
    page.keyboard.press("Shift+Enter")
    expect(page.get_by_test_id("cell")).to_have_count(2)
    expect(page.get_by_test_id("cell-source").last).to_be_focused()
    expect(page.get_by_test_id("cell").last).to_have_attribute("data-kind", "python")
    eventually(page, lambda: len(site.commands("run_cell")) == runs + 1)


def test_what_is_asked_for_offline_is_promised_once(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "one"), ("python", "two"))
    opened(page, site, notebook)
    page.context.set_offline(True)
    page.evaluate("window.socket.io.engine.close()")
    expect(page.get_by_test_id("feed-state")).to_have_attribute("data-state", "offline")
    page.get_by_test_id("cell-add-python").click()
    expect(page.locator(".chip", has_text="not sent yet")).to_be_visible()
    expect(page.locator(".q-loading-bar[aria-hidden=false]")).to_have_count(0)
    expect(page.locator(".undo")).to_contain_text("Cell will be added when the connection is back.")
    page.keyboard.type("x y")
    page.get_by_test_id("cell").first.hover()
    page.get_by_test_id("cell").first.get_by_label("Delete cell").click()
    expect(page.locator(".undo")).to_contain_text("Cell will be deleted when the connection is back.")
    page.context.set_offline(False)
    expect(page.locator(".undo")).to_contain_text("Cell deleted.")
    expect(page.locator(".undo")).not_to_contain_text("will be")
    expect(page.get_by_test_id("cell")).to_have_count(2)


def test_the_focus_is_on_the_row_after_renaming_it(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"), title="Old")
    page.goto(site.address)
    row = page.locator(f"[data-notebook-id='{notebook}']")
    row.get_by_role("button", name="More for Old").click()
    row.get_by_role("menuitem", name="Rename").click()
    page.keyboard.type("New")
    page.keyboard.press("Enter")
    expect(row.locator(".name")).to_be_focused()
    expect(row.locator(".name")).to_have_text("New")


def test_a_notebook_made_here_begins_in_its_first_cell(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", ""))
    page.goto(site.address)
    page.route("**/api/v1/notebooks", lambda route: route.fulfill(status=201, json={"id": notebook}))
    page.get_by_test_id("notebook-new").first.click()
    expect(page.get_by_test_id("cell-source")).to_be_focused()


@pytest.mark.parametrize("kind", ["python", "markdown"])
def test_escape_leads_out_of_an_editor_and_tab_goes_on(page: Page, site: Site, kind: str) -> None:
    notebook = site.notebook((kind, ""), ("python", "two"))
    opened(page, site, notebook)
    first = page.get_by_test_id("cell-source").first
    first.click()
    page.keyboard.press("Tab")
    expect_text(first, "    ")
    page.keyboard.press("Escape")
    expect(first).not_to_be_focused()
    for _ in range(8):
        page.keyboard.press("Tab")
        expect(first).not_to_be_focused()
        if page.evaluate("document.activeElement.dataset.testid") == "cell-source":
            break
    expect(page.get_by_test_id("cell-source").last).to_be_focused()


def test_text_cells_are_drawn_as_text_and_edited_on_click(page: Page, site: Site) -> None:
    source = "# Title\n**bold** `code` <b>no</b>\n\n- a\n- b\n\n[ok](https://example.org) [no](javascript:alert(1))"
    notebook = site.notebook(("markdown", source))
    opened(page, site, notebook)
    prose = page.locator(".prose")
    assert prose.locator("h1").text_content() == "Title"
    assert prose.locator("li").count() == 2
    assert prose.locator("b").count() == 0
    assert [link.get_attribute("href") for link in prose.locator("a").all()] == ["https://example.org"]
    prose.locator("h1").click()
    expect(page.get_by_test_id("cell-source")).to_be_focused()
    expect_text(page.get_by_test_id("cell-source"), source)


@pytest.mark.parametrize("kind", ["markdown", "python", "agent"])
def test_an_editor_that_comes_late_takes_the_caret_over(page: Page, site: Site, kind: str) -> None:
    notebook = site.notebook((kind, "here"))
    held: list[Route] = []
    page.route("**/esm/*/index.js", lambda route: held.append(route))
    opened(page, site, notebook)
    page.locator(".prose p" if kind == "markdown" else "pre.src").click()
    field = page.get_by_test_id("cell-source")
    expect(page.locator("textarea.src")).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.type(" and")
    eventually(page, lambda: held)
    for route in held:
        route.continue_()
    expect(page.locator(".cm-content")).to_be_focused()
    page.keyboard.type(" there")
    expect_text(field, "here and there")


def test_titles_are_text_on_every_page(page: Page, site: Site) -> None:
    title = "<img src=x onerror=alert(1)> & co"
    notebook = site.notebook(("python", "x"), title=title)
    opened(page, site, notebook)
    expect(page.get_by_test_id("notebook-title")).to_have_text(title)
    page.goto(site.address)
    expect(page.locator(f"[data-notebook-id='{notebook}'] .name")).to_have_text(title)


def test_a_title_is_renamed_in_place(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    opened(page, site, notebook)
    page.get_by_test_id("notebook-title").fill("New name")
    page.keyboard.press("Enter")
    assert eventually(page, lambda: site.commands("rename"))[-1]["title"] == "New name"
    expect(page).to_have_title(re.compile(r"(\(\d+\) )?New name · Nightbook"))  # asks of other tests may be open


@pytest.mark.parametrize("path", ["/n/nonesuch", "/foo", "/foo/bar?x=1"])
def test_an_unknown_address_is_a_friendly_404(page: Page, site: Site, path: str) -> None:
    answer = page.goto(site.address + path)
    assert answer is not None
    assert answer.status == 404
    page.get_by_role("link", name="All notebooks").click()
    expect(page.get_by_test_id("notebook-new")).to_be_visible()


def test_a_link_that_was_away_is_caught_up_without_a_reload(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    site.start(notebook)
    opened(page, site, notebook)
    page.evaluate("() => { window.mark = 1; window.socket.io.engine.close(); }")
    site.prints(notebook, *[f"line {number}\n" for number in range(50)])
    drawn(page, 54)
    text = page.get_by_test_id("cell-output").text_content() or ""
    assert text.split("\n")[:-1] == [f"line {number}" for number in range(50)]
    assert page.evaluate("window.mark") == 1


def test_300_cells_are_drawn_in_slices(page: Page, site: Site) -> None:
    notebook = site.notebook(*[(("python", "shell", "markdown")[n % 3], f"x = {n}\nprint(x)") for n in range(300)])
    opened(page, site, notebook)
    expect(page.get_by_test_id("cell")).to_have_count(300)
    order = page.evaluate("[...document.querySelectorAll('[data-testid=cell]')].map((node) => node.dataset.cellId)")
    assert order == [f"c{number}" for number in range(300)]


@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_is_wider_than_the_screen_and_every_button_has_a_name(browser: Browser, site: Site, width: int) -> None:
    notebook = site.notebook(("python", "x" * 300), ("shell", "echo"), ("markdown", "word " * 100))
    site.start(notebook)
    site.prints(notebook, "y" * 500 + "\n")
    context = browser.new_context(viewport={"width": width, "height": 844})
    page = context.new_page()
    opened(page, site, notebook)
    for address in (f"{site.address}/n/{notebook}", site.address):
        page.goto(address)
        expect(page.locator(".head")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        nameless = """[...document.querySelectorAll("button, select, input, textarea, a")].filter(
            (node) => !(node.ariaLabel || node.textContent.trim() || node.labels?.length)).length"""
        assert page.evaluate(nameless) == 0
        assert page.evaluate("[document.documentElement.lang, document.querySelectorAll('main').length]") == [
            "en-US",
            1,
        ]
    context.close()


def test_a_title_of_nothing_has_words_and_a_long_one_shows_its_beginning(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"), title="   ")
    page.goto(site.address)
    row = page.locator(f"[data-notebook-id='{notebook}']")
    expect(row.get_by_role("link", name="Untitled notebook")).to_be_visible()
    opened(page, site, notebook)
    title = page.get_by_test_id("notebook-title")
    expect(title).to_have_text("Untitled notebook")
    title.fill("word " * 60)
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    eventually(page, lambda: title.evaluate("node => node.scrollLeft === 0 && node.scrollWidth > node.clientWidth"))


@pytest.mark.parametrize("width", [1366, 1440])
def test_a_long_title_gives_way_before_words_beside_it(browser: Browser, site: Site, width: int) -> None:
    notebook = site.notebook(("python", "x"), title="word " * 50)
    site.start(notebook)
    context = browser.new_context(viewport={"width": width, "height": 844}, forced_colors="active")
    page = context.new_page()
    opened(page, site, notebook)
    beside = page.locator(".head .chip")
    eventually(page, lambda: beside.count() >= 4)
    assert (
        beside.evaluate_all(
            "all => all.filter((node) => node.scrollWidth > node.clientWidth).map((n) => n.textContent)"
        )
        == []
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    logo = page.locator(".logo").evaluate("node => getComputedStyle(node).backgroundImage")
    assert logo.startswith("radial-gradient"), "the colours of a system are asked for, and the logo is still there"
    context.close()


@pytest.mark.parametrize("width", [390, 1200])
def test_the_head_tells_what_it_knows_and_no_more(browser: Browser, site: Site, width: int) -> None:
    notebook = site.notebook(("python", "input()"), ("python", "x"))
    site.start(notebook)
    ask = {"event": "asked", "cell_id": "c0", "run_id": "r0", "input": "i1", "prompt": "", "password": False}
    site.write((notebook, "input", ask))
    context = browser.new_context(viewport={"width": width, "height": 844})
    page = context.new_page()
    opened(page, site, notebook)
    expect(page.locator(".chip.wait")).to_have_text("1 waits for you")
    expect(page.locator(".chip", has_text="Running")).to_have_count(0)
    site.start(notebook, "c1", "r1")
    running = page.locator(".chip", has_text="Running")
    expect(running).to_contain_text("keeps going if you leave")
    context.set_offline(True)
    page.evaluate("window.socket.io.engine.close()")
    expect(running).to_contain_text("when last seen")
    expect(running).not_to_contain_text("keeps going")
    clock = running.locator(".clock").text_content()
    page.get_by_test_id("cell-add-python").click()
    expect(page.locator(".chip", has_text="not sent yet")).to_be_visible()
    page.evaluate("() => new Promise((done) => setTimeout(done, 1500))")
    assert running.locator(".clock").text_content() == clock
    for chip in page.locator(".chip:visible").all():
        box = chip.bounding_box()
        assert box
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    if width == 390:
        first = page.get_by_test_id("feed-state").bounding_box()
        assert first
        assert first["x"] < 20
    context.close()


def test_pages_ask_no_other_host(page: Page, site: Site) -> None:
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url.split("/")[2]))
    opened(page, site, site.notebook(("python", "x")))
    page.goto(site.address)
    expect(page.get_by_test_id("notebook-new")).to_be_visible()
    assert asked <= {site.address.split("/")[2]}


def test_visits_leave_nothing_behind(browser: Browser, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    context = browser.new_context()
    page = context.new_page()

    def settled(tasks: int = 1000) -> dict[str, int] | None:
        site.call("POST", "/prune")  # NiceGUI forgets pages that never opened a socket, but only after a minute
        now: dict[str, int] = site.call("GET", "/statistics")
        nobody = now["viewers"] == now["subscriptions"] == now["clients"] == 0
        return now if nobody and now["tasks"] <= tasks else None

    page.goto("about:blank")
    before = eventually(page, settled)
    for _ in range(10 if SOAK else 4):
        tab = context.new_page()
        opened(tab, site, notebook)
        tab.goto(site.address)
        expect(tab.get_by_test_id("notebook-new")).to_be_visible()
        tab.close()
    for _ in range(30):
        page.request.get(f"{site.address}/n/{notebook}")
        page.request.get(site.address)
    assert site.call("GET", "/statistics")["viewers"] <= 1
    eventually(page, lambda: settled(before["tasks"] + 3))
    context.close()
