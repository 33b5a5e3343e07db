"""Turns by HTTP and server-sent events alone: what a page can do, a program can do."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from e2e.api import Api, Notebook
from e2e.pages import Visitor
from e2e.scale import DESERTED
from e2e.waiting import pass_time

FENCE = "```"
TEN = f"""
First the list, then the work.

{FENCE}check [ ] written
{FENCE}
{FENCE}progress On it
{FENCE}
{FENCE}write notes.txt
one
{FENCE}
{FENCE}read notes.txt
{FENCE}
The first of two commands that a person must allow.

{FENCE}sh
echo two >> notes.txt
{FENCE}
{FENCE}edit notes.txt
<<<<<<<
one
=======
1
>>>>>>>
{FENCE}
{FENCE}wait 0.2
{FENCE}
{FENCE}sh
echo three >> notes.txt; cat notes.txt
{FENCE}
{FENCE}check written
{FENCE}
{FENCE}deliver notes.txt
All ten steps are done.
{FENCE}
"""


@contextlib.contextmanager
def stream(client: httpx.Client, notebook: Notebook, after: int) -> Iterator[Iterator[dict[str, Any]]]:
    """The frames behind `after`, as they come; who reads them may decide."""
    path = f"/api/v1/notebooks/{notebook.id}/frames"
    with client.stream("GET", path, params={"after": after, "operator": True}, timeout=30) as answer:
        assert answer.status_code == 200

        def frames() -> Iterator[dict[str, Any]]:
            event = ""
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if name == "event":
                    event = value
                elif name == "data" and event == "frame":
                    yield json.loads(value)

        yield frames()


def approve(client: httpx.Client, ask_id: str) -> httpx.Response:
    return client.post(f"/api/v1/asks/{ask_id}", json={"verdict": "approve", "scope": "once"})


def test_ten_steps_two_of_them_asking_over_cut_streams(api: Api) -> None:
    """Each stream is left at an ask, answered twice as by a double click, and taken up again behind what was read."""
    notebook = api.notebook(("agent", TEN))
    [cell] = notebook.cells
    notebook.ask("set_policy", policy="edits")
    notebook.run(cell)
    seen: list[dict[str, Any]] = []
    asked = 0
    over = False
    while not over:
        with stream(api.client, notebook, seen[-1]["seq"] if seen else 0) as frames:
            for frame in frames:
                seen.append(frame)
                if frame["kind"] == "ask":
                    break
                if frame["kind"] == "run" and frame["body"]["event"] == "ended" and frame["cell_id"] == cell:
                    over = frame["run_id"] == notebook.cell(cell)["run_id"]
                    if over:
                        break
        if not over:
            asked += 1
            first, second = approve(api.client, seen[-1]["body"]["ask"]), approve(api.client, seen[-1]["body"]["ask"])
            assert (first.status_code, second.status_code) == (200, 200)
            assert first.json()["decided_at"] == second.json()["decided_at"]
    assert asked == 2
    assert [frame["seq"] for frame in seen] == list(range(1, len(seen) + 1)), "no frame twice, none missing"
    ended = seen[-1]["body"]
    assert ended["status"] == "done"
    story = notebook.cell(cell)["story"]
    assert [item["status"] for item in story["items"] if item["t"] == "tool"] == ["done"] * 10
    assert [item["verdict"] for item in story["items"] if item["t"] == "ask"] == ["approve"] * 2
    assert [item["text"] for item in story["items"] if item["t"] == "delivered"] == ["All ten steps are done."]
    view = notebook.view()
    assert view["checks"] == {"written": True}
    assert notebook.file("notes.txt") == "1\ntwo\nthree\n"
    order = [frame["kind"] for frame in seen if frame["cell_id"] == cell]
    assert order[-2:] == ["done", "run"]


@pytest.mark.timeout(400)
def test_a_turn_works_with_no_viewer_at_all_and_is_replayed_whole(api: Api, visit: Callable[..., Visitor]) -> None:
    steps = 10
    pause = DESERTED / steps * 0.8
    parts = [
        f"Step {number} begins.\n\n{FENCE}wait {pause}\n{FENCE}\n{FENCE}sh\necho {number} | tee -a log\n{FENCE}"
        for number in range(1, steps + 1)
    ]
    notebook = api.notebook(("agent", "\n\n".join(parts)))
    [cell] = notebook.cells
    notebook.ask("set_policy", policy="all")
    notebook.run(cell)
    pass_time(DESERTED, "nobody asks, reads or looks")
    notebook.wait(cell, "done", seconds=60)
    seen: list[dict[str, Any]] = []
    with stream(api.client, notebook, 0) as frames:
        for frame in frames:
            seen.append(frame)
            if frame["kind"] == "done":
                break
    assert [frame["seq"] for frame in seen] == list(range(1, len(seen) + 1))
    said = "".join(frame["body"]["text"] for frame in seen if frame["kind"] == "thought")
    assert all(f"Step {number} begins." in said for number in range(1, steps + 1))
    results = [frame["body"] for frame in seen if frame["kind"] == "tool" and frame["body"]["event"] == "result"]
    assert [body["status"] for body in results] == ["done"] * 2 * steps
    page = visit().open(notebook)
    expect(page.cell(cell)).to_contain_text(f"Step {steps} begins.")
    assert page.state(cell) == "done"


@pytest.mark.parametrize("verdict", ["deny", "approve"])
def test_an_answer_to_an_ask_that_is_gone_is_told_what_became_of_it(api: Api, verdict: str) -> None:
    notebook = api.notebook(("agent", f"{FENCE}sh\ntouch made\n{FENCE}"))
    [cell] = notebook.cells
    notebook.run(cell)
    notebook.wait(cell, "waiting")
    [ask] = [item for item in notebook.cell(cell)["story"]["items"] if item["t"] == "ask"]
    notebook.ask("stop", cell_id=cell)
    assert notebook.wait(cell)["state"] == "cancelled"
    answer = api.client.post(f"/api/v1/asks/{ask['ask']}", json={"verdict": verdict})
    assert answer.status_code == 409, answer.text
    assert "cancelled" in answer.text
    assert notebook.file("made") == "(no such file)"
