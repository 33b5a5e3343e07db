"""Tools that run code, change cells or only tell: what they ask for, and what they make of the answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from engine.agent.calls import CodeResult, ToolFailed
from engine.agent.tools import TOOLS
from tests.engine.agent.tools.house import house


def test_every_tool_says_what_models_and_policies_need() -> None:
    for name, tool in TOOLS.items():
        schema = tool.Arguments.model_json_schema()
        assert tool.name == name
        assert len(schema["description"]) > 40, name
        assert schema["additionalProperties"] is False, name
        assert tool.risk in ("read", "write", "run", "network")
        assert tool.effect in ("pure", "keyed", "once")
    assert {"shell", "python", "read_file", "write_file", "edit_file", "list_files", "search_files"} <= TOOLS.keys()
    assert {"fetch", "add_cell", "run_cell", "check", "progress", "ask_person", "deliver", "wait"} <= TOOLS.keys()


@pytest.mark.trio
async def test_a_cell_is_added_by_the_same_decision_as_a_person_s_and_run_by_its_version(
    database: str, tmp_path: Path
) -> None:
    async with house(database, tmp_path) as room:
        added = await room.call(TOOLS["add_cell"], "c1", kind="python", source="1 + 1")
        cell_id = room.notebook.order[-1]
        assert added.text == f"added cell {cell_id}"
        cell = room.notebook.cells[cell_id]
        assert (cell.kind, cell.source) == ("python", "1 + 1")
        run = TOOLS["run_cell"]
        arguments = run.Arguments.model_validate({"cell_id": cell_id})
        described = await run.describe(room, arguments)
        room.outcome = CodeResult("done", "2\n", 0, None, None)
        assert (await run.run(room, "k", arguments, described)).text == "2\n"
        assert room.code == [("k", "cell", cell_id)]
        stale = type(described)(described.title, described.command, facts=(f"cell {cell_id} is version 1, python",))
        with pytest.raises(ToolFailed, match="edited meanwhile"):
            await run.run(room, "k", arguments, stale)
        assert "there is no cell nowhere" in await room.failure(run, cell_id="nowhere")
        assert "only Python and shell" in await room.failure(run, cell_id=room.cell_id)
        assert "there is no cell gone" in await room.failure(TOOLS["add_cell"], kind="shell", source="", after="gone")


@pytest.mark.trio
async def test_code_gives_its_text_and_why_it_was_not_done(database: str, tmp_path: Path) -> None:
    async with house(database, tmp_path) as room:
        room.outcome = CodeResult("error", "no such file\n", 0, "exit status 2", 2)
        result = await room.call(TOOLS["shell"], command="ls x")
        assert (result.status, result.text) == ("error", "no such file\n[error: exit status 2]")
        room.outcome = CodeResult("done", "x" * 1_000_000, 99_000_000, None, 0)
        result = await room.call(TOOLS["python"], code="print()")
        assert len(result.text) < 50_000
        assert result.left_out > 99_900_000


@pytest.mark.trio
async def test_a_rule_can_cover_one_simple_command_one_host_one_path_and_nothing_else(
    database: str, tmp_path: Path
) -> None:
    async with house(database, tmp_path) as room:
        for name, arguments, words in (
            ("shell", {"command": "pytest -q"}, ["pytest", "-q"]),
            ("shell", {"command": "pytest; rm x"}, None),
            ("python", {"code": "1"}, None),
            ("fetch", {"url": "https://example.org/a?b"}, ["https://example.org"]),
            ("fetch", {"url": "https://example.org:8443/a"}, ["https://example.org:8443"]),
            ("fetch", {"url": "https://example.org/a", "save_as": "x"}, None),
            ("send", {"url": "https://example.org/a"}, None),
            ("write_file", {"path": "./a//b.txt", "content": ""}, ["a/b.txt"]),
        ):
            tool = TOOLS[name]
            described = await tool.describe(room, tool.Arguments.model_validate(arguments))
            assert (None if described.words is None else list(described.words)) == words, name
            assert (described.rule is None) == (words is None), name


@pytest.mark.trio
async def test_what_a_turn_tells_is_committed_with_its_result(database: str, tmp_path: Path) -> None:
    async with house(database, tmp_path) as room:
        await room.call(TOOLS["check"], item=" tests pass ", done=False)
        await room.call(TOOLS["check"], item="tests pass")
        assert room.notebook.checks == {"tests pass": True}
        await room.call(TOOLS["progress"], text="half way", fraction=0.5)
        question = await room.call(TOOLS["ask_person"], question="Which one?")
        assert (question.text, question.ends) == ("Which one?", "answer")
        assert (await room.call(TOOLS["wait"], seconds=0.01)).text == "waited 0.01 s"
        with pytest.raises(ValidationError):
            await room.call(TOOLS["wait"], seconds=-1)


@pytest.mark.trio
async def test_what_is_delivered_is_there_and_kept(database: str, tmp_path: Path) -> None:
    async with house(database, tmp_path) as room:
        deliver = TOOLS["deliver"]
        assert "there is no file report.md" in await room.failure(deliver, text="Done", files=["report.md"])
        await room.files.fill()
        (room.folder / "report.md").write_text("by a program")
        result = await room.call(deliver, text="Done", files=["./report.md"])
        assert result.ends == "delivered"
        assert room.notebook.files["report.md"]["version"] == 1
        assert "cannot go up" in await room.failure(deliver, text="Done", files=["../x"])
