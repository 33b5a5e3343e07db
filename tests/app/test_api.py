"""What the HTTP API does with bad input: it names what is wrong, changes nothing, and never breaks."""

import json
from typing import Any

import httpx
import pytest

from e2e.api import Api, Notebook
from e2e.waiting import until

LIMIT = 512 * 1024
SECRET = "hunter2-hunter2"


@pytest.fixture
def notebook(api: Api) -> Notebook:
    return api.notebook(("python", "print(1)"))


@pytest.fixture
def client(api: Api) -> httpx.Client:
    return api.client


def assert_problem(answer: httpx.Response, status: int, *named: str) -> dict[str, Any]:
    """The answer is a problem of this status whose words name what was wrong."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    for word in named:
        assert word in answer.text
    return problem


def post(client: httpx.Client, notebook: Notebook, body: Any) -> httpx.Response:
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    return client.post(f"/api/v1/notebooks/{notebook.id}/commands", content=content)


# What is not there


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/frames"),
        ("GET", "/frames?follow=false"),
        ("GET", "/frames?after=7"),
        ("POST", "/commands"),
    ],
)
def test_an_unknown_notebook_is_named(client: httpx.Client, method: str, path: str) -> None:
    body = '{"id": "1", "kind": "run_all"}' if method == "POST" else None
    answer = client.request(method, f"/api/v1/notebooks/no-such-notebook{path}", content=body)
    assert_problem(answer, 404, "no-such-notebook")


def test_an_unknown_blob_is_named_and_a_digest_has_its_form(client: httpx.Client) -> None:
    assert_problem(client.get(f"/api/v1/blobs/{'0' * 64}"), 404, "0" * 64)
    assert_problem(client.get("/api/v1/blobs/etc-passwd"), 422, "sha256")


@pytest.mark.parametrize(("method", "path"), [("GET", "/api/v1/nothing"), ("DELETE", "/api/v1/notebooks")])
def test_what_the_api_does_not_have_is_a_problem_too(client: httpx.Client, method: str, path: str) -> None:
    assert_problem(client.request(method, path), 404 if "nothing" in path else 405)


def test_nobody_without_the_token(client: httpx.Client) -> None:
    answer = httpx.get(f"{client.base_url}/api/v1/notebooks", trust_env=False)
    assert_problem(answer, 401)


@pytest.mark.parametrize("kind", ["run_cell", "edit_cell", "move_cell", "delete_cell", "restore_cell"])
def test_a_command_for_an_unknown_cell_is_a_404_that_names_it(
    client: httpx.Client, notebook: Notebook, kind: str
) -> None:
    body = {"id": f"unknown-{kind}", "kind": kind, "cell_id": "no-such-cell"}
    assert_problem(post(client, notebook, body), 404, "no-such-cell")
    assert_problem(
        post(client, notebook, {"id": "until", "kind": "run_all", "until": "no-such-cell"}), 404, "no-such-cell"
    )


def test_a_cell_that_is_on_its_way_can_be_asked_for_and_one_just_gone_is_refused(notebook: Notebook) -> None:
    """Whether a cell is still there is for the engine to say, and told as a frame."""
    notebook.ask("add_cell", cell_id="new", source="1")
    notebook.ask("edit_cell", cell_id="new", source="2")
    notebook.ask("delete_cell", cell_id="new")
    command_id = notebook.ask("run_cell", cell_id="new")
    found = until(lambda: [f for f in notebook.frames() if f["command_id"] == command_id], "an answer")
    assert [frame["kind"] for frame in found] == ["refused"]
    assert found[0]["body"]["command"] == "run_cell"
    assert "new" in found[0]["body"]["reason"]


# What is malformed


@pytest.mark.parametrize("body", ["", "{", "nonsense", "[" * 100_000, b"\xff\xfe", "\x00", '{"id": "1" "kind": 2}'])
def test_what_is_not_json_is_a_422(client: httpx.Client, notebook: Notebook, body: str | bytes) -> None:
    assert_problem(post(client, notebook, body), 422, "JSON")
    assert_problem(client.post("/api/v1/notebooks", content=body), 422, "JSON")


@pytest.mark.parametrize("body", [[], 7, None, "text", True])
def test_json_of_another_shape_is_a_422(client: httpx.Client, notebook: Notebook, body: Any) -> None:
    assert_problem(post(client, notebook, body), 422)
    assert_problem(client.post("/api/v1/notebooks", content=json.dumps(body)), 422)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"id": "1", "kind": "fly"}, "fly"),
        ({"id": "1"}, "kind"),
        ({"kind": "run_all"}, "id"),
        ({"id": "", "kind": "run_all"}, "id"),
        ({"id": "a b", "kind": "run_all"}, "id"),
        ({"id": "x" * 65, "kind": "run_all"}, "id"),
        ({"id": 7, "kind": "run_all"}, "id"),
        ({"id": "1", "kind": "run_cell"}, "cell_id"),
        ({"id": "1", "kind": "run_cell", "cell_id": ["c"]}, "cell_id"),
        ({"id": "1", "kind": "run_cell", "cell_id": "c", "extra": 1}, "extra"),
        ({"id": "1", "kind": "add_cell", "cell_kind": "fortran"}, "cell_kind"),
        ({"id": "1", "kind": "edit_cell", "cell_id": "c", "at": -1, "base": 1}, "at"),
        ({"id": "1", "kind": "edit_cell", "cell_id": "c", "at": 1.5, "base": 1}, "at"),
        ({"id": "1", "kind": "edit_cell", "cell_id": "c", "at": 1, "remove": -3, "base": 1}, "remove"),
        ({"id": "1", "kind": "rename", "title": ""}, "title"),
        ({"id": "1", "kind": "rename", "title": "t" * 301}, "title"),
        ({"id": "1", "kind": "comment", "text": None}, "text"),
    ],
)
def test_a_malformed_command_is_a_422_that_names_the_field(
    client: httpx.Client, notebook: Notebook, body: dict[str, Any], named: str
) -> None:
    head = notebook.head()
    problem = assert_problem(post(client, notebook, body), 422, named)
    assert problem["errors"]
    assert notebook.head() == head


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"title": 7}, "title"),
        ({"title": ""}, "title"),
        ({"cells": {}}, "cells"),
        ({"cells": [{"kind": "fortran"}]}, "kind"),
        ({"cells": [{"source": 7}]}, "source"),
        ({"cells": [{}] * 1001}, "cells"),
        ({"owner": "me"}, "owner"),
    ],
)
def test_a_malformed_notebook_is_a_422_that_names_the_field(
    client: httpx.Client, body: dict[str, Any], named: str
) -> None:
    assert_problem(client.post("/api/v1/notebooks", content=json.dumps(body)), 422, named)


def test_a_problem_does_not_repeat_what_may_be_a_password(client: httpx.Client, notebook: Notebook) -> None:
    for text in ([SECRET], {"a": SECRET}):
        body = {"id": "1", "kind": "input", "run_id": "r", "text": text}
        assert SECRET not in assert_problem(post(client, notebook, body), 422, "text")["detail"]
        assert SECRET not in post(client, notebook, body).text


# What is too large


@pytest.mark.parametrize("text", ["x" * (LIMIT + 1), "≤" * (LIMIT // 3 + 1)], ids=["ascii", "three bytes each"])
def test_a_source_over_512_kib_is_a_413(client: httpx.Client, notebook: Notebook, text: str) -> None:
    cell_id = notebook.cells[0]
    bodies: list[dict[str, Any]] = [
        {"id": "1", "kind": "add_cell", "source": text},
        {"id": "1", "kind": "edit_cell", "cell_id": cell_id, "source": text},
        {"id": "1", "kind": "edit_cell", "cell_id": cell_id, "base": 2, "at": 0, "insert": text},
    ]
    for body in bodies:
        assert_problem(post(client, notebook, body), 413, "512 KiB")
    made = client.post("/api/v1/notebooks", content=json.dumps({"cells": [{"source": text}]}))
    assert_problem(made, 413, "512 KiB")


def test_a_source_of_exactly_512_kib_is_kept(api: Api) -> None:
    notebook = api.notebook(("markdown", "x" * LIMIT))
    assert len(notebook.view()["cells"][0]["source"]) == LIMIT


def test_an_edit_that_makes_a_source_too_large_is_refused(api: Api) -> None:
    notebook = api.notebook(("markdown", "x" * LIMIT))
    command_id = notebook.ask("edit_cell", cell_id=notebook.cells[0], base=2, at=0, insert="y")
    found = until(lambda: [f for f in notebook.frames() if f["command_id"] == command_id], "an answer")
    assert found[0]["kind"] == "refused"
    assert "512 KiB" in found[0]["body"]["reason"]


def test_a_body_of_many_megabytes_is_a_413(client: httpx.Client, notebook: Notebook) -> None:
    assert_problem(post(client, notebook, b"[" + b" " * 5_000_000 + b"]"), 413)


# The same again


def test_the_same_command_again_is_the_same_command(client: httpx.Client, notebook: Notebook) -> None:
    body = {"id": "once", "kind": "rename", "title": "Renamed"}
    for _ in range(3):
        answer = post(client, notebook, body)
        assert answer.status_code == 202
        assert answer.json() == {"id": "once"}
    until(lambda: notebook.view()["title"] == "Renamed", "the command was applied")
    assert post(client, notebook, body).status_code == 202
    assert_problem(post(client, notebook, body | {"title": "Another"}), 409, "once")
    assert len([frame for frame in notebook.frames() if frame["command_id"] == "once"]) == 1


def test_an_id_is_one_notebooks_own(api: Api, notebook: Notebook) -> None:
    other = api.notebook()
    notebook.ask("rename", id="same", title="One")
    other.ask("rename", id="same", title="Other")
    until(lambda: (notebook.view()["title"], other.view()["title"]) == ("One", "Other"), "both were renamed")


# What JSON can say and a database cannot


def test_nul_and_lone_surrogates_are_kept_as_replacement_characters(client: httpx.Client) -> None:
    body = r'{"title": "t\u0000\ud800", "cells": [{"kind": "python", "source": "\u0000a\udc00b\ud83d\ude00"}]}'
    answer = client.post("/api/v1/notebooks", content=body)
    assert answer.status_code == 201, answer.text
    notebook = Notebook(client, answer.json()["id"], [answer.json()["cells"][0]["id"]])
    view = notebook.view()
    assert view["title"] == "t\ufffd\ufffd"
    assert view["cells"][0]["source"] == "\ufffda\ufffdb\U0001f600"
    command = r'{"id": "c", "kind": "edit_cell", "source": "x\u0000\ud800", "cell_id": "'
    assert post(client, notebook, f'{command}{notebook.cells[0]}"}}').status_code == 202
    until(lambda: notebook.view()["cells"][0]["source"] == "x\ufffd\ufffd", "the edit is kept")
    assert any(row["title"] == "t\ufffd\ufffd" for row in client.get("/api/v1/notebooks").json())


def test_nul_in_an_address_is_no_fault_of_the_server(client: httpx.Client) -> None:
    for path in ("/api/v1/notebooks/a%00b", "/api/v1/notebooks/a%00b/frames", "/n/a%00b"):
        assert_problem(client.get(path), 400, "NUL")
