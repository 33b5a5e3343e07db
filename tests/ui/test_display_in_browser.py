"""Displays in a real browser: each kind as what it is; what is hostile or broken is contained, and the page lives."""

from __future__ import annotations

import base64
import json
import socket
import struct
import zlib
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.ui.conftest import Site
from tests.ui.test_output_in_browser import drawn, opened, shown

ALIVE = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"


def png(width: int, height: int, rows: int | None = None) -> bytes:
    """A grey PNG; with fewer `rows` than it claims, a broken one."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pixels = zlib.compress((b"\0" + b"\x80" * width) * (height if rows is None else rows))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.fixture
def notebook(page: Page, site: Site) -> str:
    """An open notebook whose cell runs and has printed, so that there is room to look at what follows."""
    made = site.notebook(("python", "x"), ("python", "boom()"))
    site.start(made)
    site.prints(made, "printed before\n" * 20)
    opened(page, site, made)
    return made


def test_html_lives_in_a_frame_of_its_own_as_tall_as_its_content(page: Page, site: Site, notebook: str) -> None:
    elsewhere = socket.create_server(("127.0.0.1", 0))
    elsewhere.setblocking(False)
    host = f"http://127.0.0.1:{elsewhere.getsockname()[1]}"
    page.evaluate("window.secret = 1; document.cookie = 'mine=1'")
    html = (
        "<div style='height:300px'>tall</div><p id=told>nothing</p>"
        "<script>let said = []; try { said.push(parent.secret) } catch { said.push('no parent') }"
        "try { said.push(document.cookie) } catch { said.push('no cookie') }"
        f"fetch('{host}/x').catch(() => said.push('no host'))"
        ".finally(() => told.textContent = said.join(', '));"
        f"</script><img src='{host}/pixel.png' onerror='failed.textContent = 1'></script><p id=failed>"
    )
    site.shows(notebook, {"text/html": html, "text/plain": "plain"})
    frame = page.frame_locator(".out-frame iframe")
    expect(frame.locator("#told")).to_have_text("no parent, no cookie, no host")
    page.wait_for_function("document.querySelector('.out-frame')?.offsetHeight > 300")
    assert page.locator(".out-frame iframe").get_attribute("sandbox") == (
        "allow-scripts allow-popups allow-popups-to-escape-sandbox"
    )
    expect(frame.locator("#failed")).to_have_text("1")
    with pytest.raises(BlockingIOError):
        elsewhere.accept()  # a browser tells of requests that its policy stops; none comes
    elsewhere.close()


def test_hostile_html_is_contained(page: Page, site: Site, notebook: str) -> None:
    site.shows(
        notebook,
        {
            "text/html": "</script></iframe><script>try { parent.document.title = 'taken' } catch {}"
            "try { top.location = '/' } catch {}</script>"
        },
        {"text/html": "<form action='/api/v1/notebooks' method=post><input name=a><button>Go</button></form>"},
        {
            "text/html": "<a href='javascript:top.bad=1'>link</a><img src=x onerror='try { top.bad=1 } catch {}'>"
            "<svg onload='try { top.bad=1 } catch {}'>"
        },
        {"text/html": "<div><table><b><ul><li>" * 200 + "never closed"},
        {"text/html": "<script>setInterval(() => document.body.append(document.createElement('hr')), 1)</script>"},
        {"text/html": "<body style='height:120vh'>grows with its frame"},
    )
    page.wait_for_function("document.querySelectorAll('.out-frame iframe').length === 6")
    forms = page.frame_locator(".out-frame iframe >> nth=1")
    forms.get_by_role("button").click()
    assert page.evaluate(ALIVE)
    assert page.evaluate("[window.bad, location.pathname]") == [None, f"/n/{notebook}"]
    assert "taken" not in page.title()
    assert (
        page.evaluate("Math.max(...[...document.querySelectorAll('.out-frame')].map((f) => f.offsetHeight))") <= 20_000
    )


def test_images_have_their_room_before_they_are_there(page: Page, site: Site, notebook: str) -> None:
    data = png(300, 200)
    blob = site.blob("image/png", data)
    sizes = {"nightbook.sizes": {"image/png": [300, 200]}}
    held: list[Any] = []
    page.route("**/api/v1/blobs/*", lambda route: held.append(route))
    site.shows(notebook, {"image/png": blob, "text/plain": "Figure"}, metadata=sizes)
    image = page.locator(".out-display img")
    expect(image).to_be_visible()
    assert image.bounding_box()["height"] == 200  # type: ignore[index]
    page.wait_for_function("() => true")
    held[0].continue_()
    expect(image).to_have_js_property("naturalWidth", 300)
    assert image.bounding_box()["height"] == 200  # type: ignore[index]


def test_who_follows_a_figure_higher_than_its_box_sees_its_top(page: Page, site: Site, notebook: str) -> None:
    figure = {"image/png": base64.b64encode(png(300, 1200)).decode()}
    above = "node => node.querySelector('img').getBoundingClientRect().top - node.getBoundingClientRect().top"
    out = page.get_by_test_id("cell-output").first
    site.shows(notebook, figure, metadata={"nightbook.sizes": {"image/png": [300, 1200]}})
    for _ in ("as it comes", "opened again"):
        expect(out.locator("img")).to_have_js_property("naturalWidth", 300)
        page.wait_for_function("node => node.scrollHeight > node.clientHeight + 600", arg=out.element_handle())
        page.wait_for_function(
            f"node => node.scrollTop > 0 && Math.abs(({above})(node)) < 30", arg=out.element_handle()
        )
        page.reload()
    site.prints(notebook, "more\n")
    expect(out).to_contain_text("more")
    page.wait_for_function(
        "node => node.scrollHeight - node.clientHeight - node.scrollTop < 2", arg=out.element_handle()
    )


def test_svg_runs_nothing_and_huge_or_broken_images_say_so(page: Page, site: Site, notebook: str) -> None:
    svg = (
        "<svg xmlns='http://www.w3.org/2000/svg' width='40' height='30' onload='top.bad=1'><script>top.bad=1</script>"
        "<rect width='40' height='30' fill='red'/></svg>"
    )
    site.shows(notebook, {"image/svg+xml": svg})
    for width, height in ((30_000, 20), (10_000, 10_000)):
        value = base64.b64encode(png(width, height, 1)).decode()
        metadata = {"nightbook.sizes": {"image/png": [width, height]}}
        site.shows(notebook, {"image/png": value}, metadata=metadata)
    site.shows(notebook, {"image/jpeg": "bm90IGEganBlZw=="})
    expect(page.locator(".out-display img.svg")).to_have_js_property("naturalWidth", 40)
    expect(page.locator(".out-note")).to_have_text(
        [
            "An image of 30000 × 20 pixels, too large to draw here. ",
            "An image of 10000 × 10000 pixels, too large to draw here. ",
            "This image (image/jpeg) is broken or was not found.",
        ]
    )
    assert page.evaluate("window.bad") is None


def table(rows: list[list[Any]], shape: list[int], **fields: Any) -> dict[str, Any]:
    names = [("", "int64", True), ("name", "str", False), ("price", "float64", True)]
    columns = [{"name": name, "dtype": dtype, "number": number} for name, dtype, number in names]
    value = {"columns": columns, "index": 1, "rows": rows, "head": len(rows), "shape": shape, **fields}
    return {"application/vnd.nightbook.table+json": value, "text/plain": "frame"}


def test_a_table_scrolls_sorts_and_tells_its_shape(page: Page, site: Site, notebook: str) -> None:
    rows: list[list[Any]] = [[0, "pear", 2.5], [1, None, 10], [2, "apple", {"text": "NaN", "sort": None}]]
    rows += [[999_999, "z" * 100, -1.23456789]]
    site.shows(notebook, table(rows, [1_000_000, 2], head=3))
    grid = page.locator(".out-table")
    expect(grid.locator(".out-table-foot")).to_contain_text("1,000,000 rows × 2 columns")
    expect(grid.locator(".between")).to_have_text("… 999,996 rows between")
    expect(grid.locator("td.number").first).to_have_css("text-align", "right")
    expect(grid.locator("td.number").last).to_have_text("-1.23457")

    def column(number: int) -> list[str]:
        return page.locator(f".out-table tbody tr > :nth-child({number + 1})").all_text_contents()

    grid.get_by_role("button", name="price").click()
    assert column(2) == ["-1.23457", "2.5", "10", "NaN"]
    grid.get_by_role("button", name="price").click()
    assert column(0)[:3] == ["2", "1", "0"]
    assert grid.locator("th[aria-sort=descending]").count() == 1
    grid.get_by_role("button", name="price").click()
    expect(grid.locator(".between")).to_have_count(1)


def test_a_long_or_reversed_text_in_a_table_stays_in_its_place(page: Page, site: Site, notebook: str) -> None:
    rows: list[list[Any]] = [[0, {"text": "y" * 500, "cut": 1_000_000}, 1], [1, "\u202eevil\u202e <b>x</b>", 2]]
    site.shows(notebook, table(rows, [2, 2]))
    cells = page.locator(".out-table td:not(.number)")
    expect(cells.first).to_contain_text("… (1,000,000 characters)")
    assert cells.last.text_content() == "\u202eevil\u202e <b>x</b>"
    assert page.locator(".out").first.evaluate("node => node.scrollWidth <= node.clientWidth")
    expect(cells.last).to_have_css("unicode-bidi", "isolate")


def test_json_folds(page: Page, site: Site, notebook: str) -> None:
    value = {"list": list(range(250)), "deep": {"er": [True, None, "x" * 600]}, "empty": []}
    site.shows(notebook, {"application/json": value})
    tree = page.locator(".out-json")
    expect(tree).to_contain_text("list: [ ] 250 entries")
    assert "99" not in (tree.text_content() or "")
    tree.locator("summary", has_text="list").click()
    expect(tree.locator(".out-json-number")).to_have_count(100)
    tree.get_by_role("button", name="150 more").click()
    expect(tree.locator(".out-json-number")).to_have_count(200)


def test_a_large_value_is_loaded_by_its_address(page: Page, site: Site, notebook: str) -> None:
    blob = site.blob("application/json", json.dumps({"n": list(range(3))}).encode())
    gone = {"blob": "0" * 64, "bytes": 5000}
    site.shows(notebook, {"application/json": blob}, {"text/html": gone, "text/plain": "what it was"})
    expect(page.locator(".out-json")).to_contain_text("n: [ ] 3 entries")
    expect(page.locator(".out-display").last).to_contain_text("This HTML cannot be drawn")
    expect(page.locator(".out-display").last).to_contain_text("what it was")


def test_markdown_and_formulas(page: Page, site: Site, notebook: str) -> None:
    text = (
        "# Head\n\nSay $x^2$ and `$no$`, 5 $ and 6 $.\n\n$$\n\\frac{a}{b}\n$$\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n"
        "[bad](javascript:alert(1)) <b>not bold</b>"
    )
    site.shows(
        notebook, {"text/markdown": text}, {"text/latex": r"$\displaystyle \sum_i x_i$"}, {"text/latex": r"\frac{"}
    )
    prose = page.locator(".out-display .prose")
    expect(prose.locator("h1")).to_have_text("Head")
    expect(prose.locator("math")).to_have_count(2)
    expect(prose.locator("math mfrac")).to_have_count(1)
    expect(prose.locator("td").last).to_have_css("text-align", "right")
    assert prose.locator("a, b").count() == 0
    expect(page.locator(".out-display").nth(1).locator("math munder")).to_have_count(1)
    assert page.locator("math script").count() == 0


def test_a_formula_is_never_markup(page: Page, site: Site, notebook: str) -> None:
    site.shows(notebook, {"text/latex": r"\text{<script>top.bad=1</script>} \href{javascript:top.bad=1}{x}"})
    expect(page.locator(".formula math")).to_have_count(1)
    assert page.locator(".formula script, .formula [href]").count() == 0
    assert page.evaluate("window.bad") is None


def test_a_plot_is_drawn_in_its_own_frame_and_a_broken_one_says_so(page: Page, site: Site, notebook: str) -> None:
    mime = "application/vnd.plotly.v1+json"
    figure = {"data": [{"type": "scatter", "y": [1, 3, 2]}], "layout": {"height": 300}}
    broken: list[Any] = [{"data": 3}, {"data": [{"type": "scatter"}, 7]}, {"data": [], "layout": []}]
    site.shows(notebook, {mime: figure}, *[{mime: value, "text/plain": "Figure({})"} for value in broken])
    plot = page.frame_locator(".out-frame iframe").first
    expect(plot.locator(".main-svg").first).to_be_visible(timeout=30_000)
    expect(page.locator(".out-note")).to_have_count(3)
    for number, why in enumerate(
        ("no list of traces", "trace 2 of its specification is no object", "layout is no object")
    ):
        expect(page.locator(".out-display").nth(number + 1)).to_contain_text(why)
        expect(page.locator(".out-display").nth(number + 1)).to_contain_text("Figure({})")


def test_a_map_tells_what_it_lacks_and_shows_what_it_has(page: Page, site: Site) -> None:
    mime = "application/vnd.plotly.v1+json"
    square = [[[0, 0], [0, 20], [20, 20], [20, 0], [0, 0]]]
    place = {"type": "Feature", "id": "a", "properties": {}, "geometry": {"type": "Polygon", "coordinates": square}}
    own = {
        "type": "choropleth",
        "locations": ["a"],
        "z": [1],
        "geojson": {"type": "FeatureCollection", "features": [place]},
    }
    figures = [
        {"data": [{"type": "scattergeo", "lon": [10], "lat": [50]}], "layout": {"height": 200}},
        {"data": [own], "layout": {"height": 200}},
        {"data": [{"type": "scattermap", "lon": [10], "lat": [50]}]},
    ]
    notebook = site.notebook(("python", "x"), ("python", "y"))
    site.start(notebook)
    site.shows(notebook, *[{mime: figure, "text/plain": "Figure({})"} for figure in figures])
    opened(page, site, notebook)
    points = page.frame_locator(".out-frame iframe >> nth=0").locator(".scattergeo path.point")
    expect(points).to_have_count(1, timeout=30_000)
    shapes = page.frame_locator(".out-frame iframe >> nth=1").locator(".choroplethlayer path")
    expect(shapes).to_have_count(1, timeout=30_000)
    displays = page.locator(".out-display")
    expect(displays.nth(0)).to_contain_text("this map is drawn without them")
    expect(displays.nth(1).locator(".out-note")).to_have_count(0)
    expect(displays.nth(2)).to_contain_text("tiles from another host")
    expect(displays.nth(2)).to_contain_text("Figure({})")


GONE_SINCE = """async () => {
  const { framed } = await import("nightbook/frame.js");
  const [gone, stays] = [framed("<p>gone</p>"), framed("<p>stays</p>")];
  document.body.prepend(gone, stays);
  await new Promise((done) => requestAnimationFrame(() => {
    const channel = new MessageChannel(); // comes before the browser tells what it saw in this frame
    channel.port1.onmessage = () => done(gone.remove());
    channel.port2.postMessage(0);
  }));
  stays.dataset.there = "";
}"""


def test_a_frame_that_goes_in_the_moment_it_is_seen_takes_no_other_with_it(page: Page, site: Site) -> None:
    opened(page, site, site.notebook(("python", "x")))
    for _ in range(5):
        page.evaluate(GONE_SINCE)
    expect(page.locator("[data-there] iframe")).to_have_count(5)


def test_2_000_displays_are_a_bounded_number_on_the_page(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"), ("python", "y"))
    site.start(notebook)
    opened(page, site, notebook)
    value = base64.b64encode(png(60, 40)).decode()
    sizes = {"nightbook.sizes": {"image/png": [60, 40]}}
    for _ in range(4):
        site.shows(notebook, *[{"image/png": value}] * 500, metadata=sizes)
    drawn(page, 2_005)
    assert page.locator(".out-display").count() == 80
    expect(page.locator(".out-gap")).to_contain_text("1,920 displays not shown here")
    assert page.evaluate(ALIVE)
    page.reload()
    drawn(page, 2_005)
    assert page.locator(".out-display").count() == 80
    expect(page.locator(".out-gap")).to_contain_text("1,920 displays not shown here")


def test_an_output_is_cleared(page: Page, site: Site, notebook: str) -> None:
    site.prints(notebook, "old\n")
    site.write((notebook, "output", {"clear": True, "cell_id": "c0", "run_id": "r0"}))
    site.prints(notebook, "new\n")
    drawn(page, 8)
    assert shown(page) == "new\n"


def test_a_traceback_folds_and_leads_to_its_cell(page: Page, site: Site, notebook: str) -> None:
    link = "\x1b]8;;nightbook:cell/{}\x1b\\Cell\x1b[36m \x1b[32mIn[{}]\x1b]8;;\x1b\\\x1b[32m, line {}\x1b[0m{}\n"
    text = (
        "\x1b[31m" + "-" * 75 + "\x1b[0m\nZeroDivisionError        Traceback (most recent call last)\n"
        + link.format("c0", 1, 1, "") + "----> 1 boom()\n\n"
        + "File \x1b[32m/usr/lib/python3/thing.py:7\x1b[0m, in call()\n      7 f()\n\n"
        + link.format("c1", 2, 1, ", in boom()") + "----> 1 boom()\n\n"
        + "\x1b[31mZeroDivisionError\x1b[0m: division by zero\n"
    )  # fmt: skip
    site.prints(notebook, text, stream="traceback")
    trace = page.locator(".out-traceback")
    expect(trace.locator(".out-trace-message")).to_have_text("ZeroDivisionError: division by zero")
    expect(trace.locator(".out-trace-last")).to_contain_text("Cell 2, line 1, in boom()")
    expect(trace.get_by_text("thing.py")).to_be_hidden()
    trace.locator("summary").click()
    expect(trace.get_by_text("thing.py")).to_be_visible()
    trace.get_by_role("button", name="Cell 2").click()
    expect(page.get_by_test_id("cell").nth(1).get_by_test_id("cell-source")).to_be_focused()
