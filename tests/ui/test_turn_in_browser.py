"""A turn in a real browser: everything it does can be read as it happens, and a person can take part."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, expect

from tests.ui.conftest import Site
from tests.ui.test_output_in_browser import opened
from tests.ui.test_page_in_browser import eventually
from tests.ui.turns import Turn


def said(site: Site, turn: Turn, kind: str) -> list[dict[str, Any]]:
    return [command for command in site.commands(kind) if command.get("cell_id") == "c0"]


def test_thoughts_are_open_while_they_come_and_folded_after(page: Page, site: Site) -> None:
    turn = Turn(site)
    opened(page, site, turn.notebook)
    turn.tells("thought", round=1, text="First line.\n", thinking=True)
    turn.tells("thought", round=1, text="Second line.", thinking=True)
    thought = page.locator(".thought")
    expect(thought).to_contain_text("Second line.")
    turn.calls("x", "Run make")
    expect(thought).to_contain_text("First line.")
    expect(thought).not_to_contain_text("Second line.")
    thought.get_by_role("button", name="All of the thought").click()
    expect(thought).to_contain_text("Second line.")


def test_a_call_is_one_line_that_opens_to_what_went_in_and_came_out(page: Page, site: Site) -> None:
    turn = Turn(site)
    opened(page, site, turn.notebook)
    turn.calls("x", "Edit a.txt", tool="edit_file", arguments={"path": "a.txt"})
    call = page.locator("[data-call=x]")
    expect(call).to_contain_text("next")
    turn.tells("tool", event="begun", call="x", output="sub")
    expect(call).to_contain_text("running")
    site.write((turn.notebook, "file", {"path": "a.txt", "version": 3, "bytes": 10, "call": "x"}))
    turn.ends_call("x", text="2 lines changed", diff="--- a\n+++ b\n-old\n+new", ms=1200)
    expect(call).to_contain_text("1.2 s")
    expect(call).to_contain_text("done")
    expect(call.get_by_role("link", name="a.txt v3")).to_be_visible()
    expect(call).not_to_contain_text("2 lines changed")
    call.get_by_role("button").click()
    expect(call).to_contain_text("2 lines changed")
    expect(call.locator(".diff .added")).to_contain_text("+new")
    turn.calls("y", "Fail")
    turn.ends_call("y", "unknown")
    expect(page.locator("[data-call=y]")).to_contain_text("outcome unknown")


def test_what_a_running_call_prints_stands_in_its_line(page: Page, site: Site) -> None:
    turn = Turn(site)
    turn.calls("x")
    turn.tells("run", event="queued", run_id="sub", parent="r0", kind="shell")
    turn.tells("tool", event="begun", call="x", output="sub")
    opened(page, site, turn.notebook)
    turn.tells("output", run_id="sub", text="half way\n" * 200, stream="stdout")
    live = page.get_by_test_id("call-output")
    expect(live).to_contain_text("half way")
    assert live.evaluate(
        "node => node.clientHeight <= 170 && node.scrollTop + node.clientHeight >= node.scrollHeight - 24"
    )
    page.reload()
    expect(live).to_contain_text("half way")
    turn.ends_call("x", text="half way")
    expect(live).to_be_hidden()


def test_a_message_goes_in_waits_and_can_be_taken_back(page: Page, site: Site) -> None:
    turn = Turn(site)
    opened(page, site, turn.notebook)
    field = page.get_by_test_id("turn-say")
    expect(field).to_have_attribute("placeholder", "Add to it…")
    field.fill("Mind the gap")
    page.reload()
    expect(field).to_have_value("Mind the gap")
    field.press("Enter")
    [sent] = eventually(page, lambda: said(site, turn, "follow_up")[-1:])
    assert sent["text"] == "Mind the gap"
    expect(field).to_have_value("")
    turn.tells("message", event="queued", message=sent["id"], text="Mind the gap", by="owner")
    row = page.locator(f"[data-message='{sent['id']}']")
    expect(row).to_contain_text("goes in at the next round")
    row.get_by_role("button", name="Take back").click()
    eventually(page, lambda: [it for it in site.commands("withdraw") if it["message"] == sent["id"]])
    turn.tells("message", event="withdrawn", message=sent["id"])
    expect(row).to_contain_text("taken back")
    field.fill("Refused")
    field.press("Enter")
    [refused] = eventually(page, lambda: [it for it in said(site, turn, "follow_up") if it["text"] == "Refused"])
    site.write((turn.notebook, "refused", {"command": refused["id"], "reason": "no", "cell_id": "c0"}))
    expect(field).to_have_value("Refused")


def test_after_the_end_one_replies_and_a_question_is_answered(page: Page, site: Site) -> None:
    turn = Turn(site)
    turn.tells("done", rounds=3, calls=7, ms=61000)
    turn.ends()
    opened(page, site, turn.notebook)
    expect(page.get_by_test_id("turn-done")).to_contain_text("3 rounds · 7 calls · 01:01 of work")
    page.get_by_test_id("turn-say").fill("And now?")
    page.get_by_test_id("turn-say").press("Enter")
    eventually(page, lambda: [it for it in said(site, turn, "follow_up") if it["text"] == "And now?"])
    asking = Turn(site)
    asking.calls("q", "Which week?", tool="ask_person")
    asking.ends_call("q", text="Which week, 47 or 48?")
    asking.ends(waits_for="answer")
    opened(page, site, asking.notebook)
    expect(page.get_by_test_id("turn-question")).to_contain_text("Which week, 47 or 48?")
    expect(page.locator(".head .chip.wait", has_text="1 waits for you")).to_be_visible()
    page.get_by_test_id("turn-answer").fill("48")
    page.get_by_role("button", name="Answer").click()
    eventually(page, lambda: [it for it in site.commands("answer_turn") if it["text"] == "48"])


def test_a_turn_that_waits_for_its_place_takes_messages(page: Page, site: Site) -> None:
    notebook = site.notebook(("agent", "Do it"))
    opened(page, site, notebook)
    place = {"cell_id": "c0", "run_id": "r0"}
    site.write((notebook, "run", {"event": "queued", **place}))
    expect(page.get_by_test_id("turn-say")).to_be_visible()
    site.write((notebook, "message", {"event": "queued", "message": "m1", "text": "Mind the gap", **place}))
    for _ in range(2):
        expect(page.locator("[data-message=m1]")).to_contain_text("Mind the gap")
        page.reload()


def test_an_error_leads_to_its_line(page: Page, site: Site) -> None:
    turn = Turn(site, source="do it\n\n```sh\nls\n```")
    turn.tells("error", reason="unknown block", step=2, line=3)
    turn.tells("error", reason="nobody here reads plain words, so nothing was done " * 3, settings=True)
    turn.ends("error", reason="unknown block")
    opened(page, site, turn.notebook)
    expect(page.locator(".failure").first).to_contain_text("Step 2, line 3: unknown block")
    expect(page.get_by_test_id("error-settings")).to_have_attribute("href", "/settings")
    wide = "document.querySelectorAll('.failure')[1].firstElementChild.offsetWidth"
    assert page.evaluate(f"{wide} > .7 * document.querySelectorAll('.failure')[1].offsetWidth")
    page.get_by_role("button", name="Show line 3").click()
    expect(page.get_by_test_id("cell").locator(".cm-activeLine, textarea:focus, .cm-focused").first).to_be_visible()


def test_stopping_is_asked_by_run_and_told_until_it_is_true(page: Page, site: Site) -> None:
    turn = Turn(site)
    opened(page, site, turn.notebook)
    page.get_by_test_id("cell-stop").click()
    eventually(page, lambda: [it for it in site.commands("stop") if it.get("run_id") == "r0"])
    turn.tells("run", event="cancelling")
    cell = page.get_by_test_id("cell")
    expect(cell).to_have_attribute("data-state", "cancelling")
    expect(cell.locator(".foot")).to_contain_text("Stopping")
    turn.ends("cancelled", reason="stopped")
    expect(cell).to_have_attribute("data-state", "cancelled")


def test_a_turn_shows_how_far_its_bounds_are_used_up(page: Page, site: Site) -> None:
    turn = Turn(site)
    turn.tells("run", event="round", round=3, rounds=50, seconds=430.0)
    turn.tells("progress", text="Fitting", fraction=0.5)
    opened(page, site, turn.notebook)
    expect(page.get_by_test_id("turn-budget")).to_contain_text("Round 3 of 50 · 7:")
    expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "50")


def test_a_long_story_opens_and_says_what_it_left_out(page: Page, site: Site) -> None:
    turn = Turn(site)
    frames: list[tuple[str, str, dict[str, Any]]] = []
    for number in range(500):
        place = {"cell_id": "c0", "run_id": "r0", "call": f"k{number}"}
        call = {"event": "call", "tool": "shell", "title": f"Step {number}", "round": 1}
        frames.append((turn.notebook, "tool", {**place, **call}))
        frames.append((turn.notebook, "tool", {**place, "event": "result", "status": "done", "text": "x" * 2000}))
    site.write(*frames)
    opened(page, site, turn.notebook)
    expect(page.locator("[data-call]")).to_have_count(400)
    expect(page.get_by_test_id("turn")).to_contain_text("101 earlier steps are not shown here")
    turn.calls("last", "One more")
    expect(page.locator("[data-call]").last).to_contain_text("One more")
    expect(page.locator("[data-call]")).to_have_count(400)


def test_files_and_the_checklist_stand_in_the_rail(page: Page, site: Site) -> None:
    turn = Turn(site)
    write = lambda kind, **fields: site.write((turn.notebook, kind, fields))  # noqa: E731
    write("check", item="Load the week", done=True)
    write("check", item="Open the pull request")
    write("file", path="notes/a b.txt", version=2, bytes=12, mime="text/plain", by="agent")
    write("file", path="big.parquet", bytes=1, skipped="over 64 MiB")
    address = f"**/api/v1/notebooks/{turn.notebook}/files"
    versions = [{"version": 2, "bytes": 12, "deleted": False}, {"version": 1, "bytes": 3, "deleted": False}]
    page.route(f"{address}?path=*", lambda route: route.fulfill(json={"files": versions}))
    page.route(
        f"{address}/notes/a%20b.txt?version=*", lambda route: route.fulfill(body=f"text of {route.request.url[-1]}")
    )
    put: list[str] = []
    page.route(f"{address}/up.txt?id=*", lambda route: (put.append(route.request.method), route.fulfill(json={})))
    opened(page, site, turn.notebook)
    files = page.get_by_test_id("files")
    expect(files).to_contain_text("Not kept: over 64 MiB")
    files.get_by_role("button", name="notes/a b.txt").click()
    expect(files.get_by_test_id("file-open")).to_contain_text("text of 2")
    files.get_by_test_id("file-version").select_option("1")
    expect(files.get_by_test_id("file-open")).to_contain_text("text of 1")
    files.get_by_test_id("file-pick").set_input_files({"name": "up.txt", "mimeType": "text/plain", "buffer": b"up"})
    eventually(page, lambda: put == ["PUT"])
    page.get_by_test_id("checklist").get_by_label("Open the pull request").check()
    eventually(page, lambda: [it for it in site.commands("check") if it["done"] and it["item"].startswith("Open")])
    write("file", path="notes/a b.txt", version=3, deleted=True)
    expect(files.get_by_role("button", name="notes/a b.txt")).to_have_count(0)


def test_an_agent_cell_is_added_with_words_that_say_what_it_takes(page: Page, site: Site) -> None:
    notebook = site.notebook()
    page.goto(f"{site.address}/n/{notebook}")
    page.get_by_test_id("cell-add-agent").click()
    cell = page.locator("[data-testid=cell][data-kind=agent]")
    expect(cell).to_be_visible()
    expect(cell).to_contain_text("What should be done? Markdown; fenced blocks run as steps")


def test_a_turn_that_ended_at_a_step_goes_on_there(page: Page, site: Site) -> None:
    turn = Turn(site)
    opened(page, site, turn.notebook)
    again = page.get_by_test_id("turn-go-on")
    turn.calls("x")
    turn.ends_call("x", "error", text="boom")
    turn.tells("error", reason="step 2 (sh, line 9) failed: boom", step=2, line=9)
    expect(page.locator(".failure")).to_contain_text("Step 2 (sh, line 9) failed: boom")
    expect(again).to_have_count(0)
    turn.ends("error", step=2)
    expect(again).to_have_text("Go on at step 2")
    again.click()
    eventually(page, lambda: said(site, turn, "go_on"))
    expect(again).to_be_disabled()


def test_a_step_that_was_denied_is_approved_by_going_on_and_the_timeline_says_who_denied(
    page: Page, site: Site
) -> None:
    for reason, by, offered, told in [
        ("person", "owner", "Approve step 1 after all, and go on", "Denied by you"),
        ("no_operator", None, None, "Denied itself, nobody was here"),
    ]:
        turn = Turn(site)
        opened(page, site, turn.notebook)
        turn.asks(f"q-{reason}")
        turn.decides(f"q-{reason}", "deny", reason, by=by)
        turn.ends("error", step=1)
        if offered:
            expect(page.get_by_test_id("turn-go-on")).to_have_text(offered)
        else:
            expect(page.get_by_test_id("ask-reconsider")).to_be_visible()
            expect(page.get_by_test_id("turn-go-on")).to_have_count(0)
        expect(page.get_by_test_id("timeline")).to_contain_text(told)
