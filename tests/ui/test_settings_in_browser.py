"""The settings, and the line of an agent cell: which model replies, which there are, and what each place answers."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, expect

from tests.engine.agent.models.spoken import Provider, refusal
from tests.engine.agent.models.test_protocols import error_body
from tests.ui.conftest import Site
from tests.ui.test_attach_in_browser import source
from tests.ui.test_output_in_browser import opened
from tests.ui.test_page_in_browser import eventually

FIRST = 40_000  # milliseconds: what speaks to a place is imported when it is asked first


def chosen(site: Site) -> Any:
    return site.call("GET", "/api/v1/models")["chosen"]


def test_the_team_chooses_by_keys_from_what_a_place_answers(page: Page, site: Site, models: Provider) -> None:
    page.goto(site.address)
    page.get_by_test_id("home-settings").click()
    expect(page.get_by_test_id("model-now")).to_have_text("runbook")
    found = page.get_by_test_id("said-ollama")  # on this machine: found without a click
    expect(found).to_contain_text("It answers, with 2 models:", timeout=FIRST)
    bearer = [asked.headers.get("authorization") for asked in models.asked]
    assert "secret" not in str(page.content())
    assert not any("secret" in str(one) for one in bearer)  # the key of another place
    found.get_by_role("button", name="Use small").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("model-said")).to_have_text("ollama:small replies from now on.")
    expect(page.get_by_test_id("model-now")).to_have_text("ollama:small")
    assert chosen(site) == "ollama:small"
    name = page.get_by_test_id("model-name")
    name.fill("nowhere:x")
    name.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("there is no model 'nowhere:x'")
    expect(name).to_have_value("nowhere:x")
    page.get_by_test_id("model-default").click()
    expect(page.get_by_test_id("model-now")).to_have_text("runbook")
    assert chosen(site) is None


def test_what_is_wrong_with_a_place_is_said_and_nothing_is_lost_on_a_phone(
    page: Page, site: Site, models: Provider
) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    before, models.script = models.script, lambda _: refusal(401, error_body("anthropic", "authentication_error", "no"))
    try:
        page.goto(f"{site.address}/settings")
        for place in ("anthropic", "ollama"):  # on this machine, so they are asked without a click
            expect(page.get_by_test_id(f"try-{place}")).to_be_enabled(timeout=FIRST)
            expect(page.get_by_test_id(f"said-{place}")).to_be_visible(timeout=FIRST)
        page.get_by_test_id("try-anthropic").click()
        expect(page.get_by_test_id("said-anthropic")).to_contain_text(
            "refuses the key of ANTHROPIC_API_KEY", timeout=FIRST
        )
        models.script = lambda _: refusal(200, "<h1>Log in to the hotel</h1>")
        page.get_by_test_id("try-ollama").click()
        expect(page.get_by_test_id("said-ollama")).not_to_contain_text("It answers")
        expect(page.get_by_test_id("said-ollama").locator(".failure")).to_be_visible()
        models.script = lambda _: refusal(200, {"data": []})
        page.get_by_test_id("try-ollama").click()
        expect(page.get_by_test_id("said-ollama")).to_have_text("It answers, and has no model yet.")
        page.get_by_test_id("try-openai").click()
        expect(page.get_by_test_id("said-openai")).to_contain_text("set OPENAI_API_KEY in the environment")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    finally:
        models.script = before


def test_settings_that_cannot_be_read_say_so_and_are_tried_again(page: Page, site: Site) -> None:
    page.route("**/api/v1/models", lambda route: route.fulfill(status=503, json={"detail": "the database is away"}))
    page.goto(f"{site.address}/settings")
    expect(page.get_by_role("alert")).to_contain_text("The settings cannot be read: the database is away.")
    page.unroute("**/api/v1/models")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_test_id("model-now")).to_have_text("runbook")


def test_who_has_no_place_yet_is_told_what_to_do(page: Page, site: Site) -> None:
    known = site.call("GET", "/api/v1/models")
    places = [{**place, "key": False, "ready": place["id"] == "ollama"} for place in known["places"]]
    page.route("**/api/v1/models", lambda route: route.fulfill(json={**known, "places": places}))
    page.route(
        "**/api/v1/models/ollama/try",
        lambda route: route.fulfill(json={"models": [], "error": "nothing answers at http://127.0.0.1:11434"}),
    )
    page.goto(f"{site.address}/settings")
    expect(page.get_by_test_id("model-nowhere")).to_contain_text("start Ollama on this machine")
    said = page.get_by_test_id("said-ollama")
    expect(said).to_contain_text("nothing answers")
    expect(said.locator(".failure")).to_have_count(0)  # nobody pressed for it
    page.get_by_test_id("try-ollama").click()
    expect(said.locator(".failure")).to_contain_text("nothing answers")
    expect(page.get_by_test_id("model-now")).to_have_text("runbook")


def test_a_notebook_chooses_its_model_in_the_line_of_an_agent_cell(page: Page, site: Site) -> None:
    notebook = site.notebook(("agent", "Say hello"))
    opened(page, site, notebook)
    pick = page.get_by_test_id("model-pick")
    expect(pick).to_contain_text("No model")
    none = page.get_by_test_id("model-none")
    expect(none.get_by_role("link")).to_have_attribute("href", "/settings")
    pick.click()
    options = page.get_by_test_id("model-list").get_by_role("option")
    expect(options).to_have_count(6, timeout=FIRST)
    expect(page.get_by_test_id("model-asked")).to_be_focused()
    expect(options.first).to_contain_text("✓ now")
    page.keyboard.type("clau")
    expect(options).to_have_count(2)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(pick).to_contain_text("claude-test")
    expect(pick).to_be_focused()
    expect(none).to_have_count(0)
    eventually(page, lambda: [it for it in site.commands("set_model") if it["model"] == "ollama:claude-test"])
    page.reload()
    expect(pick).to_have_attribute("data-model", "ollama:claude-test")
    pick.click()
    page.get_by_test_id("model-asked").fill("anthropic:not-listed")
    expect(options).to_have_text(["Use anthropic:not-listedas it is written"])
    page.keyboard.press("Escape")
    expect(options).to_have_count(0)
    pick.click()
    page.get_by_test_id("model-asked").fill("nothing like it")
    expect(page.get_by_test_id("model-list")).to_contain_text("No model of that name.")
    page.get_by_test_id("model-asked").fill("team")
    options.first.click()
    expect(pick).to_contain_text("No model")
    expect(source(page)).to_have_text("Say hello")
