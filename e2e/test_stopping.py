"""Stopping is a command, never a side effect of leaving, and means: over, with all that was started."""

import pytest

from e2e.api import Api
from e2e.cells import counted, counting
from e2e.pages import Visitor
from e2e.waiting import until

ENDLESS = """\
import time
print("begun", flush=True)
while True:
    time.sleep(0.1)
"""


def test_stop_right_after_a_reload(api: Api, visitor: Visitor) -> None:
    notebook = api.notebook(("python", ENDLESS))
    page = visitor.open(notebook)
    page.run(notebook.cells[0])
    page.wait_text(notebook.cells[0], "begun")
    page.reload()
    page.stop(notebook.cells[0])
    page.wait_state(notebook.cells[0], "cancelled")
    assert page.lines(notebook.cells[0])[0] == "begun"
    ends = [frame["body"]["status"] for frame in notebook.runs() if frame["body"]["event"] == "ended"]
    assert ends == ["cancelled"]


def test_the_kernel_goes_on_after_a_stop(api: Api, visitor: Visitor) -> None:
    notebook = api.notebook(("python", "kept = 41\n" + ENDLESS), ("python", "print(kept + 1)"))
    page = visitor.open(notebook)
    page.run(notebook.cells[0])
    page.wait_text(notebook.cells[0], "begun")
    page.stop(notebook.cells[0])
    page.wait_state(notebook.cells[0], "cancelled")
    page.run(notebook.cells[1])
    page.wait_done(notebook.cells[1])
    assert page.lines(notebook.cells[1]) == ["42"]


def test_run_all_stops_at_the_first_error(api: Api, visitor: Visitor) -> None:
    notebook = api.notebook(
        ("python", "print('good')"),
        ("markdown", "Between"),
        ("python", "raise ValueError('on purpose')"),
        ("python", "print('never')"),
        ("shell", "echo never"),
    )
    page = visitor.open(notebook)
    page.page.get_by_test_id("run-all").click()
    page.wait_state(notebook.cells[4], "cancelled")
    assert [page.state(cell_id) for cell_id in notebook.cells] == ["done", "idle", "error", "cancelled", "cancelled"]
    page.wait_text(notebook.cells[2], "on purpose")
    assert "never" not in page.text(notebook.cells[3]) + page.text(notebook.cells[4])


def test_stopping_the_first_of_three_stops_what_waits_behind(api: Api, visitor: Visitor) -> None:
    notebook = api.notebook(("python", ENDLESS), ("python", "print('second')"), ("python", "print('third')"))
    page = visitor.open(notebook)
    for cell_id in notebook.cells:
        page.run(cell_id)
    page.wait_text(notebook.cells[0], "begun")
    page.wait_state(notebook.cells[2], "queued")
    page.stop(notebook.cells[0])
    for cell_id in notebook.cells:
        page.wait_state(cell_id, "cancelled")
    started = [frame["cell_id"] for frame in notebook.runs() if frame["body"]["event"] == "started"]
    assert started == [notebook.cells[0]]


def test_stopping_a_queued_cell_leaves_the_running_one(api: Api, visitor: Visitor) -> None:
    notebook = api.notebook(("python", counting(100, 0.03)), ("python", "print('second')"))
    page = visitor.open(notebook)
    for cell_id in notebook.cells:
        page.run(cell_id)
    page.wait_state(notebook.cells[0], "running")
    page.stop(notebook.cells[1])
    page.wait_state(notebook.cells[1], "cancelled")
    assert page.state(notebook.cells[0]) == "running"
    page.wait_done(notebook.cells[0])
    assert page.lines(notebook.cells[0]) == counted(100)


@pytest.mark.parametrize(
    "source",
    [
        "print('begun')\ninput('? ')",
        "import asyncio\nprint('begun')\nawait asyncio.sleep(600)",
        "import time\nprint('begun')\ntime.sleep(600)",
        "class Slow:\n    def _repr_html_(self):\n        import time; time.sleep(600)\nprint('begun')\nSlow()",
    ],
    ids=["input", "await sleep", "time.sleep", "slow repr"],
)
def test_whatever_a_cell_waits_for_it_can_be_stopped(api: Api, source: str) -> None:
    notebook = api.notebook(("python", source), ("python", "print('alive')"))
    notebook.run(notebook.cells[0])
    until(lambda: "begun" in notebook.text(notebook.cells[0]), "the cell has begun")
    notebook.ask("stop", cell_id=notebook.cells[0])
    notebook.wait(notebook.cells[0], "cancelled")
    notebook.run(notebook.cells[1])
    notebook.wait(notebook.cells[1], "done")


def test_a_shell_cell_is_stopped_with_its_children(api: Api, visitor: Visitor) -> None:
    notebook = api.notebook(
        ("shell", "sleep 612 & sleep 613 & echo begun; wait"), ("shell", "ps -eo args | grep -c '[s]leep 61[23]'; true")
    )
    page = visitor.open(notebook)
    page.run(notebook.cells[0])
    page.wait_text(notebook.cells[0], "begun")
    page.stop(notebook.cells[0])
    page.wait_state(notebook.cells[0], "cancelled")
    page.run(notebook.cells[1])
    page.wait_done(notebook.cells[1])
    assert [line.strip() for line in page.lines(notebook.cells[1])] == ["0"]
