"""What the pages cost: opening 300 cells, the longest frame while one of them streams, and a tab that only waits.

On the scripted site, so that nothing but page and viewer is measured. Opening is timed in the page, from the start of
the navigation to the last cell drawn; the median of five. A warm-up comes first.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

import psutil
from playwright.sync_api import Browser, BrowserContext, Page

from tests.bench.report import Figure
from tests.ui.conftest import ROOT, Site

CELLS, OPENINGS, TABS = 300, 5, 50
LONGEST = """window.longest = 0; window.before = performance.now();
(function look(now) { window.longest = Math.max(window.longest, now - window.before); window.before = now;
  requestAnimationFrame(look); })(performance.now());"""


def figures(browser: Browser) -> list[Figure]:
    """Measures all; takes a minute or two. The load of the machine stands beside, for noise."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment["RECONNECT_SECONDS"] = "30"  # a busy machine may be slow to connect
    command = [sys.executable, "-m", "tests.ui.site"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            site = Site(f"http://127.0.0.1:{process.stdout.readline().strip()}")
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            found = [*_three_hundred(context, site), _idle(context, site, process.pid)]
            context.close()
        finally:
            process.terminate()
    return [*found, Figure("load of the machine, one minute", os.getloadavg()[0], "")]


def _live(page: Page, site: Site, notebook: str, cells: int) -> float:
    """Opens a notebook; milliseconds from the start of the navigation until all cells are there."""
    page.goto(f"{site.address}/n/{notebook}", wait_until="commit")
    drawn = "count => document.querySelectorAll('[data-testid=cell]').length === count && performance.now()"
    took: float = page.wait_for_function(drawn, arg=cells, polling="raf", timeout=60_000).json_value()
    page.wait_for_selector("[data-state=live]", timeout=60_000)
    return took


def _three_hundred(context: BrowserContext, site: Site) -> list[Figure]:
    notebook = site.notebook(*[("python", f"x = {n}\nprint(x)") for n in range(CELLS)])
    page = context.new_page()
    opened = statistics.median([_live(page, site, notebook, CELLS) for _ in range(OPENINGS + 1)][1:])
    site.start(notebook)
    page.evaluate("() => new Promise((done) => setTimeout(done, 500))")
    page.evaluate(LONGEST)
    for number in range(100):
        site.prints(notebook, f"line {number}\n")
        time.sleep(0.02)
    longest: float = page.evaluate("longest")
    page.close()
    return [
        Figure(f"{CELLS} cells: opened", opened, "ms", "under 1000"),
        Figure(f"{CELLS} cells: longest frame while one streams", longest, "ms", "under 100"),
    ]


def _idle(context: BrowserContext, site: Site, pid: int) -> Figure:
    """What the server's memory grows by for each of many tabs that only look at 20 cells."""
    notebook = site.notebook(*[("python", f"x = {n}\nprint(x)") for n in range(20)])
    for _ in range(3):  # what is loaded once is no tab's
        page = context.new_page()
        _live(page, site, notebook, 20)
        page.close()
    site.call("GET", "/statistics")
    before = psutil.Process(pid).memory_info().rss
    for _ in range(TABS):
        _live(context.new_page(), site, notebook, 20)
    site.call("GET", "/statistics")
    grown = psutil.Process(pid).memory_info().rss - before
    return Figure(f"an idle tab of 20 cells on the server, of {TABS}", grown / TABS / 1024, "KiB", "under 1024")


def main() -> None:
    """Prints the figures: `python -m tests.bench.pages`."""
    from playwright.sync_api import sync_playwright

    from e2e.pages import launch

    with sync_playwright() as playwright:
        browser = launch(playwright, root=os.geteuid() == 0)
        for figure in figures(browser):
            print(figure.line(), flush=True)
        browser.close()


if __name__ == "__main__":
    main()
