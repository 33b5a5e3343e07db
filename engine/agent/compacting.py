"""When a conversation becomes long: older rounds are put together into a summary that is stored and shown. Pure.

The summary is made by rule, not by a model: it costs nothing, cannot fail, and is the same again after a crash. What
people said in those rounds stays beside it, as it is no data to a model: `{"upto", "text", "said"}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.agent.calls import Exchange
from engine.trimming import trimmed

SHARE = 0.75  # of the tokens that may be read in one round; past it older rounds are put together
KEPT = 4  # newest rounds that stay as they are
SAID, RESULT, ARGUMENTS = 600, 500, 300  # characters of each that a summary keeps
WHOLE = 24_000  # characters of a summary; the oldest of it goes first
NEWEST = 8_000  # characters of what was said last: it may be the request that the turn works on
MESSAGES = 30  # of people, that a summary keeps
TOKEN = 4  # characters that a token has about


def tokens_of(exchanges: Sequence[Exchange], said: int) -> int:
    """About how many tokens the next round would read: what the last one counted and what came since, or an estimate.
    `said` characters stand before the first exchange."""
    since, counted = 0, 0
    for exchange in reversed(exchanges):
        since += sum(len(result.text) for result in exchange.results.values()) + sum(map(len, exchange.messages))
        usage = exchange.reply.get("usage")
        if usage is not None:
            counted = usage["input"] + usage["output"]
            break
        since += len(json.dumps(exchange.reply["state"]))
    else:
        since += said
    return counted + since // TOKEN


def compacted(standing: Mapping[str, Any], exchanges: Sequence[Exchange], said: int, window: int) -> dict[str, Any]:
    """The summary that is to stand for older rounds from now on; empty as long as all of them fit `window` tokens.
    `standing` is the one so far, or empty; `said` as in `tokens_of`."""
    newest = exchanges[int(standing.get("upto", 0)) :]
    if len(newest) <= KEPT or tokens_of(newest, said) < SHARE * window:
        return {}
    return _put_together(standing, exchanges, KEPT)


def shortened(standing: Mapping[str, Any], exchanges: Sequence[Exchange]) -> dict[str, Any]:
    """The summary for a conversation that the model's window did not hold, whatever was counted: half of its rounds
    stay. Empty when there is nothing left to put together."""
    newest = len(exchanges) - int(standing.get("upto", 0))
    return _put_together(standing, exchanges, min(KEPT, newest // 2)) if newest else {}


def _put_together(standing: Mapping[str, Any], exchanges: Sequence[Exchange], keep: int) -> dict[str, Any]:
    upto = len(exchanges) - keep
    older = exchanges[int(standing.get("upto", 0)) : upto]
    said = [*standing.get("said", ()), *(text for exchange in older for text in exchange.messages)][-MESSAGES:]
    said = [trimmed(_bare(text), SAID) for text in said[:-1]] + [trimmed(_bare(text), NEWEST) for text in said[-1:]]
    return {"upto": upto, "text": summary(standing.get("text"), older), "said": said}


def summary(before: str | None, exchanges: Sequence[Exchange]) -> str:
    """What became of `exchanges`, behind an earlier summary."""
    parts = [before] if before else []
    for exchange in exchanges:
        said = exchange.reply["state"].get("text")
        lines = [trimmed(said.strip(), SAID)] if isinstance(said, str) and said.strip() else []
        for call in exchange.reply["calls"]:
            result = exchange.results.get(call["id"])
            became = "no result" if result is None else f"{result.status}: {trimmed(result.text.strip(), RESULT)}"
            lines.append(f"- {call['tool']} {_short(call['arguments'])}\n  {became}")
        if lines:
            parts.append("\n".join(lines))
    text = "\n\n".join(parts)
    return text if len(text) <= WHOLE else f"(the oldest is left out)\n{text[-WHOLE:]}"


def _bare(message: str) -> str:
    """What was said, without the files and cells that came with it."""
    return message.partition("<data from=")[0].strip()


def _short(arguments: Mapping[str, Any]) -> str:
    return trimmed(json.dumps(arguments, ensure_ascii=False), ARGUMENTS)
