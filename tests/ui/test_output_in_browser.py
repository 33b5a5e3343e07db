"""Output in a real browser: what a terminal would show, every line once. `python -m tests.bench.page` measures it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

from e2e.pages import READ_OUTPUT
from tests.ui.conftest import Site


def opened(page: Page, site: Site, notebook_id: str) -> None:
    page.goto(f"{site.address}/n/{notebook_id}")
    expect(page.get_by_test_id("feed-state")).to_have_attribute("data-state", "live")


def shown(page: Page) -> str:
    text: str = page.get_by_test_id("cell-output").first.evaluate(READ_OUTPUT)
    return text


def copied(page: Page) -> str:
    """What is in the clipboard of who selects the whole output and copies it."""
    text: str = page.get_by_test_id("cell-output").first.evaluate(
        """(out) => {
          getSelection().selectAllChildren(out);
          const clipboardData = new DataTransfer();
          const event = new ClipboardEvent("copy", { bubbles: true, cancelable: true, clipboardData });
          out.querySelector(".out-block").dispatchEvent(event);
          const text = clipboardData.getData("text/plain") || String(getSelection());
          getSelection().removeAllRanges();
          return text;
        }"""
    )
    return text


def drawn(page: Page, seq: int) -> None:
    there = "seq => +document.querySelector('[data-testid=feed-state]').dataset.seq >= seq"
    page.wait_for_function(there, arg=seq, timeout=40_000)


CASES = json.loads((Path(__file__).parents[1] / "terminal_cases.json").read_text("utf-8"))
RUN_CASES = """async (cases) => {
  const { Terminal } = await import("nightbook/terminal.js");
  return cases.map(({ texts }) => {
    const terminal = new Terminal();
    const lines = [[]];
    const add = (runs) => runs.forEach(([text, style]) => text.split("\\n").forEach((piece, at) => {
      if (at) lines.push([]);
      const line = lines[lines.length - 1];
      const last = line[line.length - 1];
      if (last?.[1] === style) last[0] += piece;
      else if (piece) line.push([piece, style]);
    }));
    for (const text of texts) {
      const [base, words] = typeof text === "string" ? ["", text] : text;
      terminal.feed(words, base);
      add(terminal.take());
    }
    add(terminal.open());
    return lines;
  });
}"""


def test_the_page_carries_out_the_same_cases_as_the_server(page: Page, site: Site) -> None:
    opened(page, site, site.notebook(("shell", "x")))
    found = page.evaluate(RUN_CASES, CASES)
    for case, lines in zip(CASES, found, strict=True):
        assert "\n".join("".join(text for text, _ in line) for line in lines) == case["text"], case["name"]
        if "lines" in case:
            assert lines == case["lines"], case["name"]


def test_output_ends_as_in_a_terminal_live_and_after_a_reload(page: Page, site: Site) -> None:
    notebook = site.notebook(*[("python", case["name"]) for case in CASES])
    opened(page, site, notebook)
    frames: list[tuple[str, str, dict[str, Any]]] = []
    for number, case in enumerate(CASES):
        place = {"cell_id": f"c{number}", "run_id": f"r{number}"}
        frames += [(notebook, "run", {"event": event, **place}) for event in ("queued", "started")]
        for text in case["texts"]:
            stream, words = ("stdout", text) if isinstance(text, str) else ("stderr", text[1])
            frames.append((notebook, "output", {"text": words, "stream": stream, **place}))
    site.write(*frames)
    for _ in range(2):
        drawn(page, 1 + len(CASES) + len(frames))
        texts = page.get_by_test_id("cell-output").evaluate_all("nodes => nodes.map((node) => node.textContent)")
        for case, text in zip(CASES, texts, strict=True):
            clean, whole = text.replace("\ufffd", ""), case["text"]
            if len(whole) > 2000:  # of a long output only what is near its end stands there
                clean, whole = clean[-1000:], whole[-1000:]
            assert clean == whole, case["name"]
        page.reload()


def test_streams_and_colours_are_told_apart_and_readable_in_both_themes(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    site.start(notebook)
    opened(page, site, notebook)
    site.prints(notebook, "out 1\n")
    site.prints(notebook, "err 1\n", stream="stderr")
    site.prints(notebook, "out 2\n")
    site.prints(notebook, "ValueError: no\n", stream="traceback")
    codes = [
        f"\x1b[38;5;{fg}mx\x1b[48;5;{bg}my\x1b[0m" for fg in range(0, 256, 5) for bg in (0, 1, 7, 11, 21, 226, 255)
    ]
    site.prints(notebook, *codes, *(f"\x1b[{code}mz\x1b[0m" for code in (1, 2, 7, *range(30, 38), *range(90, 98))))
    drawn(page, 8 + len(codes) + 19)
    assert shown(page).startswith("out 1\nerr 1\nout 2\nValueError: no\nxyxy")
    assert page.locator(".err").all_text_contents() == ["err 1"]
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        worst = page.evaluate(CONTRASTS)
        assert worst[0] >= 4.5, f"{scheme}: {worst}"


# The lowest contrast (WCAG 2) of any coloured text with what is behind it, and which that is.
CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (colour) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const sheet = light(getComputedStyle(document.querySelector(".box")).backgroundColor);
  return [...document.querySelectorAll(".out-block span, .out-trace-message")].map((node) => {
    const style = getComputedStyle(node);
    const one = light(style.color), back = style.backgroundColor;
    const behind = /, 0\\)$/.test(back) ? sheet : light(back);
    const contrast = (Math.max(one, behind) + 0.05) / (Math.min(one, behind) + 0.05);
    return [contrast, node.className, node.style.cssText, style.color, back];
  }).sort((a, b) => a[0] - b[0])[0];
}"""


