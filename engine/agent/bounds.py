"""What bounds a turn, beside its working time: rounds, attempts, repetition, what it and all others may use. Pure."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from engine.agent.calls import Exchange
from engine.agent.models.places import ModelsConfig
from engine.store.spending import Day

ROUNDS = 120  # of one turn
ATTEMPTS = 3  # at one round's reply, while nothing is replied: a model that fails
TRIES = 6  # at one round's reply, when the other side says that asking again may help
DEATHS = 6  # at one round's reply: processes that died while it was asked for
SAME_FAILURES = 3  # of one call with the same arguments, one after the other
PAUSE_SECONDS = (1.0, 4.0, 10.0, 20.0, 40.0)  # before the second attempt, the third …; up to a quarter more
LONGEST_PAUSE = 300.0  # seconds that another side may ask for
STARVED = 3  # calls that ended for want of memory, whatever was done between them
MALFORMED = 3  # rounds in a row whose calls were no calls, or whose reply was cut off
OUT_OF_MEMORY = "[error: Out of memory: "  # the last line of such a call


def runaway(exchanges: Sequence[Exchange]) -> str | None:
    """Why a turn that repeats itself must end: the same call with the same arguments failed so often in a row; or what
    it runs took all memory again and again, which looks new each time, and is no progress whatever lies between."""
    last: str | None = None
    failures = malformed = starved = 0
    for exchange in exchanges:
        wrong = [call for call in exchange.reply["calls"] if call.get("malformed")]
        malformed = malformed + 1 if wrong or exchange.reply.get("unfinished") else 0
        if malformed >= MALFORMED:
            if wrong:
                last_wrong = wrong[-1]["malformed"]
                return f"the model wrote arguments that are no JSON {MALFORMED} times in a row; {last_wrong}"
            return f"the model's reply was cut off {MALFORMED} times in a row; raise NIGHTBOOK_REPLY_TOKENS"
        for call in exchange.reply["calls"]:
            result = exchange.results.get(call["id"])
            name = json.dumps([call["tool"], call["arguments"]], sort_keys=True)
            if result is None or result.status == "done":
                last, failures = None, 0
            else:
                last, failures = name, failures + 1 if name == last else 1
            if result is not None and result.status == "error" and OUT_OF_MEMORY in result.text.rpartition("\n")[2]:
                starved += 1
            if starved >= STARVED:
                return f"memory ran out {STARVED} times in this turn; have it take less, or raise the sandbox's limit"
            if failures >= SAME_FAILURES:
                return f"the same call of {call['tool']} failed {SAME_FAILURES} times in a row, with the same arguments"
    return None


def used_up(config: ModelsConfig, tokens: int) -> str | None:
    """Why a turn that used so many tokens may use no more."""
    if config.turn_tokens is None or tokens < config.turn_tokens:
        return None
    return f"it used {tokens} tokens; NIGHTBOOK_TURN_TOKENS allows a turn {config.turn_tokens}"


def day_used_up(config: ModelsConfig, day: Day) -> str | None:
    """Why no turn may use more today (UTC)."""
    if config.day_tokens is not None and day.tokens >= config.day_tokens:
        used, allowed = f"{day.tokens} tokens", f"NIGHTBOOK_DAY_TOKENS allows {config.day_tokens}"
    elif config.day_cost is not None and (day.cost or 0.0) >= config.day_cost:
        used, allowed = f"${day.cost:.2f}", f"NIGHTBOOK_DAY_COST allows ${config.day_cost:.2f}"
    else:
        return None
    return f"today's turns used {used}; {allowed} a day (UTC). Go on tomorrow, or raise it"


def pause_before(failures: int) -> float:
    """Seconds before the next attempt; not the same for all who were turned away at once."""
    return PAUSE_SECONDS[min(failures, len(PAUSE_SECONDS)) - 1] * random.uniform(1.0, 1.25)
