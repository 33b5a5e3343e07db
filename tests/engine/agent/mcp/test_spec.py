"""Which servers there are, and what cannot be one; and that no part of the protocol is loaded before it is spoken."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.agent.mcp.spec import BadServer, ServerSpec, specs, team_servers

ROOT = Path(__file__).parents[4]


def team(**servers: Any) -> tuple[ServerSpec, ...]:
    return team_servers(json.dumps({"mcpServers": servers}), {"KEY": "s3cret"})


def test_the_form_that_such_tools_share() -> None:
    time, wiki = team(
        time={"command": "mcp-server-time", "args": ["--local-timezone", "UTC"], "env": {"TOKEN": "${KEY}"}},
        wiki={"type": "http", "url": "https://wiki.example/mcp", "headers": {"Authorization": "Bearer ${KEY}"}},
    )
    assert time.command == ("mcp-server-time", "--local-timezone", "UTC")
    assert time.environment == {"TOKEN": "s3cret"}
    assert wiki.headers == {"Authorization": "Bearer s3cret"}
    assert "s3cret" not in repr((time, wiki))
    assert (time.place, wiki.place) == ("mcp-server-time", "https://wiki.example")
    assert wiki.hide("it said s3cret") == "it said [secret]"


def test_a_file_of_that_form(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    file.write_text('{"time": {"command": "mcp-server-time"}}')
    assert [server.name for server in team_servers(str(file), {})] == ["time"]
    with pytest.raises(BadServer, match="cannot be read"):
        team_servers(str(tmp_path / "none.json"), {})


@pytest.mark.parametrize(
    ("name", "server", "reason"),
    [
        ("two words", {"command": "x"}, "small letters"),
        ("a__b", {"command": "x"}, "small letters"),
        ("x", {}, "either a command or an address"),
        ("x", {"command": "x", "url": "https://x"}, "either a command or an address"),
        ("x", {"command": ["x"]}, "command is a text"),
        ("x", {"command": "x", "args": "y"}, "args a list"),
        ("x", {"command": "x", "cwd": "/"}, "unknown cwd"),
        ("x", {"url": "ftp://x"}, "begins with http"),
        ("x", {"url": "https://user:pass@x"}, "user name or password"),
        ("x", {"url": "https://x", "type": "sse"}, "of type stdio or http"),
        ("x", {"command": "x", "env": {"A": "${NOT_SET}"}}, "NOT_SET, which is not set"),
        ("x", {"command": "x", "env": {"A B": "1"}}, "no name of an environment variable"),
        ("x", {"url": "https://x", "headers": {"A": "b\r\nc: d"}}, "cannot be sent"),
        ("x", "a text", "expected an object"),
    ],
)
def test_what_cannot_be_a_server_is_named(name: str, server: Any, reason: str) -> None:
    with pytest.raises(BadServer, match=reason):
        team(**{name: server})


def test_a_notebook_has_the_teams_servers_and_its_own() -> None:
    ours = team(time={"command": "a"}, off={"command": "b"})
    told = {
        "time": {"name": "time", "command": ["not this"]},
        "off": {"name": "off", "team": True, "off": True},
        "mine": {"name": "mine", "command": ["c", "d"]},
        "gone": {"name": "gone", "team": True, "command": ["e"]},
    }
    assert {name: spec.command for name, spec in specs(ours, told).items()} == {"time": ("a",), "mine": ("c", "d")}


def test_nothing_of_the_protocol_nor_of_http_is_loaded_at_the_start() -> None:
    heavy = ("mcp", "mcp_types", "httpx2", "jsonschema", "engine.agent.mcp.web", "httpx")
    program = f"import sys, app.process; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
