"""The pictures of the README, taken from a real run: `make shots`, or `python -m tests.shots`; a minute and a half.

A server on a folder of its own, notebooks that really run, a person who really leaves for a minute and comes back.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from e2e.api import Api, Notebook
from e2e.pages import NotebookPage, Visitor, launch
from e2e.server import Server

IMAGES = Path(__file__).parents[1] / "docs" / "images"
AWAY_SECONDS = 75  # a little more than what counts as having been away
LIMIT = 150_000  # bytes of one picture

CELLS = (
    ("markdown", "## Rebuild and explain\n\nEvery Monday: load the week, refit, say what moved."),
    (
        "python",
        "import random, time\n\ntime.sleep(9)  # the warehouse takes its time\n"
        "week = [random.gauss(0.62, 0.11) for _ in range(120_403)]\nrows = len(week)\n"
        'print(f"{rows:,} rows, mean {sum(week) / rows:.3f}")',
    ),
    ("shell", "printf 'data/week-%s.parquet\\n' 46 47 48"),
    (
        "python",
        "for fold in range(1, 32):\n    time.sleep(2)\n"
        '    print(f"fold {fold:>2}/50  auc {0.84 + fold / 1000:.3f}")\ntime.sleep(3600)  # the rest of the night',
    ),
    ("python", 'name = input("Which segment shall I plot? ")'),
)
OTHERS = (
    ("Invoices, November", "print('all booked')", "done"),
    ("Sensor drift, north hall", "input('Which sensor is the reference? ')", "waiting"),
    ("Tokenizer sweep", "raise ValueError('vocabulary of 0 tokens')", "error"),
    (
        "Backfill 2019 to 2024",
        "import time\nfor year in range(2019, 2025):\n    print(year)\n    time.sleep(600)",
        "running",
    ),
)
DESK: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


def shoot(page: NotebookPage | Any, name: str) -> None:
    """Takes one picture, once the page is still."""
    page = getattr(page, "page", page)
    page.evaluate("() => document.fonts.ready.then(() => new Promise((done) => setTimeout(done, 300)))")
    page.mouse.move(2, 400)
    path = IMAGES / f"{name}.png"
    page.screenshot(path=path, animations="disabled", caret="hide")
    size = path.stat().st_size
    print(f"{path.relative_to(IMAGES.parents[1])}: {size / 1000:.0f} KB", flush=True)
    if size > LIMIT:
        raise SystemExit(f"{path} has {size} bytes, more than {LIMIT}")


def stage(api: Api) -> Notebook:
    """Notebooks in every state, and the one that the pictures are about."""
    for title, source, state in OTHERS:
        notebook = api.notebook(("python", source), title=title)
        notebook.run(notebook.cells[0])
        notebook.wait(notebook.cells[0], state, seconds=60)
    return api.notebook(*CELLS, title="Churn, weekly rebuild")


def pictures(browser: Browser, server: Server, api: Api) -> None:
    notebook = stage(api)
    visitor = Visitor(browser, server.link, **DESK)
    page = visitor.open(notebook)
    page.page.get_by_test_id("run-all").click()
    page.wait_state(notebook.cells[1], "running", seconds=60)
    visitor.leave()
    time.sleep(AWAY_SECONDS)
    for theme in ("light", "dark"):
        visitor = Visitor(browser, server.link, color_scheme=theme, **DESK)
        page = visitor.open(notebook)
        if theme == "light":  # the first time of coming back
            page.page.get_by_test_id("return-strip").wait_for()
            page.wait_text(notebook.cells[3], "fold 31/50", seconds=60)
        shoot(page, f"notebook-{theme}")
        home = visitor.home()
        home.get_by_test_id("notebook-row").first.wait_for()
        shoot(home, f"home-{theme}")
        visitor.leave()
    phone = Visitor(browser, server.link, color_scheme="dark", **PHONE)
    shoot(phone.open(notebook), "notebook-phone")
    phone.leave()


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="nightbook-shots-") as folder:
        server = Server(Path(folder) / "data")
        server.start()
        api = Api(server.url, server.token)
        try:
            with sync_playwright() as playwright:
                browser = launch(playwright)
                pictures(browser, server, api)
                browser.close()
        finally:
            api.close()
            server.stop_all()


if __name__ == "__main__":
    main()
