"""Much output: the page shows its end at once, keeps answering, and a flood takes nobody down."""

import time
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from e2e.api import Api
from e2e.cells import FLOOD, counted, printing
from e2e.conftest import Target
from e2e.figures import Figures
from e2e.pages import Visitor
from e2e.scale import MEGABYTES, SOAK
from e2e.waiting import until

Visit = Callable[..., Visitor]

LINES = 20_000

long = pytest.mark.skipif(not SOAK, reason="in the long form only: it takes the machine for itself")

# Notes when the last line was painted, by the clock that the cell's own time is compared with, and every task of the
# page that kept it from reacting. Looks only at what changed, so that watching costs nothing.
WATCH = """id => {
  window.longest = 0;
  new PerformanceObserver(list => {
    for (const task of list.getEntries()) window.longest = Math.max(window.longest, task.duration);
  }).observe({ type: "longtask" });
  const has = node => node?.textContent.includes("finished at");
  new MutationObserver(changes => {
    if (window.shownAt) return;
    if (changes.some(change => has(change.target.nodeType === 3 ? change.target : null) ||
        [...change.addedNodes].some(has))) {
      window.shownAt = -1;
      requestAnimationFrame(() => setTimeout(() => (window.shownAt = Date.now())));
    }
  }).observe(document.querySelector(`[data-cell-id="${id}"] [data-testid=cell-output]`),
    { childList: true, characterData: true, subtree: true });
}"""
ALL_THERE = """([id, last]) => {
  const output = document.querySelector(`[data-cell-id="${id}"] [data-testid=cell-output]`);
  return output?.textContent.includes(last) && performance.now();
}"""


def test_twenty_thousand_lines_at_once(api: Api, visitor: Visitor, figures: Figures) -> None:
    notebook = api.notebook(("python", "print('warm')"), ("python", FLOOD))
    cell_id = notebook.cells[1]
    page = visitor.open(notebook)
    page.run(notebook.cells[0])
    page.wait_done(notebook.cells[0])
    page.page.evaluate(WATCH, cell_id)
    page.run(cell_id)
    shown = page.wait_in_page("() => window.shownAt > 0 && window.shownAt / 1000", seconds=30)
    page.wait_done(cell_id)
    lines = page.lines(cell_id)
    assert lines[:-1] == counted(LINES)
    finished = float(lines[-1].removeprefix("finished at "))
    assert page.output(cell_id).get_by_text("finished at").is_visible()
    longest = page.page.evaluate("window.longest")
    page.reload()
    there = page.wait_in_page(ALL_THERE, [cell_id, lines[-1]])
    assert page.lines(cell_id) == lines
    figures.at_most("20,000 lines: last one visible after the kernel was done", shown - finished, 0.5)
    figures.at_most("20,000 lines: longest page block", longest, 150, "ms")
    figures.at_most("20,000 lines: all there after a reload", there / 1000, 1.0)


@pytest.mark.timeout(300)
def test_a_flood_takes_neither_server_nor_page_down(api: Api, visit: Visit, target: Target, figures: Figures) -> None:
    """While one cell prints as fast as it can, its page answers, and another notebook's people notice nothing."""
    notebook, other = api.notebook(("python", printing(MEGABYTES))), api.notebook(("python", "print('calm')"))
    page, calm = visit().open(notebook), visit().open(other)
    before = target.server.resident() if target.server else 0
    page.run(notebook.cells[0])
    page.wait_text(notebook.cells[0], "xxx")
    began = time.monotonic()
    calm.run(other.cells[0])
    calm.wait_done(other.cells[0])
    figures.at_most("beside a flood: a first cell elsewhere, run and shown", time.monotonic() - began, 5.0)
    began = time.monotonic()
    page.page.evaluate("new Promise(requestAnimationFrame)")
    figures.at_most("beside a flood: its page paints a frame", time.monotonic() - began, 0.5)
    page.wait_done(notebook.cells[0], seconds=200)
    page.wait_text(notebook.cells[0], "that was all")
    page.wait_live()
    text = page.text(notebook.cells[0])
    shown = text.splitlines()
    assert shown[-1] == "that was all"
    assert shown[0] == "x" * 99
    assert len(text) < 8_000_000, "a page keeps a bounded part"
    assert any("not shown" in line for line in shown), "and says that it does"
    assert notebook.cell(notebook.cells[0])["whole"]["bytes"] == min(MEGABYTES * 1_000_000 + 13, 64 * 2**20)
    if target.server is not None:
        grown = (target.server.resident() - before) / 2**20
        figures.at_most(f"{MEGABYTES} MB printed: the server grew by", grown, 100, "MiB")
    page.reload()
    page.wait_text(notebook.cells[0], "that was all")


