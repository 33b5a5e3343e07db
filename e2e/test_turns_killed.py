"""Turns under kill -9, at named points and at random ones: nothing is done twice, nothing silently left out.

Killed is the half of the server that runs turns; the half that answers stays, so that a test sees what it wants. The
sandboxes outlive it, as they do in real life; what a call did while no worker lived is found again in their record.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import dying
from e2e.api import Api, Notebook
from e2e.scale import SOAK, TURN_KILLS
from e2e.server import Server
from e2e.waiting import pass_time, until

pytestmark = pytest.mark.own_machine("the server is killed")

FENCE = "```"
LIMITS = {"POLL_SECONDS": 1, "APPROVAL_SECONDS": 120, "OPERATOR_GRACE_SECONDS": 120}


@pytest.fixture(scope="module")
def web() -> Iterator[Server]:
    """The half that answers requests; it lives through all deaths of the other."""
    with tempfile.TemporaryDirectory(prefix="nightbook-e2e-") as folder:
        server = Server(Path(folder) / "data", "web", **LIMITS)
        try:
            server.start()
            yield server
        finally:
            server.stop_all()
        assert server.left_behind() == []


@pytest.fixture(scope="module")
def worker(web: Server) -> Iterator[Server]:
    server = Server(web.data, "worker", launch=("-m", "e2e.dying"), **LIMITS)
    yield server
    if server.running:
        server.terminate()


@pytest.fixture
def weak(worker: Server) -> Server:
    """The half that runs turns, and dies where it is told to."""
    (worker.data / dying.FILE).unlink(missing_ok=True)
    if not worker.running:
        worker.start()
    return worker


@pytest.fixture
def hand(web: Server) -> Iterator[Api]:
    client = Api(web.url, web.token)
    yield client
    client.close()


def steps(count: int, pause: float, log: str = "log") -> str:
    """A runbook that appends one line per step, through calls that can be found out about but not repeated."""
    parts = []
    for number in range(1, count + 1):
        parts.append(f"Now line {number}, of {count} in all. It is appended by a call of its own.")
        if number % 5:
            parts.append(f"{FENCE}sh\necho {number} >> {log}; sleep {pause}\n{FENCE}")
        else:
            parts.append(f"{FENCE}python\nprint(open({log!r}, 'a').write('{number}\\n'))\n{FENCE}")
    return "\n\n".join(parts)


def story(notebook: Notebook, cell_id: str, t: str) -> list[dict[str, Any]]:
    return [item for item in notebook.cell(cell_id)["story"]["items"] if item["t"] == t]


def lines(server: Server, notebook: Notebook, log: str = "log") -> list[str]:
    file = server.data / "workspaces" / notebook.id / log
    return file.read_text().split() if file.exists() else []


def whole(notebook: Notebook) -> None:
    """Numbers without gaps; every run and every call ended exactly once."""
    frames = notebook.frames()
    assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))
    runs = [frame for frame in frames if frame["kind"] == "run"]
    begun = sorted(frame["run_id"] for frame in runs if frame["body"]["event"] == "queued")
    assert begun == sorted(frame["run_id"] for frame in runs if frame["body"]["event"] == "ended")
    calls = [frame["body"] for frame in frames if frame["kind"] == "tool"]
    made = sorted(body["call"] for body in calls if body["event"] == "call")
    assert made == sorted(body["call"] for body in calls if body["event"] == "result")
    assert len(set(made)) == len(made)
    asked = [frame["body"]["ask"] for frame in frames if frame["kind"] == "ask" and not frame["body"].get("parked")]
    assert sorted(asked) == sorted(frame["body"]["ask"] for frame in frames if frame["kind"] == "verdict")


def pending(api: Api, notebook: Notebook) -> str:
    """The id of the one ask that waits in a notebook."""

    def found() -> str | None:
        asks = api.client.get("/api/v1/asks").json()
        return next((ask["id"] for ask in asks if ask["notebook_id"] == notebook.id), None)

    return until(found, f"{notebook} asks", 30)


@pytest.mark.parametrize("point", dying.POINTS)
def test_killed_at(point: str, weak: Server, hand: Api) -> None:
    asks = point in (dying.ASKED, dying.PARKED)
    notebook = hand.notebook(("agent", steps(2, 0.05)))
    [cell] = notebook.cells
    if not asks:
        notebook.ask("set_policy", policy="all")
    (weak.data / dying.FILE).write_text(point)
    notebook.run(cell)
    if point == dying.PARKED:
        answer = hand.client.post(f"/api/v1/asks/{pending(hand, notebook)}/park")
        assert answer.status_code == 200, answer.text
    until(lambda: not weak.running, f"the server dies at {point}", 30)
    weak.start()
    for number in (1, 2) if asks else ():
        ask_id = pending(hand, notebook)
        answer = hand.client.post(f"/api/v1/asks/{ask_id}", json={"verdict": "approve"})
        assert answer.status_code == 200, answer.text
        until(lambda ran=number: len(lines(weak, notebook)) >= ran, f"{ask_id} runs", 30)
    assert notebook.wait(cell, seconds=40)["state"] == "done"
    assert lines(weak, notebook) == ["1", "2"]
    assert [item["status"] for item in story(notebook, cell, "tool")] == ["done", "done"]
    retried = [frame for frame in notebook.runs() if frame["body"]["event"] == "retrying"]
    assert len(retried) == (point == dying.THINKING)
    whole(notebook)


def test_killed_at_random_moments(weak: Server, hand: Api, record_property: Any) -> None:
    """Every line exactly once, or a person is told "unknown"; no run is stuck."""
    seed = int(os.environ.get("NIGHTBOOK_SEED", random.SystemRandom().randrange(10**6)))
    print(f"NIGHTBOOK_SEED={seed}")
    chance = random.Random(seed)
    count, pause = (60, 0.1) if SOAK else (14, 0.1)
    kills = once = unknown = 0
    while kills < TURN_KILLS:
        notebook = hand.notebook(("agent", steps(count, pause)))
        [cell] = notebook.cells
        notebook.ask("set_policy", policy="all")
        notebook.run(cell)
        while kills < TURN_KILLS:
            pass_time(chance.uniform(0.0, 0.9), "it works")
            if notebook.cell(cell)["state"] in ("done", "error"):
                break
            weak.kill()
            kills += 1
            weak.start()
        assert notebook.wait(cell, seconds=150)["state"] in ("done", "error")
        told = [item["status"] for item in story(notebook, cell, "tool")]
        written = lines(weak, notebook)
        assert len(written) == len(set(written)), f"twice: {written}"
        unknown += told.count("unknown")
        once += told.count("done")
        assert set(told) <= {"done", "unknown"}
        if "unknown" not in told:
            assert written == [str(number) for number in range(1, count + 1)]
        whole(notebook)
    print(f"{kills} kills: {once} lines exactly once, {unknown} told as unknown")
    record_property("once", once)
