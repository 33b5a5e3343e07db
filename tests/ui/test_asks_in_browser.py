"""The ask card in a real browser: not overlooked, not answered by accident, never saying what is not so."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from engine.ids import new_id
from tests.ui.conftest import Site
from tests.ui.test_output_in_browser import opened
from tests.ui.test_page_in_browser import eventually
from tests.ui.turns import Turn

STEADY = "[data-testid=ask-approve][aria-disabled=false]"


@pytest.fixture
def turn(site: Site) -> Turn:
    return Turn(site)


def verdicts(site: Site, ask: str) -> list[dict[str, Any]]:
    return [said for said in site.commands("verdict") if said["ask"] == ask]


def card(page: Page, ask: str) -> Locator:
    return page.locator(f"[data-ask-id='{ask}']")


def steady(page: Page, ask: str) -> Locator:
    """The card, once its first moments are over."""
    found = card(page, ask)
    expect(found.locator(STEADY)).to_be_visible()
    return found


def test_a_card_shows_all_that_one_needs_to_know(page: Page, site: Site, turn: Turn) -> None:
    ask = new_id()
    command = "git push origin main"
    turn.asks(ask, command=command, why="To share it.", touches=["origin"], risk="network", rule="git push origin main")
    opened(page, site, turn.notebook)
    shown = card(page, ask)
    for words in (command, "To share it.", "origin", "Reaches the network", "Denies itself in", "Always"):
        expect(shown).to_contain_text(words)
    assert int(shown.get_by_test_id("ask-countdown").get_attribute("data-seconds") or 0) <= 300


@pytest.mark.parametrize(("key", "verdict"), [("y", "approve"), ("n", "deny")])
def test_keys_answer_only_the_card_that_has_the_focus(
    page: Page, site: Site, turn: Turn, key: str, verdict: str
) -> None:
    ask = new_id()
    turn.asks(ask)
    opened(page, site, turn.notebook)
    shown = steady(page, ask)
    page.keyboard.press(key)
    shown.get_by_role("button", name="Add a message").click()
    page.keyboard.type(f"{key}es")
    shown.get_by_test_id("ask-deny").focus()
    page.keyboard.press(key)
    assert verdicts(site, ask) == []
    shown.focus()
    page.keyboard.press(f"Control+{key}")
    assert verdicts(site, ask) == []
    page.keyboard.press(key)
    expect(shown).to_have_attribute("data-state", verdict)
    [said] = verdicts(site, ask)
    assert (said["verdict"], said["scope"], said["message"]) == (verdict, "once", f"{key}es")


def test_a_key_held_down_answers_nothing(page: Page, site: Site, turn: Turn) -> None:
    ask = new_id()
    turn.asks(ask)
    opened(page, site, turn.notebook)
    steady(page, ask).focus()
    held = "new KeyboardEvent('keydown', {key: 'y', repeat: true, bubbles: true})"
    card(page, ask).evaluate(f"node => node.dispatchEvent({held})")
    page.evaluate("() => new Promise((done) => setTimeout(done, 100))")
    assert verdicts(site, ask) == []


def test_no_key_pressed_on_a_card_is_taken_for_one_of_the_cell(page: Page, site: Site, turn: Turn) -> None:
    ask = new_id()
    turn.asks(ask)
    opened(page, site, turn.notebook)
    steady(page, ask).focus()
    before = len(site.call("GET", "/commands"))
    page.keyboard.type("xddzs")
    card(page, ask).get_by_test_id("ask-approve").focus()
    page.keyboard.type("xddy")
    card(page, ask).focus()
    page.keyboard.press("n")
    expect(card(page, ask)).to_have_attribute("data-state", "deny")
    assert [said["kind"] for said in site.call("GET", "/commands")[before:]] == ["verdict"]


def test_nothing_counts_in_the_moment_after_a_card_appeared_or_moved(page: Page, site: Site, turn: Turn) -> None:
    ask = new_id()
    opened(page, site, turn.notebook)
    press = """(ask) => new Promise((done) => {
        const look = () => {
            const card = document.querySelector(`[data-ask-id='${ask}']`);
            if (!card) return requestAnimationFrame(look);
            card.focus();
            card.dispatchEvent(new KeyboardEvent('keydown', {key: 'y', bubbles: true}));
            card.querySelector('[data-testid=ask-approve]').click();
            done();
        };
        look();
    })"""
    page.evaluate(f"ask => {{ window.pressed = ({press})(ask); }}", ask)
    turn.asks(ask)
    page.evaluate("window.pressed")
    expect(card(page, ask)).to_contain_text("It had just moved")
    steady(page, ask)
    page.evaluate(
        """(ask) => {
            const card = document.querySelector(`[data-ask-id='${ask}']`);
            card.previousElementSibling.style.paddingTop = '90px';
            card.querySelector('[data-testid=ask-approve]').click();
        }""",
        ask,
    )
    assert verdicts(site, ask) == []
    steady(page, ask).get_by_test_id("ask-approve").click()
    expect(card(page, ask)).to_have_attribute("data-state", "approve")
    assert len(verdicts(site, ask)) == 1


def test_a_double_click_acts_once(page: Page, site: Site, turn: Turn) -> None:
    ask = new_id()
    turn.asks(ask)
    opened(page, site, turn.notebook)
    steady(page, ask).get_by_test_id("ask-approve").dblclick()
    expect(card(page, ask)).to_have_attribute("data-state", "approve")
    assert len(verdicts(site, ask)) == 1


def test_always_is_offered_only_where_a_rule_can_be_given_and_says_what_it_covers(
    page: Page, site: Site, turn: Turn
) -> None:
    plain, ruled = new_id(), new_id()
    turn.asks(plain)
    turn.asks(ruled, call="y", rule="git status")
    opened(page, site, turn.notebook)
    expect(card(page, plain).get_by_test_id("ask-always")).to_have_count(0)
    expect(card(page, ruled)).to_contain_text("“Always” covers: git status")
    steady(page, ruled).get_by_test_id("ask-always").click()
    expect(card(page, ruled)).to_contain_text("Approved for this notebook by owner")
    assert verdicts(site, ruled)[0]["scope"] == "kind"


def test_answered_elsewhere_it_closes_and_says_by_whom(browser: Browser, page: Page, site: Site, turn: Turn) -> None:
    ask = new_id()
    turn.asks(ask)
    opened(page, site, turn.notebook)
    other = browser.new_context().new_page()
    opened(other, site, turn.notebook)
    steady(page, ask).focus()
    steady(other, ask).get_by_test_id("ask-deny").click()
    for one in (page, other):
        expect(card(one, ask)).to_contain_text(re.compile(r"Denied by owner at \d\d:\d\d"))
        expect(card(one, ask).get_by_test_id("ask-approve")).to_have_count(0)
    assert card(page, ask).evaluate("node => node === document.activeElement")
    other.context.close()


def test_who_comes_second_is_told_calmly(page: Page, site: Site, turn: Turn) -> None:
    ask = new_id()
    turn.asks(ask)
    opened(page, site, turn.notebook)
    steady(page, ask)
    site.call("POST", "/refuse/409/1")
    card(page, ask).get_by_test_id("ask-approve").click()
    expect(card(page, ask)).to_contain_text("not now")
    expect(card(page, ask)).not_to_contain_text("Approved")


def test_an_answer_that_did_not_arrive_is_told_and_can_be_given_again(page: Page, site: Site, turn: Turn) -> None:
    ask = new_id()
    turn.asks(ask)
    opened(page, site, turn.notebook)
    steady(page, ask)
    page.route("**/api/v1/asks/*", lambda route: route.abort())
    card(page, ask).get_by_test_id("ask-approve").click()
    expect(card(page, ask)).to_contain_text("nothing was decided")
    page.unroute("**/api/v1/asks/*")
    card(page, ask).get_by_test_id("ask-approve").click()
    expect(card(page, ask)).to_have_attribute("data-state", "approve")


@pytest.mark.parametrize(
    ("reason", "words"),
    [("timeout", "nobody answered in time"), ("no_operator", "nobody was here"), ("cancelled", "the turn was stopped")],
)
def test_silence_is_told_as_what_it_was(page: Page, site: Site, turn: Turn, reason: str, words: str) -> None:
    ask = new_id()
    turn.asks(ask)
    opened(page, site, turn.notebook)
    steady(page, ask)
    turn.decides(ask, "deny", reason, by="engine")
    expect(card(page, ask)).to_contain_text(words)
    expect(card(page, ask)).not_to_contain_text("Denies itself")
    expect(card(page, ask)).to_have_attribute("data-state", "deny")
    again = card(page, ask).get_by_test_id("ask-reconsider")
    expect(again).to_have_count(0)  # as long as the turn goes on
    turn.ends()
    if reason == "cancelled":
        expect(again).to_have_count(0)
    else:
        again.click()
        eventually(page, lambda: [said for said in site.commands("reconsider") if said["ask"] == ask])
    page.reload()
    expect(card(page, ask)).to_contain_text(words)


def test_out_of_time_a_card_cannot_be_answered_and_turns_no_colour(page: Page, site: Site, turn: Turn) -> None:
    ask = new_id()
    turn.asks(ask, seconds=1)
    opened(page, site, turn.notebook)
    expect(card(page, ask)).to_contain_text("Time is up. It counts as a no.")
    expect(card(page, ask)).to_have_attribute("data-state", "over")
    expect(card(page, ask).get_by_test_id("ask-approve")).to_have_attribute("aria-disabled", "true")


def test_a_reload_keeps_the_card_and_its_time(page: Page, site: Site, turn: Turn) -> None:
    ask = new_id()
    turn.asks(ask, seconds=300, at_seconds=-100)
    page.add_init_script("const now = Date.now; Date.now = () => now() + 7200e3;")  # a device whose clock is wrong
    opened(page, site, turn.notebook)
    for _ in range(2):
        seconds = int(card(page, ask).get_by_test_id("ask-countdown").get_attribute("data-seconds") or 0)
        assert 100 < seconds <= 200
        expect(page.get_by_test_id("cell")).to_have_attribute("data-state", "waiting")
        page.reload()
        expect(card(page, ask)).to_be_visible()


def test_a_parked_card_waits_until_tomorrow(page: Page, site: Site, turn: Turn) -> None:
    ask = new_id()
    turn.asks(ask)
    opened(page, site, turn.notebook)
    steady(page, ask).get_by_test_id("ask-park").click()
    expect(card(page, ask)).to_contain_text("Parked. Denies itself in 24 h")
    expect(card(page, ask).get_by_test_id("ask-park")).to_have_count(0)
    steady(page, ask).get_by_test_id("ask-approve").click()
    expect(card(page, ask)).to_have_attribute("data-state", "approve")


def test_a_long_command_is_there_whole_and_scrolls_inside(page: Page, site: Site, turn: Turn) -> None:
    ask = new_id()
    command = "\n".join(f"echo {number} {'x' * 150}" for number in range(60))
    turn.asks(ask, command=command)
    opened(page, site, turn.notebook)
    assert card(page, ask).locator(".command").text_content() == command
    expect(card(page, ask)).to_contain_text("60 lines in all")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1200


def test_an_ask_below_the_fold_is_noticed(page: Page, site: Site) -> None:
    cells = [("markdown", "word " * 900)] * 3
    notebook = site.notebook(*cells, ("agent", "Do it"))
    site.start(notebook, "c3", "r3")
    opened(page, site, notebook)
    ask = new_id()
    place = {"cell_id": "c3", "run_id": "r3"}
    body = {"tool": "shell", "title": "Run make", "command": "make", "seconds": 300}
    site.write((notebook, "tool", {**place, "event": "call", "call": "x", "tool": "shell", "title": "t", "round": 1}))
    site.write((notebook, "run", {**place, "event": "waiting", "waits_for": "ask"}))
    site.write((notebook, "ask", {**place, "ask": ask, "call": "x", **body}))
    bar = page.get_by_test_id("ask-bar")
    expect(bar).to_contain_text("1 question waits: Run make")
    expect(page).to_have_title(re.compile(r"^\(\d+\) Waits: "))
    expect(page.locator(".head .chip.wait", has_text="1 waits for you")).to_be_visible()
    bar.get_by_role("button").click()
    expect(card(page, ask)).to_be_focused()
    expect(card(page, ask)).to_be_in_viewport()
    expect(bar).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_one_button_a_row_over_the_whole_width(
    browser: Browser, site: Site, turn: Turn, scheme: Any
) -> None:
    ask = new_id()
    turn.asks(ask, rule="make all", command="make " + "very-long-target" * 20)
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    opened(page, site, turn.notebook)
    boxes = [button.bounding_box() for button in steady(page, ask).locator(".acts button").all()]
    assert len({round(box["y"]) for box in boxes if box}) == len(boxes) == 5
    assert all(box and box["width"] > 300 and box["height"] >= 44 for box in boxes)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()


def test_the_inbox_shows_all_that_waits_and_takes_the_answer(page: Page, site: Site) -> None:
    one, two = Turn(site, title="First of two"), Turn(site, title="Second of two")
    asks = new_id(), new_id()
    one.asks(asks[0])
    page.goto(f"{site.address}/inbox")
    expect(card(page, asks[0])).to_be_visible()
    two.asks(asks[1])
    expect(card(page, asks[1])).to_be_visible()
    expect(page.get_by_role("link", name="Second of two")).to_be_visible()
    before = int(page.get_by_test_id("inbox-count").get_attribute("data-count") or 0)
    steady(page, asks[1]).get_by_test_id("ask-approve").click()
    expect(card(page, asks[1])).to_contain_text("Approved by owner")
    one.decides(asks[0], "deny", by="Mia")
    expect(card(page, asks[0])).to_contain_text("Denied by Mia")
    eventually(page, lambda: page.title() == (f"({before - 2}) " if before > 2 else "") + "Inbox · Nightbook")
    page.reload()
    expect(card(page, asks[0])).to_have_count(0)


def test_a_link_to_a_question_leads_to_it(page: Page, site: Site) -> None:
    notebook = site.notebook(*[("markdown", "word " * 900)] * 3, ("agent", "Do it"))
    site.start(notebook, "c3", "r3")
    ask = new_id()
    place = {"cell_id": "c3", "run_id": "r3"}
    body = {"tool": "shell", "title": "Run make", "command": "make", "seconds": 300}
    site.write((notebook, "ask", {**place, "ask": ask, "call": "x", **body}))
    page.goto(f"{site.address}/inbox")
    page.locator(f"a[href$='#ask-{ask}']").click()
    expect(card(page, ask)).to_be_focused()
    expect(card(page, ask)).to_be_in_viewport()


def test_how_many_wait_is_in_every_head_and_title(page: Page, site: Site, turn: Turn) -> None:
    ask = new_id()
    other = site.notebook(("python", "x"), title="Calm")
    turn.asks(ask)
    for address, title in ((site.address, "Nightbook"), (f"{site.address}/n/{other}", "Calm · Nightbook")):
        page.goto(address)
        count = page.locator("[data-testid=inbox-count].wait")
        expect(count).to_be_visible()
        number = count.get_attribute("data-count")
        eventually(page, lambda number=number, title=title: page.title() == f"({number}) {title}")
    before = int(number or 0)
    turn.decides(ask, "deny")
    expect(page.get_by_test_id("inbox-count")).to_have_attribute("data-count", str(before - 1))


def test_a_browser_tells_who_asked_for_it_and_looks_elsewhere(browser: Browser, site: Site, turn: Turn) -> None:
    context = browser.new_context()
    context.grant_permissions(["notifications"], origin=site.address)
    page = context.new_page()
    page.add_init_script("""window.told = [];
        window.Notification = class { constructor(title, more) { window.told.push([title, more.body]); } };
        window.Notification.permission = 'granted';
        window.Notification.requestPermission = async () => 'granted';
        document.hasFocus = () => !window.elsewhere;""")
    page.goto(f"{site.address}/inbox")
    first, second, third = new_id(), new_id(), new_id()
    page.get_by_test_id("tell-me").wait_for()
    page.evaluate("window.elsewhere = true")
    turn.asks(first)
    expect(card(page, first)).to_be_visible()
    assert page.evaluate("window.told") == []
    page.get_by_test_id("tell-me").click()
    expect(page.get_by_test_id("tell-me-not")).to_be_visible()
    turn.asks(second, call="y")
    expect(card(page, second)).to_be_visible()
    assert page.evaluate("window.told") == [["T asks you", "Run make"]]
    page.evaluate("window.elsewhere = false")
    turn.asks(third, call="z")
    expect(card(page, third)).to_be_visible()
    assert len(page.evaluate("window.told")) == 1
    context.close()


def test_an_empty_inbox_says_so(page: Page, site: Site) -> None:
    site.call("POST", "/silence")
    page.goto(f"{site.address}/inbox")
    expect(page.get_by_role("heading", name="Nothing waits for you")).to_be_visible()


def test_the_policy_is_always_in_sight_and_changes_by_choice(page: Page, site: Site, turn: Turn) -> None:
    rule = {"id": "u1", "tool": "shell", "words": ["git", "status"], "title": "git status"}
    site.write((turn.notebook, "session", {"event": "rule", "rule": rule}))
    opened(page, site, turn.notebook)
    chip = page.get_by_test_id("policy")
    expect(chip).to_contain_text("Asks before it acts, 1 rule")
    chip.click()
    page.get_by_test_id("policy-edits").check()
    eventually(page, lambda: [said for said in site.commands("set_policy") if said["policy"] == "edits"])
    page.get_by_role("button", name="Remove the rule for git status").click()
    eventually(page, lambda: [said for said in site.commands("remove_rule") if said["rule"] == "u1"])
    site.write((turn.notebook, "session", {"event": "policy", "policy": "all"}))
    expect(chip).to_contain_text("Acts freely")
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("policy-panel")).to_have_count(0)
    expect(chip).to_be_focused()
