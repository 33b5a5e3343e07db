"""How quick the page is to a hand: `python -m tests.bench.page`, in Chromium on the scripted site.

Key to paint is measured in the page, from the key's event to the first moment after the frame that shows it.
"""

from __future__ import annotations

import threading
import time

from playwright.sync_api import Page, sync_playwright

from e2e.editor import place
from e2e.pages import launch
from tests.bench.report import Figure, percentile
from tests.ui.conftest import Site
from tests.ui.conftest import site as served

KEYS = 120
LINES_A_SECOND = 20

WATCH = """() => {
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


def typing(page: Page, site: Site) -> list[Figure]:
    """Keys into one cell of 100 while another streams."""
    cells = [("python", f"value_{number} = {number}\nprint(value_{number})") for number in range(100)]
    notebook = site.notebook(*cells)
    site.start(notebook)
    page.goto(f"{site.address}/n/{notebook}")
    page.wait_for_selector("[data-testid=feed-state][data-state=live]")
    over = threading.Event()

    def stream() -> None:
        number = 0
        while not over.wait(1 / LINES_A_SECOND):
            number += 1
            site.prints(notebook, f"line {number} of what streams\n")

    thread = threading.Thread(target=stream)
    thread.start()
    try:
        place(page.get_by_test_id("cell-source").nth(1), 0)
        page.evaluate(WATCH)
        for number in range(KEYS):
            page.keyboard.press("abcdefgh "[number % 9])
            page.wait_for_timeout(60)
        waits = page.evaluate("window.waits")
    finally:
        over.set()
        thread.join()
    wanted = "< 50"
    return [
        Figure(f"key to paint while {LINES_A_SECOND} lines/s stream, p50", percentile(waits, 0.5), "ms"),
        Figure(f"key to paint while {LINES_A_SECOND} lines/s stream, p95", percentile(waits, 0.95), "ms", wanted),
    ]


def opening(page: Page, site: Site) -> list[Figure]:
    """300 cells, from the address to the page that is live."""
    notebook = site.notebook(*[("python", f"x = {number}\nprint(x)  # a cell") for number in range(300)])
    found = []
    for _ in range(5):
        page.goto("about:blank")
        begin = time.perf_counter()
        page.goto(f"{site.address}/n/{notebook}", wait_until="commit")
        page.wait_for_selector("[data-testid=feed-state][data-state=live]")
        found.append((time.perf_counter() - begin) * 1000)
        assert page.get_by_test_id("cell").count() == 300
    return [Figure("300 cells, address to live, best of 5", min(found), "ms", "< 1000")]


def main() -> None:
    sites = served.__wrapped__()  # the fixture as a plain generator
    site = next(sites)
    with sync_playwright() as playwright:
        browser = launch(playwright, root=True)
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        for measure in (opening, typing):
            for figure in measure(page, site):
                print(figure.line(), flush=True)
        browser.close()
    next(sites, None)


if __name__ == "__main__":
    main()
