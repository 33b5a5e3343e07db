"""What the notebook page costs: opening 300 cells, frames and keys while one of them streams, a tab that only waits.

On the scripted site, so that nothing but page and viewer is measured: `python -m tests.bench.page`. Opening runs from
the start of the navigation until all cells are drawn and the page is live. Key to paint is measured in the page, from
the key's event to the first moment after the frame that shows it. The load of the machine stands beside, for noise.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from e2e.editor import place
from e2e.pages import launch
from tests.bench.report import Figure, percentile
from tests.ui.conftest import ROOT, Site

CELLS, OPENINGS, TABS, KEYS = 300, 7, 50, 100
LINES_A_SECOND = 20
STREAMED = 4.0  # seconds
OPEN = """count => document.querySelectorAll("[data-testid=cell]").length === count
  && document.querySelector("[data-testid=feed-state][data-state=live]") && performance.now()"""
LONGEST = """window.longest = 0; window.before = performance.now();
(function look(now) { window.longest = Math.max(window.longest, now - window.before); window.before = now;
  requestAnimationFrame(look); })(performance.now());"""
BLOCKS = """() => { window.longest = 0; new PerformanceObserver((list) => {
  for (const task of list.getEntries()) window.longest = Math.max(window.longest, task.duration);
}).observe({ type: "longtask" }); }"""
FLOODS = {
    "20,000 lines at once": [
        "".join(f"line {number}\n" for number in range(at, at + 2500)) for at in range(0, 20_000, 2500)
    ],
    "1.2 MB without a line's end": [str(number % 10) * 30_000 for number in range(40)],
}
WAITS = """() => {
  window.waits = [];
  document.addEventListener("keydown", (event) => {
    const began = event.timeStamp;
    requestAnimationFrame(() => {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => window.waits.push(performance.now() - began);
      channel.port2.postMessage(0);
    });
  }, true);
}"""


def figures(browser: Browser) -> Iterator[Figure]:
    """All figures, each when it is known; takes a minute or two."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment["RECONNECT_SECONDS"] = "30"  # a busy machine may be slow to connect
    command = [sys.executable, "-m", "tests.ui.site"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            site = Site(f"http://127.0.0.1:{process.stdout.readline().strip()}")
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            notebook = site.notebook(*[("python", f"x = {number}\nprint(x)  # a cell") for number in range(CELLS)])
            page = context.new_page()
            yield from _opening(page, site, notebook)
            yield from _streaming(page, site, notebook)
            yield from _flooded(page, site)
            page.close()
            yield _idle(context, site, process.pid)
            context.close()
        finally:
            process.terminate()
    yield Figure("load of the machine, one minute", os.getloadavg()[0], "")


def _open(page: Page, site: Site, notebook: str, cells: int) -> float:
    """Opens a notebook; milliseconds from the start of the navigation until it stands."""
    page.goto("about:blank")
    page.goto(f"{site.address}/n/{notebook}", wait_until="commit")
    took: float = page.wait_for_function(OPEN, arg=cells, polling=20, timeout=60_000).json_value()
    return took


def _opening(page: Page, site: Site, notebook: str) -> Iterator[Figure]:
    found = [_open(page, site, notebook, CELLS) for _ in range(OPENINGS + 1)][1:]
    yield Figure(f"{CELLS} cells: opened, median of {OPENINGS}", statistics.median(found), "ms", "under 1000")
    yield Figure(f"{CELLS} cells: opened, best of {OPENINGS}", min(found), "ms")


def _streaming(page: Page, site: Site, notebook: str) -> Iterator[Figure]:
    site.start(notebook)
    with _prints(site, notebook):
        page.wait_for_timeout(500)
        page.evaluate(LONGEST)
        page.wait_for_timeout(STREAMED * 1000)
        longest: float = page.evaluate("longest")
        place(page.get_by_test_id("cell-source").nth(1), 0)
        page.evaluate(WAITS)
        for number in range(KEYS):
            page.keyboard.press("abcdefgh "[number % 9])
            page.wait_for_timeout(60)
        waits: list[float] = page.evaluate("waits")
    what = f"while {LINES_A_SECOND} lines/s stream"
    yield Figure(f"{CELLS} cells: longest frame {what}", longest, "ms", "under 100")
    yield Figure(f"{CELLS} cells: key to paint {what}, p50", percentile(waits, 0.5), "ms")
    yield Figure(f"{CELLS} cells: key to paint {what}, p95", percentile(waits, 0.95), "ms", "under 50")


def _flooded(page: Page, site: Site) -> Iterator[Figure]:
    for name, texts in FLOODS.items():
        notebook = site.notebook(("python", "x"))
        site.start(notebook)
        _open(page, site, notebook, 1)
        page.evaluate(BLOCKS)
        site.prints(notebook, *texts)
        drawn = "seq => +document.querySelector('[data-testid=feed-state]').dataset.seq >= seq"
        page.wait_for_function(drawn, arg=4 + len(texts), timeout=60_000)
        page.wait_for_timeout(500)
        longest: float = page.evaluate("longest")
        yield Figure(f"{name}: longest time the page reacts to nothing", longest, "ms", "under 150")


@contextmanager
def _prints(site: Site, notebook: str) -> Iterator[None]:
    over = threading.Event()

    def stream() -> None:
        number = 0
        while not over.wait(1 / LINES_A_SECOND):
            number += 1
            site.prints(notebook, f"line {number} of what streams\n")

    thread = threading.Thread(target=stream)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _idle(context: BrowserContext, site: Site, pid: int) -> Figure:
    """What the server's memory grows by for each of many tabs that only look at 20 cells."""
    notebook = site.notebook(*[("python", f"x = {number}\nprint(x)") for number in range(20)])
    for _ in range(3):  # what is loaded once is no tab's
        page = context.new_page()
        _open(page, site, notebook, 20)
        page.close()
    site.call("GET", "/statistics")
    before = psutil.Process(pid).memory_info().rss
    for _ in range(TABS):
        _open(context.new_page(), site, notebook, 20)
    site.call("GET", "/statistics")
    grown = psutil.Process(pid).memory_info().rss - before
    return Figure(f"an idle tab of 20 cells on the server, of {TABS}", grown / TABS / 1024, "KiB", "under 1024")


def main() -> None:
    """Prints the figures."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        for figure in figures(browser):
            print(figure.line(), flush=True)
        browser.close()


if __name__ == "__main__":
    main()
