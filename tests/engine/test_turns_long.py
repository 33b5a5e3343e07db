"""Conversations that become long: older rounds become a summary that is stored and shown, and the turn goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.agent.models.choosing import Chosen
from tests.engine.agent.models import spoken
from tests.engine.agent.models.spoken import Answer, Asked, Provider, provider
from tests.engine.agent.models.test_protocols import HELLO, MODELS, PROTOCOLS, config, error_body
from tests.engine.engine_run import Hand, worker
from tests.engine.test_turns_models import items

LINES = "".join(f"{number:05d} of the long file\n" for number in range(400))


def size(asked: Asked) -> int:
    """About the tokens of a conversation."""
    return len(json.dumps(asked.body["messages"])) // 4


def reads(protocol: str, tokens: int = 25) -> Answer:
    """A reply that reads the long file, and says that it has read so many tokens."""
    if protocol == "anthropic":
        call = spoken.tool(0, "read_file", '{"path": "long.txt"}', id=f"toolu_{tokens}")
        return Answer([spoken.start(tokens), *call, *spoken.stop("tool_use")])
    call = spoken.tool_chunks(0, "read_file", '{"path": "long.txt"}', id=f"call_{tokens}")
    return Answer(spoken.completion(*call, finish="tool_calls"))


async def begun(hand: Hand, request: str, model: str) -> tuple[str, str]:
    """A notebook with a long file and an agent cell that a model works on."""
    notebook_id, [cell] = await hand.create(("agent", request))
    folder = hand.folder / "workspaces" / notebook_id
    folder.mkdir(parents=True)
    (folder / "long.txt").write_text(LINES)
    await hand.ask(notebook_id, "set_model", model=model)
    await hand.ask(notebook_id, "set_policy", policy="all")
    await hand.ask(notebook_id, "run_cell", cell_id=cell)
    return notebook_id, cell


def compactions(notebook: Any, cell: str) -> list[dict[str, Any]]:
    return [item for item in items(notebook, cell, "context") if item["event"] == "compacted"]


@pytest.mark.trio
async def test_past_a_share_of_the_window_older_rounds_become_a_summary(database: str, tmp_path: Path) -> None:
    """What a person said in those rounds is still said by a person, and not among the data."""
    rounds = 12

    def script(asked: Asked) -> Answer:
        number = len(server.asked)
        return Answer(HELLO["anthropic"]) if number in (1, rounds + 2) else reads("anthropic", size(asked))

    asked_for = "Read it twelve times, and answer in verse."
    with provider(script) as server:
        models = Chosen(config(server.url, context_tokens=20_000))
        async with worker(database, tmp_path, models=models) as hand:
            notebook_id, cell = await begun(hand, "Say hello.", MODELS["anthropic"])
            assert await hand.ended(notebook_id, cell, 60) == "done"
            await hand.ask(notebook_id, "follow_up", cell_id=cell, text=asked_for)
            await hand.until(notebook_id, lambda _: len(server.asked) == rounds + 2, 60)
            assert await hand.ended(notebook_id, cell, 60) == "done"
            notebook = await hand.notebook(notebook_id)
            rows = await hand.sql("SELECT body->'summary' AS summary FROM reply WHERE round < 0 ORDER BY round DESC")
    told = compactions(notebook, cell)
    assert len(told) >= 1
    stored = [json.loads(row["summary"]) for row in rows if row["summary"] not in (None, "null")]
    assert [one["upto"] for one in stored] == [one["upto"] for one in told]
    assert "read_file" in told[-1]["text"]
    assert asked_for in told[-1]["text"]
    assert max(map(size, server.asked)) < 20_000
    last = server.asked[-1].body["messages"]
    opening = last[0]["content"][0]["text"]
    assert '<data from="earlier rounds">' in opening
    assert asked_for in opening.rpartition("</data>")[2]
    assert json.dumps(LINES[:50])[1:-1] in json.dumps(last[-1]["content"])
    assert len(items(notebook, cell, "tool")) == rounds


def too_long(protocol: str) -> Answer:
    words = "prompt is too long: 9000 tokens > 8000 maximum"
    if protocol == "openai":
        words = "This model's maximum context length is 8000 tokens. However, your messages resulted in 9000 tokens."
    return spoken.refusal(400, error_body(protocol, "invalid_request_error", words))


def full(protocol: str) -> Answer:
    """The window ended in the midst of the reply."""
    return Answer(spoken.message(spoken.text(0, "So f"), reason="model_context_window_exceeded"))


@pytest.mark.trio
@pytest.mark.parametrize(("protocol", "answer"), [("anthropic", too_long), ("openai", too_long), ("anthropic", full)])
async def test_what_a_model_cannot_read_any_more_is_put_together_once(
    protocol: str, answer: Callable[[str], Answer], database: str, tmp_path: Path
) -> None:
    """Although by our own count there was room."""

    def script(asked: Asked) -> Answer:
        if size(asked) > 8_000:
            return answer(protocol)
        return reads(protocol) if len(server.asked) < 6 else Answer(HELLO[protocol])

    with provider(script) as server:
        async with worker(database, tmp_path, models=Chosen(config(server.url))) as hand:
            notebook_id, cell = await begun(hand, "Read it.", MODELS[protocol])
            assert await hand.ended(notebook_id, cell, 60) == "done"
            notebook = await hand.notebook(notebook_id)
            frames = await hand.frames(notebook_id)
            rows = await hand.sql("SELECT count(*) FROM reply WHERE body->'summary'->>'text' LIKE '%read_file%'")
    retried = [frame.body for frame in frames if frame.kind == "run" and frame.body["event"] == "retrying"]
    assert retried
    assert all("does not fit the window" in one["reason"] for one in retried)
    assert len(compactions(notebook, cell)) == len(retried) == rows[0][0]
    assert [one["text"] for one in items(notebook, cell, "thought")] == ["Hello"]


@pytest.mark.trio
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_what_does_not_fit_even_then_ends_the_turn_in_words(protocol: str, database: str, tmp_path: Path) -> None:
    def script(asked: Asked) -> Answer:
        return reads(protocol) if len(server.asked) == 1 else too_long(protocol)

    async def error(server: Provider) -> str:
        async with worker(database, tmp_path, models=Chosen(config(server.url))) as hand:
            notebook_id, cell = await begun(hand, "Read it.", MODELS[protocol])
            assert await hand.ended(notebook_id, cell, 60) == "error"
            [told] = items(await hand.notebook(notebook_id), cell, "error")
            return str(told["reason"])

    with provider(script) as server:
        assert "begin a new cell" in await error(server)
        assert len(server.asked) == 3, "once as it is, once with a summary"
    with provider([too_long(protocol)]) as server:
        assert "NIGHTBOOK_CONTEXT_TOKENS" in await error(server)
        assert len(server.asked) == 1, "there was nothing to put together"
