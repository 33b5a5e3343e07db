"""What no one means to type: too much of it, letters that are none, line ends of another system."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from e2e.editor import expect_text, fill, place, text_of
from tests.ui.conftest import Site
from tests.ui.test_output_in_browser import opened
from tests.ui.test_page_in_browser import eventually

PASTE = """(node, text) => {
  const data = new DataTransfer();
  data.setData("text/plain", text);
  node.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
}"""


def test_a_paste_of_two_megabytes_is_told_and_nothing_is_lost(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x = 1\n"), ("python", "other"))
    opened(page, site, notebook)
    source = page.get_by_test_id("cell-source").first
    place(source, 6)
    expect(source).to_have_attribute("contenteditable", "true")
    known = len(site.commands("edit_cell"))
    source.evaluate(PASTE, "y = 'abcdefgh'\n" * 140_000)
    expect(page.get_by_role("alert")).to_contain_text("512 KiB")
    page.get_by_test_id("cell-source").last.click()  # the text stands still again
    page.get_by_test_id("cell-source").first.focus()
    assert len(text_of(source)) == 6 + 15 * 140_000
    assert len(site.commands("edit_cell")) == known
    page.keyboard.press("Control+z")
    expect_text(source, "x = 1\n")
    fill(source, "x = 2\n")
    eventually(page, lambda: site.commands("edit_cell")[known:])


def test_line_ends_and_letters_that_are_none_are_made_good_in_the_editor(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", ""))
    opened(page, site, notebook)
    source = page.get_by_test_id("cell-source")
    place(source, 0)
    expect(source).to_have_attribute("contenteditable", "true")
    source.evaluate(PASTE, "a\r\nb\rc")
    expect_text(source, "a\nb\nc")
    source.evaluate("(node) => document.execCommand('insertText', false, 'x' + String.fromCharCode(0xd83d) + 'y')")
    expect_text(source, "a\nb\ncx\ufffdy")
    eventually(page, lambda: site.commands("edit_cell") and "\ufffd" in site.commands("edit_cell")[-1]["insert"])
    expect(page.get_by_test_id("cell")).to_have_count(1)


def test_a_text_with_other_line_ends_is_kept_to_the_letter(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "one\r\ntwo"))
    opened(page, site, notebook)
    source = page.get_by_test_id("cell-source")
    known = len(site.commands("edit_cell"))
    place(source, 0)
    page.keyboard.type("z")
    [edit] = eventually(page, lambda: site.commands("edit_cell")[known:])
    assert (edit["at"], edit["remove"], edit["insert"]) == (0, 0, "z")


def test_a_title_of_ten_thousand_letters_is_cut_and_that_is_said(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    opened(page, site, notebook)
    title = page.get_by_test_id("notebook-title")
    title.fill("t" * 10_000)
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("300")
    assert eventually(page, lambda: site.commands("rename"))[-1]["title"] == "t" * 300
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
