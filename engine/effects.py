"""Effects of calls: their names; calls and results as they are kept.

An effect is reserved before its call begins and settled with its result, each in a step of its own. What lies between
the two when a process dies is found out by the next one, or told as unknown; it is never silently done again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from engine.agent.calls import Call, Picture, Reply, Result
from engine.trimming import bounded

RESULT_BYTES = 48 * 1024  # of UTF-8 that a result's text may have; a frame holds 64 KiB
DIFF_BYTES = 48 * 1024


def call_id(run_id: str, round_: int, index: int) -> str:
    """The name of a call in its notebook: the same again when the round is taken up after a crash."""
    return f"{run_id}.{round_}.{index}"


def effect_key(run_id: str, call: str, digest: str) -> str:
    """The name of an effect: the run, the call, and what exactly is to be done."""
    return hashlib.sha256("\0".join((run_id, call, digest)).encode()).hexdigest()[:32]


def code_run(key: str) -> str:
    """The run of code that belongs to an effect, as the sandbox knows it."""
    return f"c-{key}"


def kept(result: Result) -> dict[str, Any]:
    """A result as JSON, bounded; `left_out` says what is not there."""
    text, left_out = bounded(result.text, RESULT_BYTES)
    return {
        "status": result.status,
        "text": text,
        "left_out": result.left_out + left_out,
        "diff": None if result.diff is None else bounded(result.diff, DIFF_BYTES)[0],
        "ends": result.ends,
        "source": result.source,
        "pictures": [asdict(picture) for picture in result.pictures],
    }


def result_from(value: Mapping[str, Any]) -> Result:
    """The result that `kept` wrote."""
    return Result(
        value["status"], value["text"], diff=value.get("diff"), left_out=value["left_out"], ends=value.get("ends"),
        source=value.get("source"), pictures=tuple(Picture(**one) for one in value.get("pictures") or ()),
    )  # fmt: skip


def stored_reply(reply: Reply, run_id: str, round_: int) -> dict[str, Any]:
    """A reply as its row keeps it; its calls get their names in the notebook."""
    return {
        "calls": [
            {
                "id": call.id, "call": call_id(run_id, round_, index), "tool": call.tool,
                "arguments": call.arguments, "why": call.why, "step": call.step, "line": call.line,
                "malformed": call.malformed,
            }
            for index, call in enumerate(reply.calls, 1)
        ],
        "state": reply.state,
        "tokens": reply.usage.tokens if reply.usage else None,
        "usage": asdict(reply.usage) if reply.usage else None,
        "unfinished": reply.unfinished,
        "error": reply.error,
        "error_step": reply.error_step,
        "error_line": reply.error_line,
        "error_settings": reply.error_settings,
    }  # fmt: skip


def call_from(stored: Mapping[str, Any]) -> Call:
    """A stored call under its name in the notebook."""
    return Call(
        stored["call"], stored["tool"], stored["arguments"], stored.get("why"), stored.get("step"), stored.get("line"),
        stored.get("malformed"),
    )  # fmt: skip
