"""Tool servers as people install them, one from PyPI and one from npm, in one turn on a real server."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from e2e.api import Api, Notebook
from e2e.conftest import Target
from e2e.waiting import until

PACKAGES = Path(__file__).with_name("npm") / "node_modules"
FILESYSTEM = "@modelcontextprotocol/server-filesystem"
FENCE = "```"


def call(tool: str, **arguments: object) -> str:
    return f"{FENCE}tool {tool}\n{json.dumps(arguments)}\n{FENCE}"


def approved(api: Api, notebook: Notebook, tool: str) -> None:
    """Waits for the ask about `tool`, and says yes."""

    def found() -> str | None:
        asks = api.client.get("/api/v1/asks").json()
        return next((ask["id"] for ask in asks if (ask["notebook_id"], ask["tool"]) == (notebook.id, tool)), None)

    answer = api.client.post(f"/api/v1/asks/{until(found, f'{tool} is asked about', 60)}", json={"verdict": "approve"})
    assert answer.status_code == 200, answer.text


def run(api: Api, notebook: Notebook, *tools: str) -> list[dict[str, Any]]:
    """Runs the notebook's turn with a yes to each of the calls it should make; returns what became of them."""
    [cell] = notebook.cells
    notebook.run(cell)
    for tool in tools:
        approved(api, notebook, tool)
    ended = notebook.wait(cell, "done", "error", seconds=60)
    return [item for item in ended["story"]["items"] if item["t"] == "tool"]


def test_a_server_from_pypi_in_a_turn(api: Api) -> None:
    step = call("time__convert_time", source_timezone="Asia/Kathmandu", time="12:00", target_timezone="UTC")
    notebook = api.notebook(("agent", f"When is noon in Kathmandu?\n\n{step}"))
    notebook.ask("add_server", server="time", command=["mcp-server-time"])
    [made] = run(api, notebook, "time__convert_time")
    assert made["status"] == "done"
    assert "06:15" in made["text"]


@pytest.mark.own_machine("a server of npm is put into the notebook's folder")
def test_servers_from_pypi_and_npm_in_one_turn(target: Target, api: Api) -> None:
    if shutil.which("node") is None or not (PACKAGES / FILESYSTEM).is_dir():
        pytest.skip("needs node, and the tool server that `make servers` installs with npm")
    assert target.server is not None
    steps = [
        "When is noon in Kathmandu? Write it down.",
        call("time__convert_time", source_timezone="Asia/Kathmandu", time="12:00", target_timezone="UTC"),
        call("files__write_file", path="noon.txt", content="06:15\n"),
        call("files__list_directory", path="."),
        call("files__read_text_file", path="/etc/hostname"),
    ]
    notebook = api.notebook(("agent", "\n\n".join(steps)))
    folder = target.server.data / "workspaces" / notebook.id
    shutil.copytree(PACKAGES, folder / "node_modules", symlinks=True)
    notebook.ask("add_server", server="time", command=["mcp-server-time"])
    notebook.ask("add_server", server="files", command=["node", f"node_modules/{FILESYSTEM}/dist/index.js", "."])
    tools = ("time__convert_time", "files__write_file", "files__list_directory", "files__read_text_file")
    made = run(api, notebook, *tools)
    assert [item["status"] for item in made] == ["done", "done", "done", "error"], made
    assert "noon.txt" in made[2]["text"]
    assert "denied" in made[3]["text"].lower()  # by the server itself: it is outside of what it was given
    assert notebook.file("noon.txt") == "06:15\n"
    frames = notebook.frames()
    [kept] = [frame for frame in frames if frame["kind"] == "file" and frame["body"]["path"] == "noon.txt"]
    wrote = made[1]["call"]
    [settled] = [
        frame
        for frame in frames
        if frame["kind"] == "tool" and frame["body"] == {**frame["body"], "event": "result", "call": wrote}
    ]
    assert kept["seq"] < settled["seq"], "what a server's program wrote is kept before its call is settled"
