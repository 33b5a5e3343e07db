"""Two people in one cell at once: both see it live, both are told, and no typed character is lost."""

import random
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from e2e.api import Api
from e2e.editor import place, text_of
from e2e.pages import NotebookPage, Visitor
from e2e.scale import EDITS, SEEDS
from e2e.waiting import until

Visit = Callable[..., Visitor]


@pytest.mark.parametrize("seed", SEEDS)
def test_two_people_type_in_one_cell_at_once(api: Api, visit: Visit, seed: int) -> None:
    chance = random.Random(seed)
    notebook = api.notebook(("python", "\n".join(f"line {number} of the text" for number in range(6))))
    cell_id = notebook.cells[0]
    people = [visit().open(notebook), visit().open(notebook)]
    typed: list[str] = []
    for _ in range(EDITS):
        for page in people:
            source = page.source(cell_id)
            length = len(text_of(source))
            # Half of the time both aim at the same place, with what each has typed not sent yet.
            at = 0 if chance.random() < 0.5 else chance.randrange(length)
            word = unlike_any_other(len(typed))
            place(source, min(at, length))
            page.page.keyboard.insert_text(word)
            typed.append(word)
    for page in people:
        page.page.keyboard.press("Escape")

    def everything() -> str:
        return "\n".join(cell["source"] for cell in notebook.view()["cells"])

    def alike() -> bool:
        cells = notebook.view()["cells"]  # of this moment: a change may still be on its way
        return all(
            [text_of(page.source(cell["id"])) for cell in cells] == [cell["source"] for cell in cells]
            for page in people
        )

    until(lambda: all(whole(word, everything()) for word in typed), "every word that was typed is kept", 60)
    for page in people:
        expect(page.cells).to_have_count(len(notebook.view()["cells"]))
    until(alike, "both pages show what the server has", 30)
    for page in people:
        for cell in notebook.view()["cells"]:
            if cell["beside"] is not None:
                expect(page.cell(cell["id"])).to_contain_text("Two people changed the same text")


def unlike_any_other(number: int) -> str:
    """Four letters that no other word has: what another types in between does not hide that one is missing."""
    return "".join(chr(0x4E00 + 4 * number + place) for place in range(4))


def whole(word: str, text: str) -> bool:
    """Whether the letters of the word are there in order: another may have typed between them."""
    at = -1
    return all((at := text.find(letter, at + 1)) >= 0 for letter in word)


def test_each_sees_where_the_other_is(api: Api, visit: Visit) -> None:
    notebook = api.notebook(("python", "one"), ("python", "first\nsecond\nthird"))
    here, there = visit().open(notebook), visit().open(notebook)
    place(here.source(notebook.cells[1]), 8)
    marked = there.cell(notebook.cells[1])
    expect(marked.locator(".peer")).to_have_count(1)
    line = marked.locator(".peer-line").bounding_box()
    box = there.source(notebook.cells[1]).bounding_box()
    assert line
    assert box
    assert 1 <= (line["y"] - box["y"] - 11) / line["height"] + 0.3 < 2  # on the second line
    expect(here.page.locator(".peer")).to_have_count(0)
    place(here.source(notebook.cells[0]), 0)
    expect(there.cell(notebook.cells[0]).locator(".peer")).to_have_count(1)
    expect(marked.locator(".peer")).to_have_count(0)
    here.page.get_by_test_id("notebook-title").click()  # no cell is in hand any more
    expect(there.page.locator(".peer")).to_have_count(0)
    place(here.source(notebook.cells[0]), 0)
    expect(there.page.locator(".peer")).to_have_count(1)
    here.close()
    expect(there.page.locator(".peer")).to_have_count(0, timeout=60_000)


def test_what_was_typed_is_kept_when_the_tab_is_killed_at_once(api: Api, visit: Visit) -> None:
    notebook = api.notebook(("python", ""))
    page: NotebookPage = visit().open(notebook)
    place(page.source(notebook.cells[0]), 0)
    page.page.keyboard.insert_text("typed and gone")
    page.close()
    until(lambda: notebook.view()["cells"][0]["source"] == "typed and gone", "the last words arrived")
