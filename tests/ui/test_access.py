"""Everybody can use the pages: WCAG A and AA as axe-core checks them, names for all controls, a focus that is seen, and
nothing that jumps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from app.login import login_page
from e2e.pages import PATIENCE
from e2e.scale import SOAK
from tests.ui.conftest import Site
from tests.ui.test_output_in_browser import opened
from tests.ui.turns import Turn

AA = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]},
    "resultTypes": ["violations"],
}
AXE = Axe()


def violations(page: Page) -> list[str]:
    """What is wrong, one line each: the rule, the place, and why."""
    found = AXE.run(page, options=AA).response["violations"]
    return [
        f"{rule['id']}: {' '.join(map(str, node['target']))}: {' '.join(node['failureSummary'].split())[:300]}"
        for rule in found
        for node in rule["nodes"]
    ]


def idle(site: Site) -> str:
    text = "# Title\n\nText with `code`, a [link](https://example.org) and\n\n> a quote\n\n- one\n- two"
    notebook = site.notebook(
        ("markdown", text), ("python", "import os  # a comment\nx = 'text' + str(3)"), ("shell", "ls")
    )
    site.write((notebook, "session", {"event": "sandbox", "state": "awake", "kernel": "ready", "isolation": "process"}))
    return notebook


def running(site: Site) -> str:
    notebook = site.notebook(*[("python", "while True: pass")] * 3)
    site.start(notebook)
    site.prints(notebook, "line\n" * 60)
    site.prints(
        notebook, "a warning\n", "\x1b[31mred\x1b[0m \x1b[1;33myellow\x1b[0m \x1b[32mgreen\x1b[0m\n", stream="stderr"
    )
    for cell in ("c1", "c2"):
        site.write((notebook, "run", {"event": "queued", "cell_id": cell, "run_id": cell}))
    site.call("POST", "/world", {"people": ["maya", "owner"], "away": [3, 2460]})
    return notebook


def failed(site: Site) -> str:
    notebook = site.notebook(("python", "1/0"))
    site.start(notebook)
    site.prints(
        notebook, "Traceback (most recent call last):\nZeroDivisionError: division by zero\n", stream="traceback"
    )
    place = {"cell_id": "c0", "run_id": "r0"}
    site.write(
        (notebook, "run", {"event": "ended", "status": "error", "reason": "ZeroDivisionError", "ms": 3, **place})
    )
    return notebook


def waiting(site: Site) -> str:
    notebook = site.notebook(("python", "input('Name? ')"))
    site.start(notebook)
    asked = {"event": "asked", "cell_id": "c0", "run_id": "r0", "input": "i", "prompt": "Name? ", "password": False}
    site.write((notebook, "input", asked))
    return notebook


def asking(site: Site) -> str:
    """A turn with one of everything, and a question that waits."""
    turn = Turn(site)
    turn.tells("run", event="round", round=2, rounds=50, seconds=400.0)
    turn.tells("thought", round=1, text="A thought.\nAnd more of it.", thinking=True)
    turn.tells("search", round=1, query="words", sources=[{"title": "Found", "url": "https://example.org"}])
    turn.calls("done", "Edit a.txt", tool="edit_file", arguments={"path": "a.txt"})
    turn.ends_call("done", diff="@@ -1 +1 @@\n-old\n+new", text="changed", ms=40)
    turn.calls("bad", "Fail")
    turn.ends_call("bad", "error", text="no")
    turn.asks("silent" + turn.notebook, call="bad")
    turn.decides("silent" + turn.notebook, "deny", "no_operator", call="bad")
    turn.tells("message", event="queued", message="m", text="Mind the gap", by="owner")
    turn.tells("error", reason="it broke", step=1, line=1)
    turn.tells("delivered", text="# Title\n\nText", files=["a.txt"])
    turn.tells("progress", text="Half way", fraction=0.5)
    site.write((turn.notebook, "check", {"item": "Load", "done": True}), (turn.notebook, "check", {"item": "Write"}))
    site.write(
        (turn.notebook, "file", {"path": "a.txt", "version": 1, "bytes": 3, "mime": "text/plain", "call": "done"})
    )
    site.write((turn.notebook, "file", {"path": "b", "skipped": "over 64 MiB"}))
    turn.asks("open" + turn.notebook, call="x", rule="make all", why="To see.", touches=["a"], diff="@@ @@\n-a\n+b")
    return turn.notebook


def naming(site: Site) -> str:
    """A request and a reply that name a cell, a file, and what is not there; and what the agent saw of them."""
    turn = Turn(site, ("python", "x = 1"), source="Why @cell:c1 and @file:a.txt but no @file:lost.txt?")
    site.write((turn.notebook, "file", {"path": "a.txt", "version": 1, "bytes": 3, "mime": "text/plain"}))
    seen = [
        {"kind": "file", "name": "a.txt", "version": 1, "characters": 3},
        {"kind": "file", "name": "lost.txt", "problem": "there is no such file in this notebook"},
    ]
    turn.tells("context", event="shown", model="anthropic:x", cells=[], characters=0, mentions=seen)
    turn.tells("usage", round=1, model="anthropic:x", input=1200, output=34)
    tools = [{"name": "time__now", "about": "Tells the time", "reads": True}]
    for event in (
        {"event": "added", "server": "time", "command": ["mcp-server-time"]},
        {"event": "listed", "server": "time", "tools": tools, "left_out": 3, "problems": ["bad: no schema"]},
        {"event": "added", "server": "files", "url": "https://example.org/mcp"},
        {"event": "failed", "server": "files", "reason": "it does not answer"},
    ):
        site.write((turn.notebook, "server", event))
    turn.tells("message", event="queued", message="m", text="And @cell:c1, @file:a.txt, @cell:gone", by="owner")
    turn.tells("done", rounds=1, calls=0, ms=900, tokens=1234, cost=0.0042)
    turn.ends()
    return turn.notebook


SCENES = [idle, running, failed, waiting, asking, naming]
# The short form sees both widths and both themes, each once, and each state in one of the two.
LOOKS = [(1440, "light"), (390, "dark"), *([(1440, "dark"), (390, "light")] if SOAK else [])]


@pytest.fixture(params=LOOKS, ids=lambda look: f"{look[0]}-{look[1]}")
def look(request: pytest.FixtureRequest, browser: Browser, site: Site) -> Iterator[Page]:
    """A page of one width in one theme, still, so that what is checked is not half way through an animation."""
    width, theme = request.param
    options: dict[str, Any] = {"viewport": {"width": width, "height": 844}, "color_scheme": theme}
    context = browser.new_context(reduced_motion="reduce", **options)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    listed = {"models": ["claude-test", "small"], "error": None}
    page.route("**/api/v1/models/*/try", lambda route: route.fulfill(json=listed))
    yield page
    context.close()
    site.call("POST", "/world", {})


def policy(page: Page) -> None:
    """Opens what agents may do: from the head, or from its menu where the head has no room for it."""
    if page.viewport_size and page.viewport_size["width"] > 760:
        page.get_by_test_id("policy").click()
        return
    page.get_by_role("button", name="More", exact=True).click()
    page.get_by_role("menuitem", name="Agents: asks before it acts").click()


def test_a_notebook_passes_in_every_state(look: Page, site: Site) -> None:
    wrong: list[str] = []
    wide = look.viewport_size is not None and look.viewport_size["width"] > 760
    scenes = SCENES if SOAK else SCENES[0::2] if wide else SCENES[1::2]
    for scene in scenes:
        opened(look, site, scene(site))
        if scene is running:
            expect(look.get_by_test_id("return-strip")).to_be_visible()
            look.get_by_role("button", name="More", exact=True).click()
        if scene is asking:
            expect(look.locator("[data-testid=ask-approve][aria-disabled=false]")).to_be_visible()
            look.locator("[data-call=done] button").click()
            policy(look)
        if scene is naming:
            expect(look.get_by_test_id("attachment")).to_have_count(3)
            expect(look.get_by_test_id("turn-done")).to_contain_text("1,234 tokens · $0.0042")
            look.get_by_test_id("turn-context").locator("summary").click()
            look.locator("[data-server=time] button").first.click()
            look.get_by_test_id("server-new").click()
            look.get_by_test_id("turn-say").fill("@")
            expect(look.get_by_test_id("mention-list")).to_be_visible()
        wrong += [f"{scene.__name__}: {line}" for line in violations(look)]
    if naming in scenes:
        look.get_by_test_id("turn-say").press("Escape")
        look.get_by_test_id("model-pick").click()
        listed = look.get_by_test_id("model-list").get_by_role("option").filter(has_text="claude-test")
        expect(listed).to_have_count(2)
        wrong += [f"the list of models: {line}" for line in violations(look)]
    assert wrong == []


def test_the_other_pages_pass(look: Page, site: Site) -> None:
    waiting(site)
    wrong: list[str] = []
    look.goto(site.address)
    expect(look.get_by_test_id("notebook-row").first).to_be_visible()
    wrong += [f"home: {line}" for line in violations(look)]
    look.get_by_test_id("notebook-row").first.get_by_role("button", name="More").click()
    wrong += [f"home with a menu: {line}" for line in violations(look)]
    look.keyboard.press("Escape")
    look.get_by_test_id("notebook-search").fill("no such title")
    wrong += [f"nothing found: {line}" for line in violations(look)]
    look.get_by_role("button", name="Archive", exact=True).click()
    expect(look.get_by_role("heading", name="Nothing archived")).to_be_visible()
    wrong += [f"empty: {line}" for line in violations(look)]
    asking(site)
    look.goto(f"{site.address}/inbox")
    expect(look.get_by_test_id("inbox-item").first).to_be_visible()
    wrong += [f"inbox: {line}" for line in violations(look)]
    look.goto(f"{site.address}/settings")
    expect(look.get_by_test_id("said-ollama")).to_contain_text("It answers, with 2 models")
    wrong += [f"settings: {line}" for line in violations(look)]
    look.goto(f"{site.address}/nowhere")
    wrong += [f"404: {line}" for line in violations(look)]
    look.set_content(login_page("/", "That token is not right.").decode())
    wrong += [f"login: {line}" for line in violations(look)]
    assert wrong == []


NAMELESS = """[...document.querySelectorAll("button, a[href], input, select, textarea, [role=button], [role=textbox]")]
  .filter((node) => !node.closest("[aria-hidden=true]"))
  .filter((node) => {
    const words = [...node.childNodes].filter((child) => !child.ariaHidden).map((child) => child.textContent).join("");
    const labelled = node.ariaLabel || node.getAttribute("aria-labelledby") || node.labels?.length;
    return !labelled && !/[\\p{L}\\p{N}]/u.test(words);
  })
  .map((node) => node.outerHTML.slice(0, 200))"""


def test_on_a_phone_the_head_has_two_rows_and_loses_nothing(browser: Browser, site: Site) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    notebook = site.notebook(
        ("python", "while True: pass"), ("python", "input()"), title="Rather a long title, all in all"
    )
    site.start(notebook)
    place = {"cell_id": "c1", "run_id": "r1"}
    site.write(
        (notebook, "run", {"event": "queued", **place}),
        (notebook, "run", {"event": "started", **place}),
        (notebook, "input", {"event": "asked", "input": "i", "prompt": "", "password": False, **place}),
    )
    opened(page, site, notebook)
    expect(page.locator(".head .chip.wait").first).to_be_visible()
    tops = (
        "[...document.querySelectorAll('.head > :is(.logo, h1, .inbox, .menu), .head :is(.chip, .deeds button)')]"
        + (
            ".filter((node) => node.offsetParent).map((node) => { const box = node.getBoundingClientRect();"
            " return [Math.round((box.top + box.bottom) / 2), box.right]; })"
        )
    )
    places = page.evaluate(tops)
    assert len({round(middle / 12) for middle, _ in places}) == 2
    assert max(right for _, right in places) <= 390
    policy(page)
    expect(page.get_by_test_id("policy-panel")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="More", exact=True)).to_be_focused()
    context.close()


@pytest.mark.parametrize("scene", SCENES)
def test_every_control_without_a_visible_word_has_a_name(page: Page, site: Site, scene: Callable[[Site], str]) -> None:
    opened(page, site, scene(site))
    assert page.evaluate(NAMELESS) == []
    page.goto(site.address)
    expect(page.get_by_test_id("notebook-row").first).to_be_visible()
    assert page.evaluate(NAMELESS) == []
    site.call("POST", "/world", {})


def test_focus_is_seen_wherever_it_is(page: Page, site: Site) -> None:
    opened(page, site, idle(site))
    unseen = """() => {
        const node = document.activeElement;
        if (node === document.body) return "body";
        const shown = (one) => { const style = getComputedStyle(one);
            const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
            return outlined || one.matches(".box:focus-within"); };
        for (let one = node; one; one = one.parentElement) if (shown(one)) return null;
        return node.outerHTML.slice(0, 120);
    }"""
    hidden: set[str] = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        if (found := page.evaluate(unseen)) and found != "body":
            hidden.add(found)
    assert hidden == set()
