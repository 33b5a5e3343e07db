"""Names without clashes, words that are marked, schemas that are bounded."""

from __future__ import annotations

from typing import Any

import pytest

from engine.agent.mcp.listing import Offered, misfit, name_of, offered
from engine.agent.tools import TOOLS

ANY = {"type": "object"}


def tool(name: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": ANY, **more}


def test_names_fit_every_model_and_clash_with_none() -> None:
    raw = [tool("a b"), tool("a_b"), tool("a.b"), tool("shell"), tool("x" * 200), tool("x" * 199 + "y"), tool("ünï")]
    names = [one.name for one in offered("odd", raw).tools]
    assert names[:4] == ["odd__a_b", "odd__a_b_2", "odd__a_b_3", "odd__shell"]
    assert len(set(names)) == len(raw)
    assert all(len(name) <= 64 and name.isascii() for name in names)
    assert not set(names) & set(TOOLS)
    assert not any("__" in name for name in TOOLS)
    assert name_of("odd", "a", []) == name_of("odd", "a", [])


def test_what_is_no_tool_is_left_out_and_named() -> None:
    listing = offered("odd", [tool("good"), {"name": "bad"}, tool(""), 7, tool("deep", inputSchema={"type": "array"})])
    assert [one.own for one in listing.tools] == ["good"]
    assert len(listing.problems) == 4
    assert listing.problems[0].startswith("bad: the schema of its arguments")


def test_schemas_are_bounded_together() -> None:
    wide = {"type": "object", "properties": {f"p{n}": {"description": "x" * 100} for n in range(100)}}
    listing = offered("odd", [tool(f"t{n}", inputSchema=wide) for n in range(60)])
    assert 5 < len(listing.tools) < 20
    assert "all its schemas together" in listing.problems[0]
    assert "more" in listing.problems[-1]


def test_another_meaning_under_the_same_name_is_another_tool() -> None:
    def one(**more: Any) -> Offered:
        return offered("odd", [tool("t", **more)]).tools[0]

    assert one(description="reads").digest == one(description="reads").digest
    assert one(description="reads").digest != one(description="deletes").digest
    assert one(inputSchema={"type": "object", "required": ["x"]}).digest != one().digest


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"text": "x"}, None),
        ({"text": "x", "n": 1.0}, None),
        ({"text": "x", "n": None}, None),
        ({}, "text is missing"),
        ({"text": 7}, "text is no string"),
        ({"text": "x", "n": True}, "n is no integer or null"),
        ({"text": "x", "n": 1.5}, "n is no integer or null"),
        ({"text": "x", "other": 1}, "there is no other"),
        ("a text", "it is no object"),
    ],
)
def test_arguments_are_held_against_the_outermost_level(value: Any, told: str | None) -> None:
    schema = {
        "type": "object",
        "properties": {"text": {"type": "string", "pattern": "(a+)+$"}, "n": {"type": ["integer", "null"]}},
        "required": ["text"],
        "additionalProperties": False,
    }
    assert misfit(schema, value) == told
