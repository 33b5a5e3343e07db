"""A tab on a slow line holds little on the server, and ends with everything."""

from __future__ import annotations

import secrets
from urllib.parse import urlsplit

from playwright.sync_api import Browser, expect

from e2e.proxy import Proxy
from tests.ui.conftest import Site
from tests.ui.test_page_in_browser import eventually
from ui.viewer import WINDOW

RATE = 50_000  # bytes a second
LINES = 90  # of one frame, some 9 KB, of which a socket that packs sends half


def test_a_tab_on_50_kb_a_second_holds_at_most_256_kib_and_ends_with_everything(browser: Browser, site: Site) -> None:
    notebook = site.notebook(("python", "flood()"))
    address = urlsplit(site.address)
    with Proxy(str(address.hostname), int(address.port or 0)) as proxy:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{proxy.url}/n/{notebook}")
        feed = page.get_by_test_id("feed-state")
        expect(feed).to_have_attribute("data-state", "live", timeout=30_000)
        proxy.bytes_per_second = RATE
        site.start(notebook)
        # All at once: a busy machine that wrote them one by one would be no faster than the line.
        frames = ["".join(f"{number:02} {secrets.token_hex(48)}\n" for _ in range(LINES)) for number in range(60)]
        site.prints(notebook, *frames)
        head, held = site.notebook_seq(notebook), [0]

        def caught_up() -> bool:
            held.append(site.call("GET", "/statistics")["unacknowledged"])
            return feed.get_attribute("data-seq") == str(head)

        for _ in range(6):
            caught_up()
            page.wait_for_timeout(250)  # the line stays slow for a while
        proxy.bytes_per_second = 20 * RATE  # and the end need not take ten seconds
        eventually(page, caught_up)
        assert WINDOW / 8 < max(held) <= WINDOW
        expect(page.get_by_test_id("cell-output")).to_contain_text("59 ")
        context.close()
