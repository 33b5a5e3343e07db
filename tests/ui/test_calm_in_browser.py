"""Nothing jumps while cells run: the layout shift that the browser counts stays below 0.02, whoever pressed run.

Browsers excuse what moves within half a second of a press; the tests wait that out before anything is printed.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.ui.conftest import Site
from tests.ui.test_display_in_browser import png, table
from tests.ui.test_page_in_browser import opened
from tests.ui.turns import Turn

SHIFTS = """window.shift = 0;
    new PerformanceObserver((list) => { for (const one of list.getEntries()) window.shift += one.value; })
        .observe({ type: "layout-shift", buffered: true });"""
LINES = [f"line {number}\n" * 3 for number in range(60)]
BAR = [f"\rfold {number}/60" for number in range(60)]


@pytest.mark.parametrize("situation", ["beside other cells", "a line written anew", "followed at the tail"])
def test_nothing_jumps_while_a_cell_streams(page: Page, site: Site, situation: str) -> None:
    """The output is at the height of its window, or rewrites its line, or the reader is at the tail of the page."""
    notebook = site.notebook(("python", "stream()"), *[("python", f"x = {n}") for n in range(6)])
    page.add_init_script(SHIFTS)
    if situation == "followed at the tail":
        notebook = site.notebook(("python", "stream()\n" * 30))
    site.start(notebook)
    site.prints(notebook, *(BAR[:1] if situation == "a line written anew" else LINES[:12]))
    opened(page, site, notebook)
    if situation == "followed at the tail":
        page.mouse.wheel(0, 10_000)
    page.evaluate("() => new Promise((done) => setTimeout(done, 600))")  # input excuses shifts for half a second
    page.evaluate("shift = 0")
    for text in BAR if situation == "a line written anew" else LINES:
        site.prints(notebook, text)
    shown = "fold 59/60" if situation == "a line written anew" else "line 59"
    expect(page.get_by_test_id("cell-output").first).to_contain_text(shown)
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 100)))")
    assert page.evaluate("shift") < 0.02


def painted(page: Page) -> None:
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 100)))")


def unexcused(page: Page) -> None:
    page.evaluate("() => new Promise((done) => setTimeout(done, 600))")
    page.evaluate("shift = 0")


def ended(site: Site, notebook: str, cell: str = "c0", run: str = "r0") -> None:
    place = {"cell_id": cell, "run_id": run}
    site.write((notebook, "run", {"event": "ended", "status": "done", **place}))


def stands(page: Page, number: int) -> float:
    return float(page.get_by_test_id("cell").nth(number).evaluate("node => node.getBoundingClientRect().top"))


@pytest.mark.parametrize("printed", [LINES, BAR], ids=["lines", "bar"])
def test_a_first_run_that_a_person_starts_gets_its_room_with_the_press(
    page: Page, site: Site, printed: list[str]
) -> None:
    notebook = site.notebook(
        ("python", "for n in range(60):\n    print(n)"), *[("python", f"x = {n}") for n in range(6)]
    )
    page.add_init_script(SHIFTS)
    opened(page, site, notebook)
    page.get_by_test_id("cell-run").first.click()
    site.start(notebook)
    expect(page.get_by_test_id("cell").first).to_have_attribute("data-state", "running")
    unexcused(page)
    below = stands(page, 1)
    for text in printed:
        site.prints(notebook, text)
    output = page.get_by_test_id("cell-output").first
    expect(output).to_contain_text(printed[-1].strip("\r\n").split("\n")[-1])
    assert output.evaluate("node => node.scrollHeight - node.scrollTop - node.clientHeight") < 24  # it follows its tail
    ended(site, notebook)
    expect(page.get_by_test_id("cell").first).to_have_attribute("data-state", "done")
    painted(page)
    assert stands(page, 1) == pytest.approx(below, abs=2)
    assert page.evaluate("shift") < 0.02
    page.keyboard.press("Escape")  # an occasion: the output is as high as it likes
    page.wait_for_function("document.querySelector('.out').style.height === ''")


def test_an_output_that_got_its_height_at_an_occasion_has_no_more_to_show(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "for n in range(16):\n    print(n)"), *[("python", "x") for _ in range(6)])
    opened(page, site, notebook)
    page.get_by_test_id("cell-run").first.click()
    site.start(notebook)
    expect(page.get_by_test_id("cell").first).to_have_attribute("data-state", "running")
    unexcused(page)
    site.prints(notebook, *[f"{number}\n" for number in range(16)])
    ended(site, notebook)
    more = page.get_by_test_id("cell").first.get_by_role("button", name="Show all of it")
    expect(more).to_be_visible()
    page.keyboard.press("Escape")
    page.wait_for_function("document.querySelector('.out').style.height === ''")
    expect(more).to_have_count(0)


def test_a_rerun_keeps_the_room_of_the_last(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "f()"), *[("python", f"x = {n}") for n in range(6)])
    site.start(notebook)
    site.prints(notebook, *[f"line {number}\n" for number in range(9)])
    ended(site, notebook)
    page.add_init_script(SHIFTS)
    opened(page, site, notebook)
    unexcused(page)
    below = stands(page, 1)
    site.start(notebook, run_id="r1")
    expect(page.get_by_test_id("cell-output").first).to_have_text("")
    place = {"cell_id": "c0", "run_id": "r1", "stream": "stdout"}
    for number in range(9):
        site.write((notebook, "output", {"text": f"again {number}\n", **place}))
    ended(site, notebook, run="r1")
    expect(page.get_by_test_id("cell-output").first).to_contain_text("again 8")
    painted(page)
    assert stands(page, 1) == pytest.approx(below, abs=2)
    assert page.evaluate("shift") < 0.02


def test_a_run_of_somebody_else_moves_nothing_and_shows_its_newest_line(page: Page, site: Site) -> None:
    notebook = site.notebook(*[("python", f"f({n})\n\n\n") for n in range(9)])
    page.add_init_script(SHIFTS)
    opened(page, site, notebook)
    unexcused(page)
    site.start(notebook)
    site.prints(notebook, *[f"line {number}\n" for number in range(40)])
    first = page.get_by_test_id("cell").first
    expect(first.locator(".newest")).to_have_text("line 39")
    ended(site, notebook)
    painted(page)
    assert page.evaluate("shift") < 0.02
    first.get_by_role("button", name="Show the output").click()
    expect(first.get_by_test_id("cell-output")).to_be_visible()
    page.wait_for_function("document.querySelector('.out').offsetHeight > 500")
    expect(first.locator(".newest")).to_have_count(0)


def test_a_turn_moves_nothing_and_is_followed_in_its_room(page: Page, site: Site) -> None:
    notebook = site.notebook(("agent", "Do it"), *[("python", f"x = {n}") for n in range(6)])
    page.add_init_script(SHIFTS)
    opened(page, site, notebook)
    page.get_by_test_id("cell-run").first.click()
    site.start(notebook)
    cell = page.get_by_test_id("cell").first
    expect(cell).to_have_attribute("data-state", "running")
    story = cell.locator(".story")
    unexcused(page)
    turn = {"cell_id": "c0", "run_id": "r0"}
    for number in range(40):
        site.write((notebook, "thought", {"round": 1, "text": f"Thought {number} of many.\n\n", **turn}))
    expect(story).to_contain_text("Thought 39")
    assert story.evaluate("node => node.scrollHeight - node.scrollTop - node.clientHeight") < 24  # it follows its tail
    assert page.evaluate("shift") < 0.02
    cell.get_by_role("button", name="Show all of it").click()
    page.wait_for_function("document.querySelector('.story').offsetHeight > 500")
    expect(cell.get_by_role("button", name="Show all of it")).to_have_count(0)


def test_a_question_is_in_sight_also_where_rows_are_held(page: Page, site: Site) -> None:
    turn = Turn(site, *[("python", f"x = {n}") for n in range(6)])
    opened(page, site, turn.notebook)
    unexcused(page)
    for number in range(40):
        turn.tells("thought", round=1, text=f"Thought {number} of many.\n\n")
    expect(page.get_by_role("button", name="Show all of it")).to_be_visible()
    turn.asks("a1")
    expect(page.get_by_test_id("ask-approve")).to_be_visible()
    page.wait_for_function("document.querySelector('.story').style.height === ''")


def test_who_reads_below_a_running_cell_stays_where_they_are(page: Page, site: Site) -> None:
    notebook = site.notebook(*[("python", f"x = {n}\n" * 8) for n in range(20)])
    page.add_init_script(SHIFTS)
    opened(page, site, notebook)
    page.mouse.wheel(0, 1200)
    page.wait_for_function("scrollY === 1200")
    unexcused(page)
    at = stands(page, 8)
    site.start(notebook)
    for text in LINES:
        site.prints(notebook, text)
    expect(page.get_by_test_id("cell-output").first).to_contain_text("line 59")
    ended(site, notebook)
    painted(page)
    assert stands(page, 8) == pytest.approx(at, abs=2)
    assert page.evaluate("shift") < 0.02


FIGURE = {"image/png": base64.b64encode(png(640, 480)).decode(), "text/plain": "Figure"}
SIZES = {"nightbook.sizes": {"image/png": [640, 480]}}
TALL = "<div style='height:300px'>tall</div>"
PLOT = {"data": [{"type": "scatter", "y": [1, 3, 2]}], "layout": {"height": 300}}
FAILURE = "Traceback (most recent call last)\nCell 1, line 1\n----> 1 f(0)\n\nValueError: no such thing\n"
# Displays that become high, at once or once they are loaded: what is written, the line that tells of it, what is there.
SHOWN: dict[str, tuple[dict[str, Any], str, str]] = {
    "image": ({"data": FIGURE, "metadata": SIZES}, "Image, 640 × 480", ".out img"),
    "image of unknown size": ({"data": FIGURE}, "Image", ".out img"),
    "html": ({"data": {"text/html": TALL}}, "HTML", ".out-frame iframe"),
    "plot": ({"data": {"application/vnd.plotly.v1+json": PLOT}}, "Plot", ".out-frame[data-plotted]"),
    "table": ({"data": table([[n, "a", 1] for n in range(20)], [20, 2])}, "Table, 20 × 2", ".out-table"),
    "traceback": ({"text": FAILURE, "stream": "traceback"}, "ValueError: no such thing", ".out-trace-message"),
}


def shows(site: Site, notebook: str, fields: dict[str, Any]) -> None:
    site.write((notebook, "output", {"cell_id": "c0", "run_id": "r0", **fields}))


@pytest.mark.parametrize("kind", SHOWN)
def test_a_display_of_a_run_of_somebody_else_moves_nothing_and_opens_with_a_press(
    page: Page, site: Site, kind: str
) -> None:
    fields, words, there = SHOWN[kind]
    notebook = site.notebook(*[("python", f"f({n})\n\n") for n in range(9)])
    page.add_init_script(SHIFTS)
    opened(page, site, notebook)
    unexcused(page)
    below = stands(page, 1)
    site.start(notebook)
    shows(site, notebook, fields)
    first = page.get_by_test_id("cell").first
    expect(first.locator(".newest")).to_have_text(words)
    ended(site, notebook)
    expect(first).to_have_attribute("data-state", "done")
    painted(page)
    assert page.evaluate("shift") < 0.02
    assert stands(page, 1) == pytest.approx(below, abs=22)
    first.get_by_role("button", name="Show the output").click()
    expect(first.locator(there)).to_be_visible(timeout=30_000)
    page.wait_for_function("document.querySelector('.out').offsetHeight > 80 && !document.querySelector('.newest')")


def test_a_figure_run_again_has_the_room_of_the_last(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "f()"), *[("python", f"x = {n}") for n in range(6)])
    site.start(notebook)
    shows(site, notebook, SHOWN["image"][0])
    ended(site, notebook)
    page.add_init_script(SHIFTS)
    opened(page, site, notebook)
    page.wait_for_function("document.querySelector('.out').offsetHeight > 400")
    unexcused(page)
    below = stands(page, 1)
    site.start(notebook, run_id="r1")
    expect(page.locator(".out img")).to_have_count(0)
    shows(site, notebook, {**SHOWN["image"][0], "run_id": "r1"})
    expect(page.locator(".out img")).to_have_js_property("naturalWidth", 640)
    ended(site, notebook, run="r1")
    painted(page)
    assert page.locator(".out").first.evaluate("node => node.scrollHeight - node.clientHeight") < 2
    assert stands(page, 1) == pytest.approx(below, abs=2)
    assert page.evaluate("shift") < 0.02


def test_the_source_tells_how_much_room_a_first_run_will_need(page: Page, site: Site) -> None:
    opened(page, site, site.notebook(("python", "")))
    sources = ["plt.plot([1])", "df.plot()", "px.line(df)", "df.head()", "print(1)", "f(x)", "x = plot", "import plt"]
    found = page.evaluate(
        "async (all) => { const { expected } = await import('nightbook/room.js'); "
        "return all.map((one) => expected('python', one, false)); }",
        sources,
    )
    assert found == [501, 501, 441, 230, 141, 141, 0, 0]


def test_cells_that_are_run_together_get_their_room_however_late_the_server_is(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "plt.plot([1])"), ("markdown", "text"), ("python", "print(1)"), ("python", "x"))
    site.start(notebook, "c3")
    opened(page, site, notebook)
    asked = page.locator(".foot", has_text="Asked to run")
    site.call("POST", "/refuse/409/1")
    page.get_by_test_id("run-all").click()
    expect(page.get_by_role("alert")).to_contain_text("Not now")
    expect(asked).to_have_count(0)
    out = page.locator(".out").first
    for _ in range(20):  # a page that is itself too late with it gives no room any more
        page.get_by_test_id("run-all").click()
        expect(asked).to_have_count(2)
        page.evaluate("() => new Promise((done) => setTimeout(done, 500))")
        if out.evaluate("node => node.style.height"):
            break
    site.start(notebook)
    expect(asked).to_have_count(1)
    assert out.evaluate("node => node.offsetHeight") == 501


@pytest.mark.parametrize("kind", ["image", "html"])
def test_a_display_that_changes_in_its_place_keeps_its_height(page: Page, site: Site, kind: str) -> None:
    notebook = site.notebook(("python", "f()"), *[("python", f"x = {n}") for n in range(6)])
    site.start(notebook)
    shows(site, notebook, {**SHOWN[kind][0], "display": "d"})
    page.add_init_script(SHIFTS)
    opened(page, site, notebook)
    page.wait_for_function("document.querySelector('.out').offsetHeight > 300")
    unexcused(page)
    below = stands(page, 1)
    for number in range(5):
        value = {"text/html": TALL.replace("tall", str(number))} if kind == "html" else FIGURE
        shows(site, notebook, {**SHOWN[kind][0], "data": value, "display": "d", "update": True})
    shows(site, notebook, {"text": "all\n", "stream": "stdout"})
    expect(page.get_by_test_id("cell-output").first).to_contain_text("all")
    painted(page)
    assert page.locator(".out-display > *").count() == 1
    assert stands(page, 1) == pytest.approx(below, abs=30)  # a line of text was added
    assert page.evaluate("shift") < 0.02


def test_a_page_opened_while_a_cell_runs_shows_what_it_printed(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "f()"), *[("python", f"x = {n}") for n in range(6)])
    site.start(notebook)
    site.prints(notebook, *LINES[:3])
    opened(page, site, notebook)
    expect(page.locator(".newest")).to_have_count(0)
    assert page.locator(".out").first.evaluate("node => node.offsetHeight") > 150
