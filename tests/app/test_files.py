"""Files over HTTP: an upload becomes a version that cells see, and what comes back can do a browser no harm."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from e2e.api import Api
from e2e.server import Server
from e2e.waiting import until
from engine.files import FILE_BYTES


@pytest.fixture
def notebook(api: Api) -> str:
    return api.notebook(title="Files").id


def at(notebook: str, path: str) -> str:
    return f"/api/v1/notebooks/{notebook}/files/{quote(path)}"


def listed(api: Api, notebook: str, **query: Any) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = api.client.get(f"/api/v1/notebooks/{notebook}/files", params=query).json()["files"]
    return files


def put(api: Api, notebook: str, path: str, data: bytes, version: int = 1) -> dict[str, Any]:
    answer = api.client.put(at(notebook, path), content=data)
    assert answer.status_code == 202, answer.text
    until(
        lambda: any(one["path"] == path and one["version"] == version for one in listed(api, notebook)),
        f"{path!r} has version {version}",
    )
    taken: dict[str, Any] = answer.json()
    return taken


def test_an_upload_becomes_a_version_and_every_version_can_be_had(api: Api, notebook: str) -> None:
    assert listed(api, notebook) == []
    taken = put(api, notebook, "data/a.csv", b"1,2\n")
    assert taken["sha256"] == hashlib.sha256(b"1,2\n").hexdigest()
    put(api, notebook, "data/a.csv", b"3,4\n", 2)
    put(api, notebook, "b", b"\x00")
    assert [(one["path"], one["version"], one["by"]) for one in listed(api, notebook)] == [
        ("b", 1, "owner"),
        ("data/a.csv", 2, "owner"),
    ]
    assert [one["version"] for one in listed(api, notebook, path="data/a.csv")] == [2, 1]
    page = api.client.get(f"/api/v1/notebooks/{notebook}/files", params={"limit": 1}).json()
    assert (page["files"][0]["path"], page["after"]) == ("b", "b")
    assert listed(api, notebook, after="b")[0]["path"] == "data/a.csv"
    newest = api.client.get(at(notebook, "data/a.csv"))
    assert newest.content == b"3,4\n"
    assert api.client.get(at(notebook, "data/a.csv"), params={"version": 1}).content == b"1,2\n"
    unchanged = api.client.get(at(notebook, "data/a.csv"), headers={"If-None-Match": newest.headers["etag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    frames = api.client.get(f"/api/v1/notebooks/{notebook}/frames", params={"follow": False}).json()["frames"]
    assert taken["id"] in [frame["command_id"] for frame in frames if frame["kind"] == "file"]


@pytest.mark.parametrize(
    ("path", "data", "kind", "place"),
    [
        ("a.png", b"\x89PNG", "image/png", "inline"),
        ("a.html", b"<script>alert(1)</script>", "text/plain; charset=utf-8", "inline"),
        ("a.js", b"alert(1)", "text/plain; charset=utf-8", "inline"),
        ("a.json", b"{}", "text/plain; charset=utf-8", "inline"),
        ("a.svg", b"<svg onload=alert(1)>", "application/octet-stream", "attachment"),
        ("a.pdf", b"%PDF", "application/octet-stream", "attachment"),
        ("a.bin", b"\x00", "application/octet-stream", "attachment"),
    ],
)
def test_nothing_that_acts_is_shown_by_a_browser(
    api: Api, notebook: str, path: str, data: bytes, kind: str, place: str
) -> None:
    put(api, notebook, path, data)
    answer = api.client.get(at(notebook, path))
    assert answer.headers["content-type"] == kind
    assert answer.headers["content-disposition"] == f"{place}; filename*=UTF-8''{path}"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    saved = api.client.get(at(notebook, path), params={"download": True})
    assert saved.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize("path", ["new\nline", "ümläut ✓", "a b/c%20d", "q?x#y", 'quo"te\r\nX-Evil: 1', "-rf"])
def test_names_of_any_kind_come_back_as_they_were(api: Api, notebook: str, path: str) -> None:
    put(api, notebook, path, b"x")
    answer = api.client.get(at(notebook, path))
    assert answer.content == b"x"
    assert "x-evil" not in answer.headers
    assert [one["path"] for one in listed(api, notebook)] == [path]


def test_what_cannot_be_is_a_problem_that_names_it(api: Api, notebook: str) -> None:
    def told(answer: Any) -> tuple[int, str]:
        assert answer.headers["content-type"] == "application/problem+json", answer.text
        return answer.status_code, answer.json()["detail"]

    assert told(api.client.get(at(notebook, "gone"))) == (404, "there is no file gone")
    assert told(api.client.get(at("nowhere", "a"))) == (404, "there is no notebook 'nowhere'")
    assert told(api.client.put(at("nowhere", "a"), content=b"x")) == (404, "there is no notebook 'nowhere'")
    assert told(api.client.get("/api/v1/notebooks/nowhere/files"))[0] == 404
    for path in ("%2e%2e/secret", "a/%2e%2e/%2e%2e/b", "%2Fetc/passwd", "x" * 300):
        answer = api.client.put(f"/api/v1/notebooks/{notebook}/files/{path}", content=b"x")
        assert told(answer)[0] == 422, path
        assert answer.json()["errors"][0]["field"] == "path"
    assert told(api.client.put(f"/api/v1/notebooks/{notebook}/files/a%00b", content=b"x"))[0] == 400
    put(api, notebook, "a", b"x")
    assert told(api.client.get(at(notebook, "a"), params={"version": 9})) == (404, "there is no file a of version 9")
    assert told(api.client.get(at(notebook, "a"), params={"version": 0}))[0] == 422
    once = api.client.put(at(notebook, "b"), content=b"x", params={"id": "upload-1"})
    assert api.client.put(at(notebook, "b"), content=b"x", params={"id": "upload-1"}).json() == once.json()
    assert told(api.client.put(at(notebook, "b"), content=b"y", params={"id": "upload-1"}))[0] == 409


def test_an_upload_is_bounded_while_it_comes(api: Api, notebook: str) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(200):
            sent += 1024 * 1024
            yield b"x" * (1024 * 1024)

    answer = api.client.put(at(notebook, "big"), content=endless())
    assert (answer.status_code, answer.json()["detail"]) == (413, "a file has at most 64 MiB")
    told = api.client.put(at(notebook, "big"), content=b"x" * (FILE_BYTES + 1))
    assert told.status_code == 413


def test_a_deleted_file_says_so_and_its_versions_stay(api: Api) -> None:
    made = api.notebook(("shell", "cat a && rm a"))
    put(api, made.id, "a", b"here")
    made.run(made.cells[0])
    until(lambda: listed(api, made.id) == [], "the deletion is kept")
    answer = api.client.get(at(made.id, "a"))
    assert (answer.status_code, answer.json()["detail"]) == (404, "a was deleted as of version 2; ask for one before")
    assert api.client.get(at(made.id, "a"), params={"version": 1}).content == b"here"
    assert [one["deleted"] for one in listed(api, made.id, deleted=True)] == [True]


def test_what_a_turn_wrote_is_there_by_version_and_again_in_a_folder_that_was_lost(api: Api, served: Server) -> None:
    fence = "```"
    book = "\n\n".join(
        (
            f"{fence}write notes/a.txt\none\ntwo\n{fence}",
            f"{fence}edit notes/a.txt\n<<<<<<<\ntwo\n=======\nthree\n>>>>>>>\n{fence}",
            f"{fence}read notes/a.txt\n{fence}",
        )
    )
    made = api.notebook(("agent", book), ("shell", "cat notes/a.txt"))
    turn, cell = made.cells
    made.ask("set_policy", policy="edits")
    made.run(turn)
    until(lambda: made.cell(turn)["state"] == "done", "the turn is done")
    tools = [item for item in made.cell(turn)["story"]["items"] if item["t"] == "tool"]
    assert tools[1]["diff"].endswith(" one\n-two\n+three\n")
    assert tools[2]["text"].startswith("one\nthree\n")
    versions = [(one["version"], one["call"]) for one in listed(api, made.id, path="notes/a.txt")]
    assert versions == [(2, tools[1]["call"]), (1, tools[0]["call"])]
    assert api.client.get(at(made.id, "notes/a.txt"), params={"version": 1}).content == b"one\ntwo\n"
    shutil.rmtree(served.data / "workspaces" / made.id)
    made.run(cell)
    until(lambda: made.cell(cell)["state"] == "done", "the folder was filled again")
    assert "".join(item["text"] for item in made.cell(cell)["output"]).split() == ["one", "three"]
    assert listed(api, made.id)[0]["version"] == 2
