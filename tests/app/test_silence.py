"""What silence means where everything is real: a web half, a worker that dies, and a file that must not be there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from e2e.api import Api, Notebook
from e2e.server import Server
from e2e.waiting import until
from tests.app.conftest import TOKEN
from tests.app.events import follow
from tests.app.test_api import assert_problem

TOUCH = "Make the file.\n\n```sh\necho once >> made\n```\n"
TWICE = TOUCH + "\nAnd again.\n\n```sh\necho  once >> 'made'\n```\n"
PLAIN = "```sh\nmkdir -p one\n```\n\n```sh\nmkdir  -p 'one'\n```\n\n```sh\nmkdir -p two\n```\n"


class Place:
    """A web half that stays, workers that come and go, and who looks on."""

    def __init__(self, web: Server, make: Callable[[float, float], Server]) -> None:
        self.web = web
        self.api = Api(web.url, TOKEN)
        self._make = make
        self._worker: Server | None = None
        self._seconds = (0.0, 0.0)

    def worker(self, approval: float = 120, grace: float = 120) -> Server:
        """The one worker that runs, with these settings: the one of before where it has them and lives."""
        if self._worker is not None and self._worker.running and self._seconds == (approval, grace):
            return self._worker
        if self._worker is not None:
            self._worker.terminate()
        self._worker, self._seconds = self._make(approval, grace), (approval, grace)
        self._worker.start()
        return self._worker

    def notebook(self, source: str = TOUCH) -> Notebook:
        made = self.api.notebook(("agent", source))
        made.run(made.cells[0])
        return made

    def pending(self, notebook: Notebook, seconds: float = 60.0) -> dict[str, Any]:
        """The open ask of the notebook."""

        def look() -> dict[str, Any] | None:
            lines: list[dict[str, Any]] = self.api.client.get("/api/v1/asks").json()
            return next((line for line in lines if line["notebook_id"] == notebook.id), None)

        found = until(look, f"{notebook} asks", seconds)
        assert found is not None
        return found

    def answer(self, ask: dict[str, Any], verdict: str = "approve", **more: Any) -> httpx.Response:
        return self.api.client.post(f"/api/v1/asks/{ask['id']}", json={"verdict": verdict, **more})

    @contextmanager
    def operator(self, notebook: Notebook) -> Iterator[None]:
        """Somebody who may decide looks at the notebook, and does nothing."""
        leave = threading.Event()
        there = threading.Event()

        def look() -> None:
            with follow(self.api.client, notebook.id, operator=True) as events:
                for _ in events:
                    there.set()
                    if leave.is_set():
                        return

        looking = threading.Thread(target=look)
        looking.start()
        assert there.wait(20)
        try:
            yield
        finally:
            leave.set()
            looking.join(20)

    def made(self, notebook: Notebook) -> str | None:
        """What the effect left."""
        path = self.web.data / "workspaces" / notebook.id / "made"
        return path.read_text() if path.exists() else None


@pytest.fixture(scope="module")
def place(own_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    data = tmp_path_factory.mktemp("silence") / "data"
    common = {"DATABASE_URL": own_database(), "TOKEN": TOKEN, "POLL_SECONDS": 1}
    made = [Server(data, "web", **common)]

    def make(approval: float, grace: float) -> Server:
        settings = common | {"APPROVAL_SECONDS": approval, "OPERATOR_GRACE_SECONDS": grace}
        made.append(Server(data, "worker", **settings))
        return made[-1]

    try:
        made[0].start()
        place = Place(made[0], make)
        yield place
        place.api.close()
    finally:
        made[0].stop_all()
    assert made[0].left_behind() == []


@pytest.fixture
def patient(place: Place) -> Server:
    """A worker that gives people all the time in the world."""
    return place.worker()


def verdicts(notebook: Notebook) -> list[dict[str, Any]]:
    return [frame["body"] for frame in notebook.frames() if frame["kind"] == "verdict"]


def results(notebook: Notebook) -> list[dict[str, Any]]:
    bodies = [frame["body"] for frame in notebook.frames() if frame["kind"] == "tool"]
    return [body for body in bodies if body["event"] == "result"]


def begun(notebook: Notebook) -> int:
    return sum(frame["kind"] == "tool" and frame["body"]["event"] == "begun" for frame in notebook.frames())


def test_each_silence_is_a_stored_no_with_its_reason_and_nothing_is_done(place: Place) -> None:
    """Invariant 5."""
    place.worker(approval=5, grace=2)
    watched, alone, stopped = place.api.notebook(("agent", TOUCH)), place.notebook(), place.notebook()
    with place.operator(watched), place.operator(stopped):
        watched.run(watched.cells[0])
        place.pending(stopped)
        stopped.ask("stop", cell_id=stopped.cells[0])
        assert stopped.wait(stopped.cells[0], seconds=60)["state"] == "cancelled"
        assert watched.wait(watched.cells[0], seconds=60)["state"] == "error"
    assert alone.wait(alone.cells[0], seconds=60)["state"] == "error"
    for notebook, reason, words in (
        (watched, "timeout", "nobody answered within 5 s"),
        (alone, "no_operator", "nobody was there"),
        (stopped, "cancelled", "stopped"),
    ):
        [verdict] = verdicts(notebook)
        assert (verdict["verdict"], verdict["reason"]) == ("deny", reason)
        [result] = results(notebook)
        assert result["status"] in ("denied", "cancelled")
        assert words in result["text"].lower()
        assert "decision, not a failure" in result["text"] or reason == "cancelled"
        assert place.made(notebook) is None
        assert begun(notebook) == 0
        late = place.answer({"id": verdict["ask"]})
        assert_problem(late, 409)
        assert late.json()["reason"] == reason
    assert "nobody answered" in watched.cell(watched.cells[0])["reason"]

    # A person who comes back approves after all: the turn goes on at that step, once.
    [denied] = verdicts(watched)
    going_on = place.api.client.post(f"/api/v1/asks/{denied['ask']}/reconsider")
    assert going_on.status_code == 202, going_on.text
    assert place.api.client.post(f"/api/v1/asks/{denied['ask']}/reconsider").json() == going_on.json()
    until(lambda: place.made(watched) == "once\n", "it was done", 60)
    assert watched.wait(watched.cells[0], "done", seconds=60)
    assert [body["reason"] for body in verdicts(watched)] == ["timeout", "person"]
    assert begun(watched) == 1


def test_the_answer_of_a_person_is_carried_out_once(place: Place, patient: Server) -> None:
    notebook = place.notebook()
    ask = place.pending(notebook)
    assert (ask["command"], ask["why"]) == ("echo once >> made", "Make the file.")
    assert ask["rule"] is None  # it is more than words
    assert notebook.view()["state"] == "waiting"
    for _ in range(2):
        assert place.answer(ask, message="go on").status_code == 200
    assert notebook.wait(notebook.cells[0], seconds=60)["state"] == "done"
    assert place.made(notebook) == "once\n"
    assert len(verdicts(notebook)) == 1
    assert "approved by owner, saying: go on" in results(notebook)[0]["text"]
    assert_problem(place.answer(ask, "deny"), 409, "approved by owner")


def test_a_no_ends_at_its_step_with_what_was_said(place: Place, patient: Server) -> None:
    notebook = place.notebook(TWICE)
    place.answer(place.pending(notebook), "deny", message="not on a Friday")
    cell = notebook.wait(notebook.cells[0], seconds=60)
    assert cell["state"] == "error"
    assert "step 1" in cell["reason"]
    assert "not on a Friday" in cell["reason"]
    assert place.made(notebook) is None


def test_an_approval_of_the_kind_covers_the_same_words_and_no_others(place: Place, patient: Server) -> None:
    notebook = place.notebook(PLAIN)
    first = place.pending(notebook)
    assert "mkdir -p one" in first["rule"]
    assert place.answer(first, scope="kind").status_code == 200
    until(lambda: place.pending(notebook)["id"] != first["id"], "it asks about something else", 60)
    second = place.pending(notebook)
    assert second["command"] == "mkdir -p two"
    assert [rule["words"] for rule in notebook.view()["rules"]] == [["mkdir", "-p", "one"]]
    notebook.ask("set_policy", policy="all")
    until(lambda: notebook.view()["policy"] == "all", "the policy is set")
    assert place.pending(notebook)["id"] == second["id"]  # it decides nothing that waits
    place.answer(second)
    assert notebook.wait(notebook.cells[0], seconds=60)["state"] == "done"
    assert len(verdicts(notebook)) == 2


def test_the_last_second_still_counts_and_makes_one_verdict(place: Place) -> None:
    place.worker(approval=6)
    notebook = place.notebook()
    ask = place.pending(notebook)
    until(lambda: place.pending(notebook)["seconds_left"] < 1, "the last second", 30)
    assert place.answer(ask).status_code == 200
    assert notebook.wait(notebook.cells[0], seconds=60)["state"] == "done"
    assert len(verdicts(notebook)) == 1
    assert place.made(notebook) == "once\n"


def test_a_pending_ask_outlives_the_worker_and_its_time_goes_on(place: Place) -> None:
    first = place.worker()
    notebook = place.notebook()
    ask = place.pending(notebook)
    first.kill()
    second = place.worker()
    until(lambda: any(f["body"].get("event") == "resumed" for f in notebook.frames() if f["kind"] == "session"), "up")
    again = place.pending(notebook)
    assert (again["id"], again["asked_at"]) == (ask["id"], ask["asked_at"])
    assert again["seconds_left"] < ask["seconds_left"]

    # Decided while no engine runs: it is told, and carried out, when one wakes.
    second.kill()
    assert place.answer(again).status_code == 200
    assert verdicts(notebook) == []
    place.worker()
    assert notebook.wait(notebook.cells[0], seconds=60)["state"] == "done"
    assert place.made(notebook) == "once\n"
    assert len(verdicts(notebook)) == 1
    assert sum(frame["kind"] == "ask" for frame in notebook.frames()) == 1


def test_a_parked_ask_outlives_the_worker_and_waits_for_its_person(place: Place) -> None:
    first = place.worker(grace=2)
    notebook = place.notebook()
    ask = place.pending(notebook)
    parked = place.api.client.post(f"/api/v1/asks/{ask['id']}/park")
    assert parked.status_code == 200, parked.text

    def yielded() -> bool:
        return any(frame["body"]["event"] == "yielded" for frame in notebook.runs())

    until(yielded, "the turn frees its worker")
    first.kill()
    place.worker(grace=2)
    other = place.notebook()  # nobody is there: this one is denied meanwhile, the parked one is not
    assert other.wait(other.cells[0], seconds=60)["state"] == "error"
    assert place.pending(notebook)["parked"] is True
    assert place.pending(notebook)["seconds_left"] > 86_000
    assert place.answer(ask).status_code == 200
    assert notebook.wait(notebook.cells[0], seconds=60)["state"] == "done"
    assert place.made(notebook) == "once\n"
