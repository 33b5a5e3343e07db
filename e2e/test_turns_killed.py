"""Turns under kill -9, at named points and at random ones: nothing is done twice, nothing silently left out.

With a model that replies over HTTP also at every event of a reply: a finished one is asked for once, a half one again.

Killed is the half of the server that runs turns; the half that answers stays, so that a test sees what it wants. The
sandboxes outlive it, as they do in real life; what a call did while no worker lived is found again in their record.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import dying
from e2e.api import Api, Notebook
from e2e.scale import EVENT_KILLS, KILLED_PROTOCOLS, REPLY_POINTS, SOAK, TURN_KILLS
from e2e.server import Server
from e2e.waiting import pass_time, until
from tests.engine.agent.mcp import odd_server
from tests.engine.agent.models import spoken
from tests.engine.agent.models.spoken import Answer, Asked, Provider, provider

pytestmark = [pytest.mark.own_machine("the server is killed"), pytest.mark.timeout(1800 if SOAK else 240)]

FENCE = "```"


@pytest.fixture(scope="module")
def speaker() -> Iterator[Provider]:
    """Whoever speaks for both providers of models; each test gives it a script."""
    with provider([Answer([])]) as server:
        yield server


@pytest.fixture(scope="module")
def settings(speaker: Provider) -> dict[str, Any]:
    """Of both halves."""
    return {
        "POLL_SECONDS": 1,
        "APPROVAL_SECONDS": 120,
        "OPERATOR_GRACE_SECONDS": 120,
        "ANTHROPIC_URL": speaker.url,
        "OPENAI_URL": f"{speaker.url}/v1",
    }


@pytest.fixture(scope="module")
def web(settings: dict[str, Any]) -> Iterator[Server]:
    """The half that answers requests; it lives through all deaths of the other."""
    with tempfile.TemporaryDirectory(prefix="nightbook-e2e-") as folder:
        server = Server(Path(folder) / "data", "web", **settings)
        try:
            server.start()
            yield server
        finally:
            server.stop_all()
        assert server.left_behind() == []


@pytest.fixture(scope="module")
def worker(web: Server, settings: dict[str, Any]) -> Iterator[Server]:
    server = Server(web.data, "worker", launch=("-m", "e2e.dying"), **settings)
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


def retried(notebook: Notebook) -> list[dict[str, Any]]:
    """What was told of rounds that were asked for once more."""
    return [frame["body"] for frame in notebook.runs() if frame["body"]["event"] == "retrying"]


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


def pending(api: Api, notebook: Notebook) -> dict[str, Any]:
    """The one ask that waits in a notebook."""

    def found() -> dict[str, Any] | None:
        asks = api.client.get("/api/v1/asks").json()
        return next((ask for ask in asks if ask["notebook_id"] == notebook.id), None)

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
        answer = hand.client.post(f"/api/v1/asks/{pending(hand, notebook)['id']}/park")
        assert answer.status_code == 200, answer.text
    until(lambda: not weak.running, f"the server dies at {point}", 30)
    weak.start()
    for number in (1, 2) if asks else ():
        ask_id = pending(hand, notebook)["id"]
        answer = hand.client.post(f"/api/v1/asks/{ask_id}", json={"verdict": "approve"})
        assert answer.status_code == 200, answer.text
        until(lambda ran=number: len(lines(weak, notebook)) >= ran, f"{ask_id} runs", 30)
    assert notebook.wait(cell, seconds=40)["state"] == "done"
    assert lines(weak, notebook) == ["1", "2"]
    assert [item["status"] for item in story(notebook, cell, "tool")] == ["done", "done"]
    assert len(retried(notebook)) == (point == dying.THINKING)
    whole(notebook)


def everything(protocol: str, number: int) -> list[bytes]:
    """A reply with thinking, text and two calls that leave a line each."""
    wanted = [("shell", {"command": f"echo {number}{letter} >> log"}) for letter in "ab"]
    return spoken.everything(protocol, f"Now number {number}.", *wanted)


@pytest.mark.soak("each death costs a life of the worker, and an import of an SDK")
@pytest.mark.parametrize("protocol", KILLED_PROTOCOLS)
def test_killed_at_every_event_of_a_reply(protocol: str, weak: Server, hand: Api, speaker: Provider) -> None:
    """In each round the other side stops before another event, and the worker dies there; then, in a round each, behind
    the finished reply. Every round's calls happen once, and who looks on is told which rounds were asked for again."""
    events = len(everything(protocol, 0))
    stops: list[int | str] = [*range(events)[EVENT_KILLS], *REPLY_POINTS]
    stopped, released = threading.Event(), threading.Event()
    asked_again = False

    def script(asked: Asked) -> Answer:
        nonlocal asked_again
        number = len(rounds)
        if number == len(stops):
            return Answer(spoken.everything(protocol, "That is all."))
        stop = stops[number]
        if isinstance(stop, str):
            (weak.data / dying.FILE).write_text(stop)
        elif not asked_again:
            asked_again = True
            return Answer(everything(protocol, number), before=lambda at: hold() if at == stop else None)
        asked_again = False
        rounds.append(number)
        return Answer(everything(protocol, number))

    def hold() -> None:
        stopped.set()
        released.wait(120)
        released.clear()

    rounds: list[int] = []
    before = len(speaker.asked)
    speaker.script = script
    notebook = hand.notebook(("agent", "Leave your lines."))
    [cell] = notebook.cells
    notebook.ask("set_model", model=f"{protocol}:some-model")
    notebook.ask("set_policy", policy="all")
    notebook.run(cell)
    for number, stop in enumerate(stops):
        if isinstance(stop, str):
            until(lambda: not weak.running, f"the worker dies, {stop}", 60)
        else:
            until(stopped.is_set, f"the reply {number} stops before event {stop}", 60)
            stopped.clear()
            if b"Thinking of" in b"".join(everything(protocol, number)[:stop]):
                seen = f"Thinking of: Now number {number}"
                until(lambda told=seen: told in str(story(notebook, cell, "thought")), f"{seen} is seen", 30)
            weak.kill()
            released.set()
        weak.start()
    assert notebook.wait(cell, seconds=90)["state"] == "done"
    halves = sum(isinstance(stop, int) for stop in stops)
    assert len(speaker.asked) - before == len(stops) + halves + 1
    told = retried(notebook)
    assert [(one["round"], one["attempt"]) for one in told] == [(number, 2) for number in range(1, halves + 1)]
    assert {one["reason"] for one in told} <= {"the server stopped while the model replied"}
    said = [item["text"] for item in story(notebook, cell, "thought") if not item.get("thinking")]
    assert said == [*(f"Now number {number}." for number in range(len(stops))), "That is all."]
    assert lines(weak, notebook) == [f"{number}{letter}" for number in range(len(stops)) for letter in "ab"]
    assert [item["status"] for item in story(notebook, cell, "tool")] == ["done"] * 2 * len(stops)
    whole(notebook)


