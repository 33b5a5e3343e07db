"""State at a glance: what runs, who is here, what the link does, what happened while one was away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.ui.conftest import Site
from tests.ui.test_output_in_browser import opened


@pytest.fixture(autouse=True)
def world(site: Site) -> Iterator[None]:
    """Each test leaves the world as it was."""
    yield
    site.call("POST", "/world", {"server": "web-1"})


def run(site: Site, notebook: str, cell: str, *events: str, **fields: Any) -> None:
    place = {"cell_id": cell, "run_id": f"r-{cell}"}
    site.write(
        *[(notebook, "run", {"event": event, **place, **(fields if event == "ended" else {})}) for event in events]
    )


def test_queued_cells_say_their_place_in_line_as_they_were_asked(page: Page, site: Site) -> None:
    notebook = site.notebook(*[("python", str(number)) for number in range(4)])
    run(site, notebook, "c0", "queued", "started")
    run(site, notebook, "c3", "queued")
    opened(page, site, notebook)
    run(site, notebook, "c1", "queued")
    feet = page.locator(".cell .foot")
    expect(feet.nth(3)).to_contain_text("Next in line")
    expect(feet.nth(1)).to_contain_text("2nd in line")
    run(site, notebook, "c3", "started")
    expect(feet.nth(1)).to_contain_text("Next in line")
    page.reload()
    expect(feet.nth(1)).to_contain_text("Next in line")


def test_the_ring_turns_while_a_cell_runs_and_rests_for_who_asked_for_calm(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "1"))
    page.emulate_media(reduced_motion="no-preference")
    opened(page, site, notebook)
    run(site, notebook, "c0", "queued", "started")
    expect(page.get_by_test_id("cell")).to_have_attribute("data-state", "running")
    turning = "() => document.getAnimations().some((one) => one.animationName === 'turn')"
    assert page.evaluate(turning)
    page.emulate_media(reduced_motion="reduce")
    assert not page.evaluate(turning)


def test_who_is_here_is_shown_with_initials_and_names(page: Page, site: Site) -> None:
    site.call("POST", "/world", {"people": ["maya lind", "owner"]})
    notebook = site.notebook(("python", "1"))
    opened(page, site, notebook)
    faces = page.get_by_role("list", name="Who is here").get_by_role("listitem")
    expect(faces).to_have_count(2)
    expect(faces.nth(0)).to_have_attribute("title", "maya lind")
    expect(faces.nth(0)).to_contain_text("ML")
    expect(faces.nth(1)).to_have_attribute("title", "owner (you)")


def test_a_restarted_server_and_a_missing_network_are_told_apart(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "1"))
    run(site, notebook, "c0", "queued", "started")
    opened(page, site, notebook)
    page.wait_for_function("() => sessionStorage.length > 0")
    site.call("POST", "/world", {"server": "web-2"})
    expect(page.get_by_test_id("server-restarted")).to_have_text("Server restarted, work went on")
    page.context.set_offline(True)
    expect(page.get_by_test_id("feed-state")).to_have_text("You are offline")
    page.context.set_offline(False)
    expect(page.get_by_test_id("feed-state")).to_have_text("Live")


def test_who_comes_back_sees_what_happened_and_where_they_left(page: Page, site: Site) -> None:
    notebook = site.notebook(*[("python", f"cell = {number}\n" * 12) for number in range(6)])
    run(site, notebook, "c0", "queued", "started", "ended", status="done", ms=5)
    left = site.notebook_seq(notebook)
    run(site, notebook, "c4", "queued", "started", "ended", status="error", ms=5, reason="ValueError")
    run(site, notebook, "c5", "queued", "started", "ended", status="done", ms=5)
    site.call("POST", "/world", {"away": [left, 2460]})
    opened(page, site, notebook)
    strip = page.get_by_test_id("return-strip")
    expect(strip).to_contain_text("You were away for 41 minutes: 1 cell finished, 1 failed.")
    lines = page.get_by_test_id("timeline").get_by_role("listitem")
    told = [text for text in lines.all_inner_texts() if "you left here" in text or "Cell" in text]
    assert [re.sub(r"^\d\d:\d\d\s+", "", text) for text in told] == [
        "Cell 1 finished, 5 ms",
        "you left here",
        "Cell 5 failed: ValueError",
        "Cell 6 finished, 5 ms",
    ]
    strip.get_by_test_id("show-left").click()
    expect(page.locator("[data-cell-id=c4] .box")).to_be_in_viewport()
    strip.get_by_role("button", name="Dismiss").click()
    expect(strip).to_have_count(0)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"store": "offline"}, "Database away"),
        ({"store": "full"}, "Database full"),
        ({"engine": "away"}, "Engine away"),
        ({"engine": "leaving"}, "Server restarts"),
    ],
    ids=["database away", "database full", "engine away", "server leaves"],
)
def test_what_is_away_or_full_is_told_and_what_was_there_stays(
    page: Page, site: Site, what: dict[str, str], words: str
) -> None:
    notebook = site.notebook(("python", "1"))
    opened(page, site, notebook)
    site.start(notebook)
    site.prints(notebook, "what was there\n")
    state = page.get_by_test_id("feed-state")
    site.call("POST", "/world", what)
    expect(state).to_have_text(words)
    expect(state).to_have_attribute("data-state", "engine-away")
    expect(page.get_by_test_id("cell")).to_contain_text("what was there")
    page.emulate_media(reduced_motion="no-preference")
    ring = "document.getAnimations().find((one) => one.animationName === 'turn')?.playState"
    page.wait_for_function(f"{ring} === 'paused'")
    said = "getComputedStyle(document.querySelector('.foot .state'), '::after').content"
    page.wait_for_function(f"{said} === '\", when last seen\"'")
    site.call("POST", "/world", {"server": "web-1"})
    expect(state).to_have_text("Live")
    page.wait_for_function(f"{ring} === 'running'")


def test_the_timeline_is_the_same_in_two_tabs_and_after_a_reload(page: Page, browser: Browser, site: Site) -> None:
    notebook = site.notebook(("python", "1"), ("python", "2"))
    opened(page, site, notebook)
    for cell in ("c0", "c1"):
        run(site, notebook, cell, "queued", "started", "ended", status="done", ms=5)
    site.write((notebook, "cell", {"event": "edited", "cell_id": "c0", "at": 0, "insert": "x", "by": "maya"}))
    lines = page.get_by_test_id("timeline").get_by_role("listitem")
    expect(lines.last).to_contain_text("maya changed Cell 1")
    live = lines.all_inner_texts()
    assert any("2 cells finished" in line for line in live)
    other = browser.new_page()
    opened(other, site, notebook)
    assert other.get_by_test_id("timeline").get_by_role("listitem").all_inner_texts() == live
    other.close()


def test_what_runs_out_of_sight_is_one_press_away(page: Page, site: Site) -> None:
    notebook = site.notebook(*[("python", "line\n" * 30) for _ in range(5)])
    opened(page, site, notebook)
    run(site, notebook, "c4", "queued", "started")
    jump = page.get_by_role("button", name="Jump to the running cell")
    jump.click()
    expect(page.locator("[data-cell-id=c4] .box")).to_be_in_viewport()
    expect(jump).to_have_count(0)


def test_the_theme_is_chosen_remembered_and_there_before_the_first_paint(browser: Browser, site: Site) -> None:
    notebook = site.notebook(("python", "1"))
    context = browser.new_context(color_scheme="light")
    page = context.new_page()
    opened(page, site, notebook)
    root = page.locator("html")
    expect(root).to_have_attribute("data-theme", "light")
    page.get_by_role("button", name="More", exact=True).click()
    page.get_by_role("menuitemradio", name="Dark").click()
    expect(root).to_have_attribute("data-theme", "dark")
    seen = (
        "document.addEventListener('readystatechange', () => (window.early ??= document.documentElement.dataset.theme))"
    )
    page.add_init_script(seen)
    page.goto(f"{site.address}/")
    expect(root).to_have_attribute("data-theme", "dark")
    assert page.evaluate("window.early") == "dark"
    page.goto(f"{site.address}/nowhere")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 18, 27)"
    context.close()


def test_the_menu_is_worked_by_keyboard(page: Page, site: Site) -> None:
    notebook = site.notebook(("python", "1"))
    opened(page, site, notebook)
    button = page.get_by_role("button", name="More", exact=True)
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="Everything by name")).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("menuitemradio", name="As the system")).to_be_focused()
    page.keyboard.press("Escape")
    expect(button).to_be_focused()
    expect(page.get_by_role("menu")).to_have_count(0)
