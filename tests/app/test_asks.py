"""Asks over HTTP where no engine runs: the row decides, and everybody else is told who and when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg
import httpx
import pytest

from e2e.api import Api, Notebook
from e2e.server import Server
from tests.app.conftest import TOKEN
from tests.app.test_api import assert_problem

BODY = {
    "tool": "shell",
    "title": "rm -r build",
    "command": "rm -r build",
    "why": "it is stale",
    "touches": ["build"],
    "risk": "run",
    "rule": "exactly this command: rm -r build",
    "words": ["rm", "-r", "build"],
    "seconds": 300,
}


class Office:
    """A web half alone, and a hand that asks as an engine would have: by a row."""

    def __init__(self, api: Api, address: str) -> None:
        self.api = api
        self.client = api.client
        self._address = address

    def sql(self, statement: str, *args: Any) -> Any:
        async def run() -> Any:
            connection = await asyncpg.connect(self._address)
            try:
                return await connection.fetch(statement, *args)
            finally:
                await connection.close()

        return asyncio.run(run())

    def ask(self, notebook: Notebook, ask_id: str, seconds: float = 300, **body: Any) -> str:
        self.sql(
            """
            INSERT INTO ask (notebook_id, id, cell_id, run_id, call_id, digest, body, due_at)
            VALUES ($1, $2, 'c', 'r', 'k', 'd', $3::json, now() + $4::float8 * interval '1 s')
            """,
            notebook.id,
            ask_id,
            json.dumps(BODY | body),
            seconds,
        )
        return f"/api/v1/asks/{ask_id}"


@pytest.fixture(scope="module")
def office(own_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Any:
    address = own_database()
    server = Server(tmp_path_factory.mktemp("office") / "data", "web", DATABASE_URL=address, TOKEN=TOKEN)
    try:
        server.start()
        api = Api(server.url, TOKEN)
        yield Office(api, address)
        api.close()
    finally:
        server.stop_all()
    assert server.left_behind() == []


@pytest.fixture
def notebook(office: Office) -> Notebook:
    return office.api.notebook(("agent", "do it"))


def listed(office: Office) -> dict[str, dict[str, Any]]:
    answer = office.client.get("/api/v1/asks")
    assert answer.status_code == 200, answer.text
    return {line["id"]: line for line in answer.json()}


def answer(office: Office, place: str, **body: Any) -> httpx.Response:
    return office.client.post(place, json=body)


def test_what_waits_is_listed_with_all_that_a_card_needs(office: Office, notebook: Notebook) -> None:
    office.ask(notebook, "listed-1", 200)
    office.ask(notebook, "listed-2", 100)
    office.ask(notebook, "listed-over", -1)
    found = listed(office)
    assert [key for key in found if key.startswith("listed")] == ["listed-2", "listed-1"]
    line = found["listed-1"]
    assert {key: line[key] for key in ("tool", "title", "command", "why", "touches", "risk", "rule")} == {
        key: BODY[key] for key in ("tool", "title", "command", "why", "touches", "risk", "rule")
    }
    assert (line["notebook_id"], line["cell_id"], line["run_id"], line["call"]) == (notebook.id, "c", "r", "k")
    assert line["notebook_title"]
    assert 190 < line["seconds_left"] <= 200
    assert line["parked"] is False


def test_an_answer_counts_and_the_same_again_is_the_same_answer(office: Office, notebook: Notebook) -> None:
    place = office.ask(notebook, "twice")
    first = answer(office, place, verdict="approve", message="  go  ")
    assert first.status_code == 200, first.text
    decided = first.json()
    assert (decided["verdict"], decided["reason"], decided["scope"], decided["message"], decided["by"]) == (
        "approve", "person", "once", "go", "owner",
    )  # fmt: skip
    again = answer(office, place, verdict="approve", message="go")  # a double click
    assert (again.status_code, again.json()) == (200, decided)
    assert "twice" not in listed(office)


def test_who_comes_second_is_told_who_was_first_and_when(office: Office, notebook: Notebook) -> None:
    place = office.ask(notebook, "second")
    first = answer(office, place, verdict="deny", message="no").json()
    late = assert_problem(answer(office, place, verdict="approve"), 409, "denied by owner", first["decided_at"])
    assert {key: late[key] for key in ("verdict", "reason", "by", "decided_at", "message")} == {
        "verdict": "deny", "reason": "person", "by": "owner", "decided_at": first["decided_at"], "message": "no",
    }  # fmt: skip
    assert_problem(answer(office, place, verdict="deny", scope="kind"), 422, "scope")
    assert_problem(office.client.post(f"{place}/park"), 409, "denied by owner")


def test_past_its_time_it_is_decided_though_no_engine_said_so(office: Office, notebook: Notebook) -> None:
    place = office.ask(notebook, "late", -1)
    late = assert_problem(answer(office, place, verdict="approve"), 409, "nobody answered in time")
    assert (late["verdict"], late["reason"]) == ("deny", "timeout")
    assert late["decided_at"]
    assert_problem(office.client.post(f"{place}/park"), 409, "nobody answered in time")


def test_an_approval_of_the_kind_needs_a_kind(office: Office, notebook: Notebook) -> None:
    place = office.ask(notebook, "kind")
    assert answer(office, place, verdict="approve", scope="kind").json()["scope"] == "kind"
    assert_problem(answer(office, place, verdict="approve", scope="once"), 409, "approved by owner")
    place = office.ask(notebook, "no-kind", rule=None, words=None)
    assert_problem(answer(office, place, verdict="approve", scope="kind"), 422, "no rule")
    assert answer(office, place, verdict="approve").status_code == 200


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("{", "JSON"),
        ("[]", "dict"),
        ("{}", "verdict"),
        ('{"verdict": "maybe"}', "verdict"),
        ('{"verdict": "approve", "scope": "always"}', "scope"),
        ('{"verdict": "approve", "extra": 1}', "extra"),
        (json.dumps({"verdict": "deny", "message": "x" * 2001}), "message"),
    ],
)
def test_a_malformed_answer_is_named_and_decides_nothing(
    office: Office, notebook: Notebook, body: str, named: str
) -> None:
    ask_id = f"bad-{abs(hash(body))}"
    assert_problem(office.client.post(office.ask(notebook, ask_id), content=body), 422, named)
    assert ask_id in listed(office)


def test_an_unknown_ask_is_named(office: Office) -> None:
    for place in ("", "/park", "/reconsider"):
        asked = office.client.post(f"/api/v1/asks/no-such-ask{place}", json={"verdict": "deny"})
        assert_problem(asked, 404, "no-such-ask")


def test_nobody_answers_without_the_token(office: Office, notebook: Notebook) -> None:
    place = office.ask(notebook, "closed")
    url = f"{office.client.base_url}".rstrip("/") + place
    assert_problem(httpx.post(url, json={"verdict": "approve"}, trust_env=False), 401)
    assert "closed" in listed(office)


def test_a_parked_ask_waits_for_a_day(office: Office, notebook: Notebook) -> None:
    place = office.ask(notebook, "parked", 50)
    for _ in range(2):  # the second is the same
        parked = office.client.post(f"{place}/park")
        assert parked.status_code == 200, parked.text
        assert 86000 < parked.json()["seconds_left"] <= 86400
    assert listed(office)["parked"]["parked"] is True
    assert answer(office, place, verdict="deny").status_code == 200


def test_many_at_once_have_one_winner(office: Office, notebook: Notebook) -> None:
    place = office.ask(notebook, "race")
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda n: answer(office, place, verdict=("approve", "deny")[n % 2]), range(50)))
    [won] = {item.json()["verdict"] for item in answers if item.status_code == 200}
    told = {(item.json()["verdict"], item.json()["by"]) for item in answers if item.status_code == 409}
    assert told == {(won, "owner")}
    assert len({item.json()["decided_at"] for item in answers}) == 1


def test_only_a_no_of_silence_can_be_reconsidered(office: Office, notebook: Notebook) -> None:
    place = office.ask(notebook, "waiting")
    assert_problem(office.client.post(f"{place}/reconsider"), 409, "still waits")
    answer(office, place, verdict="deny")
    assert_problem(office.client.post(f"{place}/reconsider"), 409, "denied by owner")
    place = office.ask(notebook, "elsewhere", -1)  # its cell is not in the notebook
    assert_problem(office.client.post(f"{place}/reconsider"), 409, "deleted")
