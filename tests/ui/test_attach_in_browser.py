"""What a request names: pictures pasted, files dropped, cells and files by @; chips that follow from the text."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.ui.conftest import Site
from tests.ui.test_output_in_browser import opened
from tests.ui.test_page_in_browser import eventually
from tests.ui.turns import Turn

CASES = json.loads((Path(__file__).parents[1] / "mention_cases.json").read_text("utf-8"))
PNG = "iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAIAAACQkWg2AAAAGUlEQVR42mNkYPjPQApgIkn1qIZRDUNKAwBNzgIBc4YwGAAAAABJRU5ErkJggg=="
BRING = """([field, kind, files]) => {
  const node = document.querySelector(`[data-testid=${field}]`); // in one go: an editor may be about to take its place
  const data = new DataTransfer();
  for (const [name, type, body] of files) {
    data.items.add(new File([Uint8Array.from(atob(body), (sign) => sign.charCodeAt(0))], name, { type }));
  }
  const options = { bubbles: true, cancelable: true };
  node.dispatchEvent(kind === "paste" ? new ClipboardEvent("paste", { ...options, clipboardData: data })
    : new DragEvent("drop", { ...options, dataTransfer: data }));
}"""


def brings(page: Page, kind: str, *files: tuple[str, str, bytes], field: str = "cell-source") -> None:
    """Pastes files into a field, or drops them on it."""
    given = [[name, mime, base64.b64encode(data).decode()] for name, mime, data in files]
    page.evaluate(BRING, [field, kind, given])


def source(page: Page, cell: str = "c0") -> Any:
    return page.locator(f"[data-cell-id={cell}] [data-testid=cell-source]")


def test_mentions_are_read_as_the_engine_reads_them(page: Page, site: Site) -> None:
    opened(page, site, site.notebook(("agent", "")))
    read = """async (texts) => {
      const { mentions, named, fileMention, cuts, pieces } = await import("nightbook/mentions.js");
      const back = (path) => {
        const found = mentions(`see ${fileMention(path)}, then`);
        return found.length === 1 && found[0].name === path;
      };
      const paths = ["a.txt", "a b.txt", "a.", "q\\"uote", "line\\nend", "表。", "x)", "dir/_", "back`", "a<b>"];
      return [
        texts.map((text) => named(text).map(({ kind, name }) => [kind, name])),
        paths.filter((path) => !back(path)),
        cuts("a @file:x b @file:x", { kind: "file", name: "x" }),
        pieces("a @file:x.").map(({ text, kind }) => [text, kind ?? null]),
      ];
    }"""
    found, wrong, cuts, pieces = page.evaluate(read, [text for text, _ in CASES])
    assert found == [names for _, names in CASES]
    assert wrong == []
    assert cuts == [{"from": 11, "to": 19}, {"from": 1, "to": 9}]
    assert pieces == [["a ", None], ["@file:x", "file"], [".", None]]


def test_a_pasted_picture_is_kept_named_shown_everywhere_and_taken_out(
    page: Page, site: Site, profile: BrowserContext
) -> None:
    notebook = site.notebook(("agent", "Explain"))
    opened(page, site, notebook)
    source(page).click()
    page.keyboard.press("End")
    brings(page, "paste", ("image.png", "image/png", base64.b64decode(PNG)))
    chip = page.get_by_test_id("attachment")
    expect(chip).to_have_count(1)
    expect(chip.locator("img")).to_be_visible()
    expect(source(page)).to_contain_text("Explain @file:pasted/")
    other = profile.new_page()
    opened(other, site, notebook)
    expect(other.get_by_test_id("attachment").locator("img")).to_be_visible()
    page.reload()
    expect(chip.locator("img")).to_be_visible()
    chip.get_by_role("button", name="Remove").click()
    expect(chip).to_have_count(0)
    expect(source(page)).to_have_text("Explain")
    expect(other.get_by_test_id("attachment")).to_have_count(0)


def test_dropped_files_replace_nothing_and_what_goes_wrong_is_said(page: Page, site: Site) -> None:
    notebook = site.notebook(("agent", "Read"))
    opened(page, site, notebook)
    brings(page, "drop", ("data.csv", "text/csv", b"a,b"))
    chips = page.get_by_test_id("attachment")
    expect(chips).to_have_count(1)
    brings(page, "drop", ("data.csv", "text/csv", b"a,b"), ("data.csv", "text/csv", b"other"))
    expect(source(page)).to_have_text("Read @file:data.csv @file:data.csv @file:data-2.csv")
    expect(chips).to_have_count(2)
    brings(page, "drop", ("new.txt", "text/plain", b"one"), ("new.txt", "text/plain", b"two"))
    expect(source(page)).to_contain_text("@file:new.txt @file:new-2.txt")
    brings(page, "drop", ("full.txt", "text/plain", b"refuse me"))
    failed = page.get_by_test_id("attachment-sending")
    expect(failed).to_contain_text("full.txt")
    expect(failed).to_contain_text("the disk of the server is full")
    failed.get_by_role("button", name="Try again to send full.txt").click()
    expect(failed).to_contain_text("the disk of the server is full")
    failed.get_by_role("button", name="Dismiss full.txt").click()
    expect(failed).to_have_count(0)
    page.get_by_test_id("attach-pick").set_input_files({"name": "b c.txt", "mimeType": "text/plain", "buffer": b"x"})
    expect(source(page)).to_contain_text('@file:"b c.txt"')
    site.write((notebook, "file", {"path": "data.csv", "version": 2, "deleted": True}))
    expect(page.locator(".attachment.gone")).to_contain_text("is not in this notebook's folder")


def test_a_run_asked_for_meanwhile_waits_for_the_file(page: Page, site: Site) -> None:
    notebook = site.notebook(("agent", "Read"))
    opened(page, site, notebook)
    held: list[Any] = []
    page.route("**/files/late.txt*", lambda route: held.append(route))
    brings(page, "drop", ("late.txt", "text/plain", b"late"))
    expect(page.get_by_test_id("attachment-sending")).to_contain_text("late.txt")
    page.get_by_test_id("cell-run").click()
    expect(page.get_by_text("Asked to run")).to_be_visible()
    eventually(page, lambda: held)
    assert site.commands("run_cell") == []
    held[0].continue_()
    expect(source(page)).to_have_text("Read @file:late.txt")
    eventually(page, lambda: site.commands("run_cell"))
    assert " @file:late.txt" in [edit["insert"] for edit in site.commands("edit_cell")]


def test_on_a_phone_the_list_is_opened_and_chosen_from_by_finger(browser: Browser, site: Site) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = context.new_page()
    notebook = site.notebook(("python", "x = 1"), ("agent", "Why"))
    opened(page, site, notebook)
    page.get_by_test_id("attach-mention").tap()
    listed = page.get_by_test_id("mention-list")
    expect(listed.get_by_role("option")).to_have_text(["Cell 1x = 1", "Attach a new file…"])
    box = eventually(page, listed.bounding_box)
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    listed.get_by_role("option").first.tap()
    expect(source(page, "c1")).to_have_text("Why @cell:c0 ")
    expect(source(page, "c1")).to_be_focused()
    page.get_by_role("button", name="Remove Cell 1").tap()
    expect(source(page, "c1")).to_have_text("Why ")
    context.close()


def test_at_opens_a_list_of_cells_and_files_for_keys_and_fingers(page: Page, site: Site) -> None:
    notebook = site.notebook(
        ("python", "import pandas as pd"), ("markdown", "# Results so far"), ("agent", ""), ("shell", "ls data")
    )
    site.write((notebook, "file", {"path": "data/week.csv", "version": 1, "bytes": 3, "mime": "text/csv"}))
    opened(page, site, notebook)
    options = page.get_by_test_id("mention-list").get_by_role("option")
    source(page, "c2").click()
    page.keyboard.type("Why @")
    expect(options).to_have_text(
        ["Cell 2Results so far", "Cell 1import pandas as pd", "Cell 4ls data", "data/week.csv", "Attach a new file…"]
    )
    expect(options.first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")
    expect(options).to_have_count(0)
    expect(source(page, "c2")).to_be_focused()
    page.keyboard.type("pand")
    expect(options).to_have_count(0)
    page.keyboard.press("Backspace")
    for _ in range(4):
        page.keyboard.press("Backspace")
    page.keyboard.type("@pand")
    expect(options).to_have_text(["Cell 1import pandas as pd"])
    page.keyboard.press("Enter")
    page.keyboard.type("and @we")
    expect(options).to_have_text(["data/week.csv"])
    options.first.click()
    expect(source(page, "c2")).to_have_text("Why @cell:c0 and @file:data/week.csv ")
    chips = page.get_by_test_id("attachment")
    expect(chips.first).to_contain_text("Cell 1import pandas as pd")
    page.keyboard.press("Enter")
    page.keyboard.type("```python\n@")
    expect(source(page, "c2")).to_contain_text("@")
    expect(options).to_have_count(0)
    site.write((notebook, "cell", {"event": "deleted", "cell_id": "c0"}))
    expect(chips.first).to_contain_text("is not in this notebook any more")
    expect(chips.first).to_have_class("attachment gone")


def test_a_reply_names_things_too_and_shows_them_as_links(page: Page, site: Site) -> None:
    turn = Turn(site, ("python", "x = 1"))
    opened(page, site, turn.notebook)
    field = page.get_by_test_id("turn-say")
    field.fill("See @")
    options = page.get_by_test_id("mention-list").get_by_role("option")
    expect(options.first).to_have_text("Cell 2x = 1")
    field.press("Enter")
    expect(field).to_have_value("See @cell:c1 ")
    brings(page, "paste", ("image.png", "image/png", base64.b64decode(PNG)), field="turn-say")
    expect(page.get_by_test_id("attachment")).to_have_count(2)
    page.reload()
    expect(page.get_by_test_id("attachment")).to_have_count(2)
    field.press("Enter")
    [sent] = eventually(page, lambda: site.commands("follow_up"))
    assert sent["text"].startswith("See @cell:c1 @file:pasted/")
    turn.tells("message", event="queued", message=sent["id"], text=sent["text"], by="owner")
    row = page.locator("[data-message]")
    expect(row.get_by_role("button", name="Cell 2")).to_be_visible()
    expect(row.get_by_role("link")).to_contain_text("pasted/")
    lost = {"kind": "file", "name": "lost.txt", "problem": "there is no such file in this notebook"}
    named = {"kind": "cell", "name": "c1", "number": 2, "characters": 1200}
    turn.tells("context", event="shown", model="anthropic:x", cells=[], characters=0, mentions=[named, lost])
    saw = page.get_by_test_id("turn-context")
    expect(page.get_by_test_id("turn-lacking")).to_contain_text("@file:lost.txt: there is no such file")
    saw.locator("summary").click()
    expect(saw).to_contain_text("Cell 2, named: 1,200 characters")
    blind = {"kind": "pictures", "name": "1", "problem": "it reads text alone"}
    turn.tells("context", event="attached", model="ollama:small", mentions=[blind])
    expect(saw.last).to_contain_text("ollama:small reads text alone: a picture was only named to it")