@pytest.mark.soak("an engine that is ended in such a call shows the same, in tests/engine/agent/mcp")
def test_killed_in_a_call_to_a_tool_server(weak: Server, hand: Api) -> None:
    """Nobody but the server could know how far it came, and it went with the worker: a person is asked, and it is not
    called again."""
    call = f'{FENCE}tool odd__echo\n{{"text": "once"}}\n{FENCE}'
    notebook = hand.notebook(("agent", f"Call it.\n\n{call}\n\n{FENCE}sh\necho went on\n{FENCE}"))
    [cell] = notebook.cells
    folder = weak.data / "workspaces" / notebook.id
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(odd_server.__file__, folder / "odd_server.py")
    notebook.ask("add_server", server="odd", command=["python3", "odd_server.py", "hangs"])
    notebook.ask("set_policy", policy="all")
    notebook.run(cell)
    until(lambda: lines(weak, notebook, "calls") == ["called"], "the server is called", 60)
    weak.kill()
    until(
        lambda: not any("odd_server.py" in one for one in weak.left_behind()),
        "the server goes with the worker that it served",
    )
    weak.start()
    asked = pending(hand, notebook)
    assert asked["title"].startswith("Did this happen? odd__echo")
    answer = hand.client.post(f"/api/v1/asks/{asked['id']}", json={"verdict": "approve"})
    assert answer.status_code == 200, answer.text
    assert notebook.wait(cell, seconds=60)["state"] == "done"
    assert lines(weak, notebook, "calls") == ["called"]
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
