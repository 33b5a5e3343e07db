""" "Try it": a place is asked for its models the way a turn would speak to it, and says what came of that."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import replace

import pytest
import trio

from engine.agent.models.places import ModelsConfig, Place
from engine.agent.models.trying import try_place
from tests.engine.agent.models import spoken
from tests.engine.agent.models.spoken import Answer, Asked, provider
from tests.engine.agent.models.test_protocols import HELLO, KEY, PROTOCOLS, config, error_body, model, said

LIST = Answer([json.dumps({"data": [{"id": "one"}, {"id": 7}, {"id": "two"}]}).encode()], headers=dict(spoken.JSON))


def place(protocol: str, url: str) -> Place:
    found: Place = getattr(config(url), protocol)
    return found


@pytest.mark.trio
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_it_is_asked_with_what_a_turn_is_asked_with(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key in the same header, and what the environment adds for a gateway."""
    monkeypatch.setenv(f"{protocol.upper()}_CUSTOM_HEADERS", "X-Gateway: ours")

    def script(asked: Asked) -> Answer:
        return LIST if asked.method == "GET" else Answer(HELLO[protocol])

    with provider(script) as server:
        tried = await trio.to_thread.run_sync(asyncio.run, try_place(place(protocol, server.url)))
        await said(model(server, protocol))
    assert tried.models == ("one", "two")
    own = [
        {name: value for name, value in asked.headers.items() if KEY in value or name == "x-gateway"}
        for asked in server.asked
    ]
    assert own[0] == own[1]
    assert len(own[0]) >= 2


@pytest.mark.asyncio
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_what_the_other_side_answers_is_said(protocol: str) -> None:
    answers = {
        "refuses the key of": spoken.refusal(401, error_body(protocol, "authentication_error", f"wrong: {KEY}")),
        "a web page instead of": spoken.refusal(200, "<!DOCTYPE html>Sign in"),
        "application/json of no use": Answer([b'{"models": []}'], headers=dict(spoken.JSON)),
        "no list of models": spoken.refusal(404, error_body(protocol, "not_found_error", "no route")),
        "failed with status 503": spoken.refusal(503, error_body(protocol, "api_error", "later")),
    }
    with provider(list(answers.values())) as server:
        for words in answers:
            tried = await try_place(place(protocol, server.url))
            assert words in (tried.error or ""), tried
            assert KEY not in (tried.error or "")
    assert "cannot be reached" in ((await try_place(place(protocol, server.url))).error or "")


def test_a_local_server_that_is_not_there_costs_no_import() -> None:
    with provider([LIST]) as server:
        pass
    code = (
        "import asyncio, sys\n"
        "from engine.agent.models.places import ModelsConfig\n"
        "from engine.agent.models.trying import try_place\n"
        "from dataclasses import replace\n"
        f"place = replace(ModelsConfig().ollama, url={server.url!r} + '/v1')\n"
        "print('cannot be reached' in asyncio.run(try_place(place)).error, 'openai' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


@pytest.mark.asyncio
async def test_a_key_that_is_missing_is_not_even_tried() -> None:
    tried = await try_place(replace(ModelsConfig().anthropic, url="http://127.0.0.1:9"))
    assert "set ANTHROPIC_API_KEY" in (tried.error or "")