@long
def test_a_cell_that_never_stops_printing_is_stopped(api: Api, visitor: Visitor, figures: Figures) -> None:
    notebook = api.notebook(("python", "while True: print(1)"), ("python", "print('after')"))
    cell_id, other = notebook.cells
    page = visitor.open(notebook)
    page.run(cell_id)
    expect(page.output(cell_id)).to_contain_text("1")  # reading all of it has no end
    began = time.monotonic()
    page.page.evaluate("new Promise(requestAnimationFrame)")
    figures.at_most("while True: print(1): its page paints a frame", time.monotonic() - began, 0.5)
    began = time.monotonic()
    page.stop(cell_id)
    page.wait_state(cell_id, "cancelled")
    figures.at_most("while True: print(1): stopped", time.monotonic() - began, 2.0)
    page.run(other)
    page.wait_text(other, "after")


@long
def test_bytes_that_mean_nothing_are_shown_as_text(api: Api, visitor: Visitor) -> None:
    notebook = api.notebook(("shell", "head -c 200000 /dev/urandom; echo; echo that was all"), ("shell", "echo next"))
    cell_id, other = notebook.cells
    page = visitor.open(notebook)
    page.run(cell_id)
    page.wait_done(cell_id)
    until(lambda: "that was all" in page.text(cell_id), "the end of the bytes")
    page.run(other)
    page.wait_text(other, "next")
    page.reload()
    until(lambda: "that was all" in page.text(cell_id), "the end of the bytes")
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.problems == []


@long
def test_ten_thousand_displays_in_a_loop_are_a_bounded_number(api: Api, visitor: Visitor) -> None:
    figure = "{'application/vnd.plotly.v1+json': {'data': [{'type': 'scatter', 'y': [1, n]}]}, 'text/plain': str(n)}"
    source = f"for n in range(10_000):\n    display({figure}, raw=True)\nprint('that was all')"
    notebook = api.notebook(("python", source), ("python", "print('next')"))
    cell_id, other = notebook.cells
    page = visitor.open(notebook)
    page.run(cell_id)
    page.wait_done(cell_id, seconds=60)
    page.wait_text(cell_id, "that was all")
    shown = page.output(cell_id).locator(".out-display")
    until(lambda: 0 < shown.count() <= 80, "a bounded number of displays")
    expect(page.output(cell_id).locator(".out-gap").first).to_contain_text("displays not shown here")
    page.run(other)
    page.wait_text(other, "next")
    assert page.problems == []


def test_strange_bytes_are_shown_safely(api: Api, visitor: Visitor) -> None:
    notebook = api.notebook(
        ("shell", r"printf 'nul<\000> bad<\377\376> cut<\342\211'; sleep 0.1; printf '\244>\n'"),
        ("python", r"print('lone<\ud800> nul<\x00> tag<script>window.bad = 1</script> end')"),
        ("python", r"print('over\rOVER'); print('ab\bC'); print('\x1b[31mred\x1b[0m')"),
    )
    page = visitor.open(notebook)
    for cell_id in notebook.cells:
        page.run(cell_id)
        page.wait_done(cell_id)
    shell, python, terminal = (page.lines(cell_id) for cell_id in notebook.cells)
    assert len(shell) == 1
    assert "cut<≤>" in shell[0], "a character in two pieces is one character"
    assert "\x00" not in shell[0]
    assert "tag<script>window.bad = 1</script> end" in python[0]
    assert page.page.evaluate("window.bad") is None
    assert terminal == ["OVER", "aC", "red"]
    assert page.problems == []


def test_a_line_of_fifty_megabytes(api: Api, visit: Visit) -> None:
    notebook = api.notebook(("python", "print('y' * 50_000_000)\nprint('after')"), ("python", "print('next')"))
    page = visit().open(notebook)
    page.run(notebook.cells[0])
    page.wait_done(notebook.cells[0], seconds=60)
    page.wait_text(notebook.cells[0], "after")
    page.run(notebook.cells[1])
    page.wait_done(notebook.cells[1])
    until(lambda: page.lines(notebook.cells[1]) == ["next"], "the next cell's line")
    fresh = visit().open(notebook)
    fresh.wait_text(notebook.cells[0], "after")
