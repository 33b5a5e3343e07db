"""Runbooks as text: what becomes a step, and what is told, with its line, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from engine.agent.calls import KERNEL_GONE, Call, Conversation, Exchange, Reply, Result, Thought, spec
from engine.agent.models.runbook import STEPS, WORDS, Malformed, RunbookModel, parse, pieces
from engine.agent.tools import TOOLS

F = "```"
SPECS = [spec(tool) for tool in TOOLS.values()]


def block(word: str, *lines: str) -> str:
    return "\n".join([f"{F}{word}", *lines, F])


@pytest.mark.parametrize(
    ("source", "tool", "arguments"),
    [
        (block("sh", "echo hi", "ls"), "shell", {"command": "echo hi\nls"}),
        (block("python", "x = 1", "", "x"), "python", {"code": "x = 1\n\nx"}),
        (block("fetch https://example.org/a?b=c"), "fetch", {"url": "https://example.org/a?b=c"}),
        (block("write notes/a b.md", "# Hi"), "write_file", {"path": "notes/a b.md", "content": "# Hi\n"}),
        (block("write empty"), "write_file", {"path": "empty", "content": ""}),
        (block("read a.txt"), "read_file", {"path": "a.txt"}),
        (
            block("edit a.txt", "<<<<<<<", "old", "lines", "=======", "new", ">>>>>>>"),
            "edit_file",
            {"path": "a.txt", "old": "old\nlines", "new": "new"},
        ),
        (
            block("edit a.txt", "<<<<<<< before", "gone", "=======", ">>>>>>> after"),
            "edit_file",
            {"path": "a.txt", "old": "gone\n", "new": ""},
        ),
        (block("wait 1.5"), "wait", {"seconds": 1.5}),
        (block("ask Which one?"), "ask_person", {"question": "Which one?"}),
        (block("ask", "Which", "one?"), "ask_person", {"question": "Which\none?"}),
        (block("check tests pass"), "check", {"item": "tests pass"}),
        (block("check [ ] tests pass"), "check", {"item": "tests pass", "done": False}),
        (block("progress half way"), "progress", {"text": "half way"}),
        (block("run cell-1"), "run_cell", {"cell_id": "cell-1"}),
        (block("deliver report.md", "Here it is."), "deliver", {"text": "Here it is.", "files": ["report.md"]}),
        ("~~~sh\necho ~\n~~~", "shell", {"command": "echo ~"}),
        ("````sh\ncat <<'x'\n```\nx\n````", "shell", {"command": "cat <<'x'\n```\nx"}),
        ("  ```sh\n  indented\n  ```", "shell", {"command": "indented"}),
        (f"{F}SH\nLOUD\n{F}", "shell", {"command": "LOUD"}),
    ],
)
def test_a_block_is_a_call_that_its_tool_understands(source: str, tool: str, arguments: dict[str, Any]) -> None:
    [step] = parse(source).steps
    assert (step.tool, step.arguments) == (tool, arguments)
    TOOLS[tool].Arguments.model_validate(arguments)


@pytest.mark.parametrize(
    ("source", "line", "reason"),
    [
        (f"hello\n\n{block('frobnicate', 'x')}", 3, "unknown block `frobnicate`"),
        (f"a\n{block('shell', 'ls')}", 2, "known are sh, python"),
        (f"{block('sh', 'ls')}\n\n{F}python\nprint(1)", 5, "not closed"),
        (f"{F}sh\nls\n``", 1, "not closed"),
        (f"````sh\nls\n{F}", 1, "not closed"),
        (block("sh"), 1, "is empty"),
        (block("sh ls", "ls"), 1, "takes nothing behind it"),
        (block("python", "   "), 1, "is empty"),
        (block("fetch"), 1, "needs an address"),
        (block("fetch ftp://x"), 1, "begins with http"),
        (block("fetch https://a https://b"), 1, "no address"),
        (block("fetch https://a", "body"), 1, "nothing inside"),
        (block("write", "text"), 1, "needs a path"),
        (block("read"), 1, "needs a path"),
        (block("edit a", "just text"), 1, "holds one change"),
        (block("edit a", ">>>>>>>", "=======", "<<<<<<<"), 1, "holds one change"),
        (block("edit a", "<<<<<<<", "=======", "new", ">>>>>>>"), 2, "old text is empty"),
        (block("edit a", "stray", "<<<<<<<", "x", "=======", "y", ">>>>>>>"), 1, "must be nothing"),
        (block("wait"), 1, "needs a number"),
        (block("wait soon"), 1, "no number of seconds"),
        (block("wait -1"), 1, "no number of seconds"),
        (block("ask"), 1, "needs a question"),
        (block("check"), 1, "needs an item"),
        (block("progress"), 1, "needs a few words"),
        (block("run"), 1, "needs the id"),
        (block("deliver"), 1, "needs text"),
        (block("tool"), 1, "needs the name of a tool"),
        (block("tool two words", "{}"), 1, "is no name of a tool"),
        (block("tool time__now", "{", '  "zone": }'), 3, "no JSON"),
        (block("tool time__now", '["a list"]'), 2, "are a JSON object"),
        ("\n".join([block("wait 1")] * (STEPS + 1)), 2 * STEPS + 1, f"at most {STEPS} steps"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(source: str, line: int, reason: str) -> None:
    with pytest.raises(Malformed, match=reason) as told:
        parse(source)
    assert told.value.line == line
    assert str(told.value).startswith(f"line {line}: ")


def test_prose_and_blocks_to_be_read_are_prose() -> None:
    book = parse(f"First.\n\n{block('text', 'just to read')}\n\n{block('sh', 'ls')}\nThe end.")
    assert [step.prose for step in book.steps] == [f"First.\n\n{block('text', 'just to read')}"]
    assert book.rest == "The end."
    assert parse("Inline ```code``` is prose.").steps == []
    assert len(WORDS) == 13


def test_prose_is_said_in_pieces_that_together_are_it() -> None:
    prose = "One. Two is longer! " + "word " * 100 + "\n\n" + "x" * 1000 + "\nEnd"
    said = pieces(prose)
    assert "".join(said) == prose
    assert len(said) > 5
    assert max(map(len, said)) <= 300


async def replied(source: str, *exchanges: Exchange, start_step: int | None = None) -> tuple[str, Reply]:
    items = [item async for item in RunbookModel().reply(Conversation(source, "", exchanges, (), start_step), SPECS)]
    assert isinstance(items[-1], Reply)
    return "".join(item.text for item in items if isinstance(item, Thought)), items[-1]


def exchange(step: int, result: Result, messages: Sequence[str] = ()) -> Exchange:
    reply = {"calls": [{"id": f"step-{step}"}], "state": {"step": step}}
    return Exchange(step, reply, {f"step-{step}": result}, messages)


BOOK = f"Look.\n\n{block('sh', 'ls')}\n\nThen wait.\n\n{block('wait 1')}\n\nAll done."


@pytest.mark.trio
async def test_it_goes_a_step_a_round_and_ends_behind_the_last() -> None:
    said, reply = await replied(BOOK)
    assert said == "Look."
    assert reply.calls == [Call("step-1", "shell", {"command": "ls"}, why="Look.", step=1, line=3)]
    said, reply = await replied(BOOK, exchange(1, Result("done")))
    assert (said, [call.tool for call in reply.calls]) == ("Then wait.", ["wait"])
    said, reply = await replied(BOOK, exchange(1, Result("done")), exchange(2, Result("done")))
    assert (said, list(reply.calls), reply.error) == ("All done.", [], None)


@pytest.mark.trio
@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (Result("error", "boom\n[error: exit status 3]"), r"step 1 \(sh, line 3\) failed: \[error: exit status 3\]"),
        (Result("denied", "Not run: nobody answered."), "was denied: Not run: nobody answered."),
        (Result("unknown", "Perhaps."), "may have happened or not: Perhaps."),
        (Result("cancelled"), "was stopped"),
    ],
)
async def test_a_step_that_was_not_done_ends_it_with_its_number_and_reason(result: Result, reason: str) -> None:
    import re

    _, reply = await replied(BOOK, exchange(1, result))
    assert (reply.error_step, reply.error_line, list(reply.calls)) == (1, 3, [])
    assert re.search(reason, reply.error or "")


@pytest.mark.trio
async def test_what_is_said_to_it_changes_no_step_and_it_tells_so() -> None:
    said, reply = await replied(BOOK, exchange(1, Result("done"), ["faster", KERNEL_GONE]))
    assert "changed none of them: “faster”" in said
    assert said.endswith("Then wait.")
    assert KERNEL_GONE not in said
    assert [call.tool for call in reply.calls] == ["wait"]
    over = Exchange(3, {"calls": [], "state": {"step": 3}}, {}, ["and then?"])
    said, reply = await replied(BOOK, exchange(1, Result("done")), exchange(2, Result("done")), over)
    assert (said.count("and then?"), "All done." in said, list(reply.calls), reply.error) == (1, False, [], None)
    asked = Exchange(1, {"calls": [{"id": "step-1", "tool": "ask_person"}], "state": {"step": 1}}, {}, ["the answer"])
    assert "the answer" not in (await replied(BOOK, asked))[0]


@pytest.mark.trio
async def test_going_on_begins_at_the_step_it_is_told() -> None:
    _, reply = await replied(BOOK, exchange(1, Result("denied")), start_step=1)
    assert [call.step for call in reply.calls] == [1]
    _, reply = await replied(BOOK, exchange(1, Result("denied")), exchange(1, Result("done")))
    assert [call.step for call in reply.calls] == [2]


@pytest.mark.trio
async def test_an_empty_request_is_told() -> None:
    _, reply = await replied("  \n ")
    assert "empty" in (reply.error or "")


@pytest.mark.trio
async def test_prose_alone_is_said() -> None:
    said, reply = await replied("Only words.")
    assert (said, reply.error) == ("Only words.", None)
