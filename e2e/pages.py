"""Nightbook as a person sees it: browsers, their contexts and tabs, and what stands on a page, by its test ids."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Locator, Page, Playwright, expect

from e2e import editor
from e2e.api import Notebook
from e2e.waiting import until

_ARGUMENTS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# The system's browsers, the lightest first: the shell has the same engine without the windows of a desktop's browser,
# and takes half the processor time. Playwright chooses its own in the same way.
_SYSTEM = [Path("/usr/bin/chromium-headless-shell"), Path("/usr/bin/chromium")]

PATIENCE = 20_000  # milliseconds for what a page is expected to show, on a machine that has more to do
expect.set_options(timeout=PATIENCE)

# All that a person reads in an output who scrolls from its first line to its last: a page holds no more of a long one
# than what is near the eyes. What passes by is taken block by block, each once, in its order.
READ_OUTPUT = """async (out) => {
  const room = () => [...out.querySelectorAll(".out-room")].some((node) => node.offsetHeight > 0);
  if (!room()) return out.textContent;
  const scroller = out.scrollHeight > out.clientHeight + 1 ? out : document.scrollingElement;
  const drawn = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const was = scroller.scrollTop;
  if (scroller === out) out.scrollIntoView({ block: "nearest" });
  const seen = new Map();
  const take = () => [...out.firstElementChild.childNodes].forEach((part, at) => {
    if (!part.classList?.contains("out-lines")) return seen.set(`${at} 0`, part.textContent);
    for (const block of part.querySelectorAll(":scope > .out-block")) {
      const behind = block.nextSibling?.nodeType === 3 ? block.nextSibling.data : "";
      seen.set(`${at} ${block.dataset.number ?? Infinity}`, block.textContent + behind);
    }
  });
  scroller.scrollTop = 0;
  await drawn();
  for (let before = -1; scroller.scrollTop > before; await drawn()) {
    take();
    before = scroller.scrollTop;
    scroller.scrollTop = before + scroller.clientHeight + 2400;
  }
  take();
  scroller.scrollTop = was;
  await drawn();
  const place = (key) => key.split(" ").map(Number);
  const order = (one, other) => place(one)[0] - place(other)[0] || (place(one)[1] > place(other)[1] ? 1 : -1);
  return [...seen.keys()].sort(order).map((key) => seen.get(key)).join("");
}"""

DRAWN = "(out, part) => out.textContent.includes(part)"


def launch(playwright: Playwright) -> Browser:
    """A headless Chromium: the system's where there is one, else Playwright's own."""
    return playwright.chromium.launch(
        executable_path=next((path for path in _SYSTEM if path.exists()), None),
        args=[*_ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])],
    )


class Visitor:
    """A person with a browser context: logged in by the link, once. `origin` is where its requests go.

    They asked for calm: without a graphics card each animation keeps a fourth of a processor busy, which what is
    tested then lacks.
    """

    def __init__(self, browser: Browser, link: str, origin: str | None = None, **options: Any) -> None:
        self.context: BrowserContext = browser.new_context(**({"reduced_motion": "reduce"} | options))
        self.context.set_default_timeout(PATIENCE)
        own, parts = urlsplit(origin or link), urlsplit(link)
        self.origin = f"{own.scheme}://{own.netloc}"
        page = self.context.new_page()
        page.goto(parts._replace(scheme=own.scheme, netloc=own.netloc).geturl())
        assert "token" not in page.url
        page.close()

    def open(self, notebook: Notebook, *, live: bool = True) -> "NotebookPage":
        """Opens a notebook in a new tab; unless told otherwise, waits until it is live."""
        opened = NotebookPage(self.context.new_page())
        opened.page.goto(self.origin + notebook.path, wait_until="commit")
        if live:
            opened.wait_live()
        return opened

    def home(self) -> Page:
        page = self.context.new_page()
        page.goto(self.origin + "/")
        return page

    def leave(self) -> None:
        """Closes all tabs of this person, as closing the window does."""
        self.context.close()


class NotebookPage:
    """A tab with a notebook."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(str(error)))

    # Places

    @property
    def cells(self) -> Locator:
        return self.page.get_by_test_id("cell")

    def wait_order(self, cell_ids: list[str]) -> None:
        """Waits until the page shows these cells in this order: what is pressed next is where it seems to be."""
        until(
            lambda: self.cells.evaluate_all("cells => cells.map(cell => cell.dataset.cellId)") == cell_ids,
            "the cells in their order",
        )

    def cell(self, cell_id: str) -> Locator:
        return self.page.locator(f'[data-testid="cell"][data-cell-id="{cell_id}"]')

    def output(self, cell_id: str) -> Locator:
        return self.cell(cell_id).get_by_test_id("cell-output")

    def source(self, cell_id: str) -> Locator:
        return self.cell(cell_id).get_by_test_id("cell-source")

    @property
    def feed(self) -> Locator:
        return self.page.get_by_test_id("feed-state")

    # What stands there

    def text(self, cell_id: str) -> str:
        text: str = self.output(cell_id).evaluate(READ_OUTPUT)
        return text

    def lines(self, cell_id: str) -> list[str]:
        return self.text(cell_id).splitlines()

    def state(self, cell_id: str) -> str | None:
        return self.cell(cell_id).get_attribute("data-state")

    def seq(self) -> int:
        return int(self.feed.get_attribute("data-seq") or -1)

    # Waiting for it

    def wait_live(self, seconds: float = 15.0) -> None:
        expect(self.feed).to_have_attribute("data-state", "live", timeout=seconds * 1000)

    def wait_state(self, cell_id: str, *states: str, seconds: float = 30.0) -> None:
        pattern = re.compile(f"^({'|'.join(states)})$")
        expect(self.cell(cell_id)).to_have_attribute("data-state", pattern, timeout=seconds * 1000)

    def wait_text(self, cell_id: str, part: str, seconds: float = 20.0) -> None:
        """Waits for a part of the output: first where it is drawn, which mostly has it, as reading it whole scrolls."""
        drawn = self.output(cell_id)

        def there() -> bool:
            return bool(drawn.evaluate(DRAWN, part)) or part in self.text(cell_id)

        until(there, f"{part!r} in the output", seconds)

    def wait_done(self, cell_id: str, seconds: float = 30.0) -> None:
        """Waits until the cell's run is over and the page shows the newest frame."""
        self.wait_state(cell_id, "done", "error", "cancelled", seconds=seconds)
        assert self.state(cell_id) == "done", f"{self.cell(cell_id).inner_text()[-500:]}"

    def wait_in_page(self, expression: str, argument: Any = None, seconds: float = 20.0) -> Any:
        """Waits, frame by frame, until a JavaScript function of `argument` gives a true value; returns it."""
        return self.page.wait_for_function(expression, arg=argument, polling="raf", timeout=seconds * 1000).json_value()

    # Deeds

    def run(self, cell_id: str) -> None:
        self.cell(cell_id).get_by_test_id("cell-run").click()

    def stop(self, cell_id: str) -> None:
        self.cell(cell_id).get_by_test_id("cell-stop").click()

    def type(self, cell_id: str, text: str) -> None:
        """Replaces the source of a cell by `text`."""
        editor.fill(self.source(cell_id), text)

    def answer(self, cell_id: str, line: str) -> None:
        """Types a line for the program of a cell."""
        field = self.cell(cell_id).get_by_test_id("input-field")
        field.fill(line)
        field.press("Enter")

    def mark(self) -> Callable[[], bool]:
        """Leaves a mark in the page; the function it gives tells whether this is the same page still."""
        self.page.evaluate("window.markOfTheSuite = 'here'")
        return lambda: bool(self.page.evaluate("window.markOfTheSuite === 'here'"))

    def reload(self) -> None:
        self.page.reload(wait_until="commit")

    def close(self) -> None:
        """Closes the tab."""
        self.page.close()
