"""A program asks for a line: the question waits for whoever comes, and what is typed goes to the program alone."""

from collections.abc import Callable

from playwright.sync_api import expect

from e2e.api import Api
from e2e.cells import LOG, ONCE, asking
from e2e.conftest import Target
from e2e.pages import Visitor
from e2e.scale import AWAY
from e2e.waiting import pass_time

Visit = Callable[..., Visitor]

SECRET = "correct horse battery staple"


def test_input_waits_across_a_close_and_is_answered_by_somebody_else(api: Api, visit: Visit) -> None:
    notebook = api.notebook(("python", asking("input('name? ')")))
    cell_id = notebook.cells[0]
    asker = visit()
    page = asker.open(notebook)
    page.run(cell_id)
    page.wait_state(cell_id, "waiting")
    asker.leave()
    pass_time(AWAY, "the question waits with nobody there")
    page = visit().open(notebook)
    page.wait_state(cell_id, "waiting")
    expect(page.cell(cell_id)).to_contain_text("name?")
    page.answer(cell_id, "Ada Lovelace ≤ 1852")
    page.wait_done(cell_id)
    page.wait_text(cell_id, "got")
    assert page.lines(cell_id) == ["before", "name? Ada Lovelace ≤ 1852", "got 19 characters"]
    assert notebook.file(LOG) == ONCE


def test_a_question_is_answered_once_though_two_answer(api: Api, visit: Visit) -> None:
    notebook = api.notebook(("python", asking("input('first? ')") + "\nprint('second', input('second? '))"))
    cell_id = notebook.cells[0]
    first, second = visit().open(notebook), visit().open(notebook)
    first.run(cell_id)
    second.wait_state(cell_id, "waiting")
    view = notebook.cell(cell_id)
    for text in ("from one", "from the other"):
        notebook.ask("input", run_id=view["run_id"], input=view["input"]["id"], text=text)
    first.wait_text(cell_id, "got 8 characters")
    refused = [frame for frame in notebook.frames() if frame["kind"] == "refused"]
    assert len(refused) == 1
    first.wait_state(cell_id, "waiting")
    first.answer(cell_id, "mine")
    first.wait_done(cell_id)
    assert second.lines(cell_id)[-1] == "second mine"


def test_a_password_reaches_the_program_and_nothing_else(api: Api, visit: Visit, target: Target) -> None:
    """In no frame, on no page, in no view, in no log and in no file of a sandbox."""
    notebook = api.notebook(("python", asking("getpass.getpass('password? ')")))
    cell_id = notebook.cells[0]
    asker = visit()
    asker.open(notebook).run(cell_id)
    notebook.wait(cell_id, "waiting")
    asker.leave()
    page = visit().open(notebook)
    field = page.cell(cell_id).get_by_test_id("input-field")
    expect(field).to_have_attribute("type", "password")
    page.answer(cell_id, SECRET)
    page.wait_done(cell_id)
    page.wait_text(cell_id, "got")
    assert page.lines(cell_id) == ["before", "password? ", f"got {len(SECRET)} characters"]
    assert SECRET not in str(notebook.frames())
    assert SECRET not in str(notebook.view())
    assert SECRET not in page.page.content()
    assert SECRET not in page.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert notebook.file(LOG) == ONCE
    if target.server is not None:
        assert SECRET not in target.server.told()
        kept = [path for path in (target.server.data / "sandboxes").rglob("*") if path.is_file()]
        assert [path for path in kept if SECRET.encode() in path.read_bytes()] == []


def test_a_shell_cell_takes_a_line_while_it_runs(api: Api, visit: Visit) -> None:
    notebook = api.notebook(("shell", 'echo ready; read line; echo "got <$line>"; stty size'))
    cell_id = notebook.cells[0]
    starter = visit()
    page = starter.open(notebook)
    page.run(cell_id)
    page.wait_text(cell_id, "ready")
    starter.leave()
    page = visit().open(notebook)
    page.answer(cell_id, "hello shell")
    page.wait_done(cell_id)
    page.wait_text(cell_id, "got <hello shell>")
    assert [line.strip() for line in page.lines(cell_id)] == ["ready", "hello shell", "got <hello shell>", "40 100"]


def test_what_is_typed_behind_a_click_on_run_is_for_the_program(api: Api, visit: Visit) -> None:
    """As a cell's keys, "y" would make it Python and "xx" would cut it."""
    notebook = api.notebook(("shell", 'printf "Go on? "; read -r line; echo "got <$line>"'), ("shell", "echo next"))
    asker, bystander = notebook.cells
    page = visit().open(notebook)
    page.run(asker)
    expect(page.cell(asker).get_by_test_id("input-field")).to_be_focused()
    page.wait_text(asker, "Go on?")
    page.page.keyboard.type("yxx")
    page.page.keyboard.press("Enter")
    page.wait_done(asker)
    page.wait_text(asker, "got <yxx>")
    expect(page.cell(asker)).to_be_focused()
    page.page.keyboard.press("j")
    expect(page.cell(bystander)).to_be_focused()
    assert [cell["kind"] for cell in notebook.view()["cells"]] == ["shell", "shell"]


def test_a_run_by_key_leaves_the_focus_where_it_is(api: Api, visit: Visit) -> None:
    notebook = api.notebook(("shell", "read -r line"))
    cell_id = notebook.cells[0]
    page = visit().open(notebook)
    page.cell(cell_id).get_by_test_id("cell-run").press("Enter")
    expect(page.cell(cell_id).get_by_test_id("input-field")).to_be_visible()
    stop = page.cell(cell_id).get_by_test_id("cell-stop")
    expect(stop).to_be_focused()
    stop.press("Enter")
    page.wait_state(cell_id, "cancelled")
