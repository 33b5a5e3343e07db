"""Output in a real browser: what a terminal would show, every line once, and a page that never blocks."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.ui.conftest import Site

LONG_TASKS = """() => { window.longTasks = []; new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.longTasks.push(entry.duration); }).observe({ type: "longtask" }); }"""


def opened(page: Page, site: Site, notebook_id: str) -> None:
    page.goto(f"{site.address}/n/{notebook_id}")
    expect(page.get_by_test_id("feed-state")).to_have_attribute("data-state", "live")


def shown(page: Page) -> str:
    return page.get_by_test_id("cell-output").first.text_content() or ""


def drawn(page: Page, seq: int) -> None:
    page.wait_for_function("seq => +document.querySelector('[data-testid=feed-state]').dataset.seq >= seq", arg=seq)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["10%", "\r20%", "\r100%\n"], "100%\n"),
        (["long line\rshort"], "shortline"),
        (["one\r", "\ntwo\r\n"], "one\ntwo\n"),
        (["abc\b\bX\n"], "aXc\n"),
        (["\x1b[31mred\x1b[0m \x1b", "[1mbold\x1b[0m\n"], "red bold\n"),
        (["\x1b]0;title\x07x\x1b]8;;http://a\x1b\\link\n"], "xlink\n"),
        (["progress\r\x1b[Kdone\n"], "done\n"),
        (["abcdef\x1b[3D\x1b[K!\n"], "abc!\n"),
        (["a\x1b[5Gb\n"], "a   b\n"),
        (["bell\x07 tab\tend\x00\n"], "bell tab\tend\n"),
        (["\x1b(Bplain\x1b[?25l\n"], "plain\n"),
        (["emoji 😀\b!\n"], "emoji  !\n"),
        (["half \x1b[3"], "half "),
        (["</script><img src=x onerror=alert(1)>\n"], "</script><img src=x onerror=alert(1)>\n"),
    ],
)
def test_a_line_ends_as_in_a_terminal_live_and_after_a_reload(
    page: Page, site: Site, texts: list[str], expected: str
) -> None:
    notebook = site.notebook(("shell", "x"))
    site.start(notebook)
    opened(page, site, notebook)
    site.write(
        *[(notebook, "output", {"cell_id": "c0", "run_id": "r0", "text": t, "stream": "terminal"}) for t in texts]
    )
    drawn(page, 4 + len(texts))
    clean = expected.replace("\x00", "")
    assert shown(page).replace("�", "") == clean
    page.reload()
    drawn(page, 4 + len(texts))
    assert shown(page).replace("�", "") == clean


def test_streams_are_told_apart_in_the_order_they_came(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    site.start(notebook)
    opened(page, site, notebook)
    site.prints(notebook, "out 1\n")
    site.prints(notebook, "err 1\n", stream="stderr")
    site.prints(notebook, "out 2\n")
    site.prints(notebook, "Traceback\n", stream="traceback")
    drawn(page, 8)
    spans = page.locator(".out-block > span")
    assert [(span.get_attribute("class"), span.text_content()) for span in spans.all()] == [
        ("out-stdout", "out 1\n"),
        ("out-stderr", "err 1\n"),
        ("out-stdout", "out 2\n"),
        ("out-traceback", "Traceback\n"),
    ]
    assert shown(page) == "out 1\nerr 1\nout 2\nTraceback\n"


def test_a_gap_is_told_and_a_display_is_shown_and_updated(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    site.start(notebook)
    opened(page, site, notebook)
    place = {"cell_id": "c0", "run_id": "r0"}
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    site.write(
        (notebook, "output", {**place, "text": "a\n", "stream": "stdout"}),
        (notebook, "output", {**place, "text": "z\n", "stream": "stdout", "left_out": 64_000_000}),
        (notebook, "output", {**place, "data": {"text/plain": "first", "text/html": "<b>first</b>"}, "display": "d"}),
        (notebook, "output", {**place, "data": {"image/png": pixel, "text/plain": "Figure"}}),
        (notebook, "output", {**place, "data": {"text/plain": "second"}, "display": "d", "update": True}),
    )
    drawn(page, 9)
    assert shown(page) == "a\n… 64.0 MB not shown here · Open the whole output\nz\nsecond\n\n"
    whole = page.get_by_role("link", name="Open the whole output")
    assert whole.get_attribute("href") == f"/api/v1/notebooks/{notebook}/runs/r0/output"
    assert (whole.get_attribute("target"), whole.get_attribute("rel")) == ("_blank", "noopener")
    image = page.locator(".out-display img")
    expect(image).to_have_js_property("naturalWidth", 1)
    assert image.get_attribute("alt") == "Figure"


def test_20_000_lines_are_all_there_once_in_order_and_never_block_the_page(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    site.start(notebook)
    opened(page, site, notebook)
    page.evaluate(LONG_TASKS)
    lines = [f"line {number}\n" for number in range(20_000)]
    texts = ["".join(lines[at : at + 2500]) for at in range(0, 20_000, 2500)]
    site.prints(notebook, *texts)
    drawn(page, 4 + len(texts))
    everything = "".join(lines)
    assert shown(page) == everything
    assert (
        page.evaluate("document.querySelector('[data-testid=cell-output]').innerText") == everything.rstrip("\n") + "\n"
    )
    page.reload()
    drawn(page, 4 + len(texts))
    assert shown(page) == everything
    longest = max(page.evaluate("window.longTasks ?? []"), default=0)
    assert longest < 150, f"the page was blocked for {longest} ms"


def test_a_line_without_an_end_is_shown_and_read_back_whole(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    site.start(notebook)
    opened(page, site, notebook)
    page.evaluate(LONG_TASKS)
    parts = [str(number % 10) * 30_000 for number in range(40)]
    site.prints(notebook, *parts)
    drawn(page, 4 + len(parts))
    assert shown(page) == "".join(parts)
    assert max(page.evaluate("window.longTasks"), default=0) < 400


def test_past_its_bound_the_middle_goes_and_is_counted(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    site.start(notebook)
    opened(page, site, notebook)
    lines = [f"{number:06} " + "x" * 92 + "\n" for number in range(70_000)]
    texts = ["".join(lines[at : at + 600]) for at in range(0, 70_000, 600)]
    for at in range(0, len(texts), 20):
        site.prints(notebook, *texts[at : at + 20])
    drawn(page, 4 + len(texts))
    numbers = [int(line[:6]) for line in shown(page).split("\n") if line[:6].isdigit()]
    assert numbers[:600] == list(range(600))
    assert numbers[-40_000:] == list(range(30_000, 70_000))
    assert sum(map(len, lines)) - 6 * 2**20 < len(shown(page)) < 5.5 * 2**20
    expect(page.locator(".out-gap")).to_contain_text("MB not shown here")
    expect(page.locator(".out-gap a")).to_have_attribute("href", f"/api/v1/notebooks/{notebook}/runs/r0/output")


def test_the_reader_at_the_tail_follows_it_and_one_who_reads_above_is_left_in_peace(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    site.start(notebook)
    opened(page, site, notebook)
    out = page.get_by_test_id("cell-output")
    site.prints(notebook, "".join(f"{number}\n" for number in range(500)))
    drawn(page, 5)
    at_tail = "([node, want]) => (node.scrollHeight - node.scrollTop - node.clientHeight < 30) === want"
    page.wait_for_function(at_tail, arg=[out.element_handle(), True])
    out.evaluate("node => { node.scrollTop = 100; }")
    page.wait_for_function(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
    )
    site.prints(notebook, "more\n" * 50)
    drawn(page, 6)
    assert out.evaluate("node => node.scrollTop") == 100


def test_output_that_scrolls_is_reached_and_scrolled_by_keyboard(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    site.start(notebook)
    opened(page, site, notebook)
    site.prints(notebook, "one line\n")
    drawn(page, 5)
    expect(page.get_by_role("region", name="Output of cell 1")).to_have_count(0)
    site.prints(notebook, "".join(f"{number}\n" for number in range(500)))
    out = page.get_by_role("region", name="Output of cell 1")
    expect(out).to_be_visible()
    page.get_by_test_id("cell-source").focus()
    page.keyboard.press("Escape")
    expect(out).to_be_focused()
    page.keyboard.press("Home")
    page.wait_for_function("node => node.scrollTop === 0", arg=out.element_handle())


def test_a_new_run_starts_with_an_empty_output(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    site.start(notebook)
    site.prints(notebook, "old\n")
    end = {"event": "ended", "status": "error", "reason": "exit status 1", "ms": 1234}
    site.write((notebook, "run", {**end, "cell_id": "c0", "run_id": "r0"}))
    opened(page, site, notebook)
    cell = page.get_by_test_id("cell")
    expect(cell).to_have_attribute("data-state", "error")
    expect(cell.locator(".foot")).to_contain_text("exit status 1")
    expect(cell.locator(".foot")).to_contain_text("1.2 s")
    site.start(notebook, run_id="r1")
    expect(cell).to_have_attribute("data-state", "running")
    assert shown(page) == ""
    assert page.locator(".count").all_text_contents() == ["2"]
