"""What the kernel knows, at the caret: a list to choose from, and docs; the kernel's answers are given by the test."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from e2e.editor import caret, expect_text, take, text_of
from tests.ui.conftest import Site
from tests.ui.test_output_in_browser import opened


class Kernel:
    """Answers `complete` and `inspect` of one page, and remembers what was asked."""

    def __init__(self, page: Page) -> None:
        self.asked: list[dict[str, Any]] = []
        self.names = ["sin", "sqrt", "Sum", "tan"]
        self.known_by = "kernel"
        self.held: list[Route] | None = None
        page.route("**/complete", self._complete)
        page.route("**/inspect", self._inspect)

    def _complete(self, route: Route) -> None:
        body = route.request.post_data_json
        self.asked.append(body)
        if self.held is not None:
            self.held.append(route)
            return
        self.answer(route)

    def answer(self, route: Route) -> None:
        body = route.request.post_data_json
        text = body["source"][: body["at"]]
        start = len(text) - len(text.rpartition(".")[2])
        items = [{"text": name, "type": "function"} for name in self.names]
        why = "asleep" if self.known_by != "kernel" else None
        route.fulfill(json={"start": start, "end": body["at"], "items": items, "known_by": self.known_by, "why": why})

    def _inspect(self, route: Route) -> None:
        self.asked.append(route.request.post_data_json)
        route.fulfill(json={"text": "sqrt(x)\nThe square root.", "known_by": "kernel"})


@pytest.fixture
def kernel(page: Page, site: Site) -> Kernel:
    """One cell, empty and in hand."""
    kernel = Kernel(page)
    opened(page, site, site.notebook(("python", "")))
    source = page.get_by_test_id("cell-source")
    take(source)
    expect(page.locator(".cm-content")).to_be_focused()
    return kernel


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_list_hides_what_it_lies_over(page: Page, kernel: Kernel, theme: str) -> None:
    page.evaluate("theme => (document.documentElement.dataset.theme = theme)", theme)
    page.keyboard.type("s")
    page.keyboard.press("Control+Space")
    expect(options(page).first).to_be_visible()
    style = "node => [getComputedStyle(node).backgroundColor, getComputedStyle(node).borderTopWidth]"
    background, border = page.locator("#nb-assist").evaluate(style)
    assert background.startswith("rgb("), "nothing shines through"
    assert border == "1px"


def options(page: Page) -> Any:
    return page.get_by_role("listbox", name="Completions").get_by_role("option")


def test_a_point_offers_names_typing_narrows_them_and_tab_takes_one(page: Page, kernel: Kernel) -> None:
    source = page.get_by_test_id("cell-source")
    page.keyboard.type("math.")
    expect(options(page)).to_have_count(4)
    assert kernel.asked == [{"source": "math.", "at": 5}]
    page.keyboard.type("s")
    expect(options(page)).to_have_text(["ƒsin", "ƒsqrt", "ƒSum"])  # the same letter first, then the other case
    expect(source).to_have_attribute("aria-activedescendant", "nb-assist-0")
    page.keyboard.press("ArrowUp")  # round to the last
    page.keyboard.press("ArrowUp")
    expect(source).to_have_attribute("aria-activedescendant", "nb-assist-1")
    page.keyboard.press("Tab")
    expect_text(source, "math.sqrt")
    assert caret(source) == 9
    expect(options(page)).to_have_count(0)
    page.keyboard.press("Control+z")
    expect_text(source, "math.s")


def test_escape_closes_the_list_and_only_the_list(page: Page, kernel: Kernel) -> None:
    source = page.get_by_test_id("cell-source")
    page.keyboard.type("math.")
    expect(options(page)).to_have_count(4)
    page.keyboard.press("Escape")
    expect(options(page)).to_have_count(0)
    expect(source).to_be_focused()
    page.keyboard.press("Enter")
    expect_text(source, "math.\n")


def test_a_name_is_taken_by_the_mouse_and_the_caret_stays(page: Page, kernel: Kernel) -> None:
    source = page.get_by_test_id("cell-source")
    page.keyboard.type("math.")
    options(page).nth(3).click()
    expect_text(source, "math.tan")
    expect(source).to_be_focused()


def test_one_name_that_is_sure_is_taken_at_once_and_tab_indents_where_there_is_none(page: Page, kernel: Kernel) -> None:
    source = page.get_by_test_id("cell-source")
    kernel.names = ["sqrt"]
    page.keyboard.press("Tab")
    page.keyboard.type("m.sq")
    expect(options(page)).to_have_count(1)
    page.keyboard.press("Escape")  # the list that the point opened
    expect(options(page)).to_have_count(0)
    page.keyboard.press("Tab")
    expect_text(source, "    m.sqrt")


def test_words_of_the_notebook_say_that_they_are_not_the_kernels(page: Page, kernel: Kernel) -> None:
    kernel.known_by, kernel.names = "notebook", ["sqrt"]
    page.keyboard.type("m.")
    expect(options(page)).to_have_count(1)
    expect(page.get_by_text("The kernel is asleep: words of this notebook.")).to_be_visible()
    assert text_of(page.get_by_test_id("cell-source")) == "m."


def test_an_answer_that_comes_too_late_offers_nothing(page: Page, kernel: Kernel) -> None:
    kernel.held = []
    page.keyboard.type("math.")
    page.wait_for_function("() => true")
    expect(page.locator(".cm-content")).to_contain_text("math.")
    page.keyboard.press("Control+a")
    page.keyboard.type("other")
    while not kernel.held:
        page.wait_for_timeout(20)
    kernel.answer(kernel.held[0])
    kernel.held = None
    kernel.names = ["others", "otherwise"]
    page.keyboard.press("Control+Space")
    expect(options(page)).to_have_text(["ƒothers", "ƒotherwise"])


def test_shift_tab_tells_what_is_written_and_typing_puts_it_away(page: Page, kernel: Kernel) -> None:
    page.keyboard.type("sqrt")
    page.keyboard.press("Shift+Tab")
    docs = page.get_by_role("note")
    expect(docs).to_contain_text("The square root.")
    assert kernel.asked[-1] == {"source": "sqrt", "at": 4}
    page.keyboard.type("(")
    expect(docs).to_have_count(0)