def test_a_gap_is_told_and_a_display_is_shown_and_updated(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    site.start(notebook)
    opened(page, site, notebook)
    place = {"cell_id": "c0", "run_id": "r0"}
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    site.write(
        (notebook, "output", {**place, "text": "a\n", "stream": "stdout"}),
        (notebook, "output", {**place, "text": "z\n", "stream": "stdout", "left_out": 64_000_000}),
        (notebook, "output", {**place, "data": {"text/plain": "first"}, "display": "d"}),
        (notebook, "output", {**place, "data": {"image/png": pixel, "text/plain": "Figure"}}),
        (notebook, "output", {**place, "data": {"text/plain": "second"}, "display": "d", "update": True}),
    )
    drawn(page, 9)
    assert shown(page) == "a\n… 64 MB not shown here · Open the whole output\nz\nsecond\n\n"
    whole = page.get_by_role("link", name="Open the whole output")
    assert whole.get_attribute("href") == f"/api/v1/notebooks/{notebook}/runs/r0/output"
    assert (whole.get_attribute("target"), whole.get_attribute("rel")) == ("_blank", "noopener")
    image = page.locator(".out-display img")
    expect(image).to_have_js_property("naturalWidth", 1)
    assert image.get_attribute("alt") == "Figure"
    foot = page.locator(".foot")
    expect(foot).to_contain_text("64 MB printed")
    kept = {"path": "x", "sha256": "a" * 64, "bytes": 64_000_004}
    end = {"event": "ended", "status": "done", "ms": 5, "whole": kept}
    site.write((notebook, "run", {**end, "cell_id": "c0", "run_id": "r0"}))
    whole = foot.get_by_role("link", name="Whole output, 64 MB")
    expect(whole).to_have_attribute("href", f"/api/v1/blobs/{'a' * 64}")
    expect(foot).not_to_contain_text("printed")


def test_of_a_flood_that_is_stopped_early_the_foot_has_the_total_and_the_whole(page: Page, site: Site) -> None:
    """Few enough bytes that each is a stored frame, and more lines than a page keeps."""
    notebook = site.notebook(("python", "while True: print(1)"))
    site.start(notebook)
    opened(page, site, notebook)
    site.prints(notebook, "1\n" * 32_000)
    foot = page.locator(".foot")
    drawn(page, 5)
    expect(foot).not_to_contain_text("printed")
    site.prints(notebook, "1\n" * 32_000)
    expect(foot).to_contain_text("128 KB printed")
    site.prints(notebook, *["1\n" * 32_000] * 5)
    expect(foot).to_contain_text("448 KB printed")
    end = {"event": "ended", "status": "cancelled", "reason": "stopped", "ms": 900}
    site.write((notebook, "run", {**end, "cell_id": "c0", "run_id": "r0"}))
    address = f"/api/v1/notebooks/{notebook}/runs/r0/output"
    expect(foot.get_by_role("link", name="Whole output, 448 KB")).to_have_attribute("href", address)
    page.reload()
    expect(foot.get_by_role("link", name="Whole output, 448 KB")).to_have_attribute("href", address)


def test_20_000_lines_are_all_there_once_and_in_order(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    site.start(notebook)
    opened(page, site, notebook)
    lines = [f"line {number}\n" for number in range(20_000)]
    texts = ["".join(lines[at : at + 2500]) for at in range(0, 20_000, 2500)]
    site.prints(notebook, *texts)
    drawn(page, 4 + len(texts))
    everything = "".join(lines)
    assert shown(page) == everything
    lines_there = "[...document.querySelectorAll('.out-block')].map((node) => node.innerText.split('\\n').length)"
    assert sum(page.evaluate(lines_there)) < 1000, "the page holds what is near the reader's eyes"
    page.reload()
    drawn(page, 4 + len(texts))
    assert copied(page) == everything


def test_a_line_without_an_end_is_shown_and_read_back_whole(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    site.start(notebook)
    opened(page, site, notebook)
    parts = [str(number % 10) * 30_000 for number in range(40)]
    site.prints(notebook, *parts)
    drawn(page, 4 + len(parts))
    assert shown(page) == "".join(parts)


def test_past_its_bound_the_middle_goes_and_is_counted(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    site.start(notebook)
    opened(page, site, notebook)
    lines = [f"{number:06} " + "x" * 92 + "\n" for number in range(70_000)]
    texts = ["".join(lines[at : at + 600]) for at in range(0, 70_000, 600)]
    for at in range(0, len(texts), 20):
        site.prints(notebook, *texts[at : at + 20])
    drawn(page, 4 + len(texts))
    text = copied(page)
    numbers = [int(line[:6]) for line in text.split("\n") if line[:6].isdigit()]
    assert numbers[:600] == list(range(600))
    assert numbers[-40_000:] == list(range(30_000, 70_000))
    assert sum(map(len, lines)) - 6 * 2**20 < len(text) < 5.5 * 2**20
    assert page.evaluate("document.querySelectorAll('*').length") < 1000, "the DOM does not grow with the output"
    expect(page.locator(".out-gap")).to_contain_text("MB not shown here")
    expect(page.locator(".out-gap a")).to_have_attribute("href", f"/api/v1/notebooks/{notebook}/runs/r0/output")


def at_the_tail(page: Page, site: Site) -> tuple[str, Locator]:
    """A notebook whose one cell runs and has printed more than its output shows, followed at the tail; that output."""
    notebook = site.notebook(("python", "x"))
    site.start(notebook)
    opened(page, site, notebook)
    out = page.get_by_test_id("cell-output")
    site.prints(notebook, "".join(f"{number}\n" for number in range(500)))
    drawn(page, 5)
    at_tail = "(node) => node.scrollHeight - node.scrollTop - node.clientHeight < 30"
    page.wait_for_function(at_tail, arg=out.element_handle())
    return notebook, out


def test_the_reader_at_the_tail_follows_it_and_one_who_reads_above_is_left_in_peace(page: Page, site: Site) -> None:
    notebook, out = at_the_tail(page, site)
    out.evaluate("node => { node.scrollTop = 100; }")
    page.wait_for_function(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
    )
    site.prints(notebook, "more\n" * 50)
    drawn(page, 6)
    assert out.evaluate("node => node.scrollTop") == 100


def test_who_scrolls_up_is_left_there_before_the_browser_has_told_of_it(page: Page, site: Site) -> None:
    notebook, out = at_the_tail(page, site)
    page.evaluate("addEventListener('scroll', (event) => event.stopImmediatePropagation(), true)")
    out.evaluate("node => { node.scrollTop = 100; }")
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
    for _ in range(10):
        if not out.evaluate("node => node === document.activeElement"):
            page.keyboard.press("Tab")
    expect(out).to_be_focused()
    page.keyboard.press("Home")
    page.wait_for_function("node => node.scrollTop === 0", arg=out.element_handle())


def test_the_end_is_drawn_for_who_scrolls_there_by_steps(page: Page, site: Site) -> None:
    """All blocks but not the rows that can still change are near the view on the way: those come, too."""
    notebook = site.notebook(("python", "x"))
    site.start(notebook)
    opened(page, site, notebook)
    for lines in range(250, 350, 10):
        site.write((notebook, "run", {"event": "ended", "cell_id": "c0", "run_id": "r0", "status": "done"}))
        site.start(notebook)
        site.prints(notebook, "".join(f"{number}\n" for number in range(lines)))
        page.wait_for_function(
            "last => document.querySelector('[data-testid=cell-output]').textContent.includes(last)",
            arg=f"{lines - 1}\n",
        )
        assert shown(page).splitlines() == [str(number) for number in range(lines)]


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
    expect(cell.locator(".count")).to_have_text("[2]")


def test_what_failed_is_said_once(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "x"))
    site.start(notebook)
    site.prints(notebook, "Cell 1, line 1\n    x\n\nNameError: name 'x'\n", stream="traceback")
    end = {"event": "ended", "status": "error", "reason": "NameError: name 'x'", "ms": 1234}
    site.write((notebook, "run", {**end, "cell_id": "c0", "run_id": "r0"}))
    opened(page, site, notebook)
    cell = page.get_by_test_id("cell")
    state = cell.locator(".foot .state")
    expect(cell.get_by_text("NameError: name 'x'")).to_have_count(1)
    expect(state).to_have_text("Failed")
    cell.focus()
    page.keyboard.press("o")  # folds the output away, with what it says
    expect(state).to_have_text("Failed: NameError: name 'x'")
    site.start(notebook, run_id="r1")
    end = {**end, "reason": "the kernel was ended by signal 9"}
    site.write((notebook, "run", {**end, "cell_id": "c0", "run_id": "r1"}))
    expect(state).to_have_text("Failed: the kernel was ended by signal 9")


def test_who_scrolled_up_is_led_back_to_the_newest_line(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "print()"))
    site.start(notebook)
    opened(page, site, notebook)
    out, follow = page.get_by_test_id("cell-output"), page.get_by_test_id("follow")

    def prints(text: str) -> None:
        place = {"cell_id": "c0", "run_id": "r0"}
        site.write((notebook, "output", {"text": text, "stream": "stdout", **place}))

    prints("a line\n" * 200)
    page.wait_for_function("out => out.scrollTop > 100", arg=out.element_handle())
    expect(follow).to_have_count(0)
    out.evaluate("out => { out.scrollTop = 50; }")
    expect(follow).to_be_visible()
    prints("more\n" * 50)
    expect(follow).to_be_visible()
    assert out.evaluate("out => out.scrollTop") == 50
    follow.click()
    prints("the last\n")
    tail = "out => out.scrollTop > 100 && out.scrollHeight - out.scrollTop - out.clientHeight < 24"
    page.wait_for_function(tail, arg=out.element_handle())
    expect(out).to_contain_text("the last")
    expect(follow).to_have_count(0)
