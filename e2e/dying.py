"""The command `nightbook` with a weak heart: at a named point of a turn it kills itself with -9, once.

Run as `python -m e2e.dying serve`. The point is what the file `die` in the data folder says; who dies there takes the
file away first, so the next life goes past that point.
"""

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import trio

from app import cli
from engine.agent.making import Calls
from engine.agent.models.runbook import RunbookModel
from engine.agent.turn import Turn
from engine.broker import Broker

FILE = "die"
THINKING = "thinking"  # while a reply is streamed
REPLIED = "replied"  # a reply is stored, nothing of it told yet
ASKED = "asked"  # an ask stands, nobody answered
RESERVED = "reserved"  # the effect is reserved, its call not begun
DONE = "done"  # the call was made, its result is not stored
SETTLED = "settled"  # the result is stored, the next round not begun
PARKED = "parked"  # the turn yielded
POINTS = (THINKING, REPLIED, ASKED, RESERVED, DONE, SETTLED, PARKED)


def die_at(point: str) -> None:
    file = Path(os.environ["NIGHTBOOK_DATA"]) / FILE
    if file.exists() and file.read_text() == point:
        file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def dying(owner: type, name: str, point: str, *, when: Callable[[Any], bool] = lambda result: True) -> None:
    """Lets the method die behind its end."""
    method: Callable[..., Awaitable[Any]] = getattr(owner, name)

    async def call(*args: Any, **more: Any) -> Any:
        result = await method(*args, **more)
        if when(result):
            die_at(point)
        return result

    setattr(owner, name, call)


def weaken() -> None:
    dying(Turn, "_store", REPLIED)
    dying(Broker, "decide", ASKED)
    dying(Calls, "_reserve", RESERVED)
    dying(Calls, "_do", DONE)
    dying(Calls, "_settle", SETTLED)
    park = Calls._park

    async def parked(calls: Calls) -> None:
        step = calls._host.step

        async def stepped(decide: Any) -> None:
            await step(decide)
            die_at(PARKED)

        calls._host.step = stepped  # type: ignore[method-assign]
        try:
            await park(calls)
        finally:
            calls._host.step = step  # type: ignore[method-assign]

    Calls._park = parked  # type: ignore[method-assign]
    reply = RunbookModel.reply

    async def thinking(model: RunbookModel, *args: Any) -> Any:
        async for item in reply(model, *args):
            yield item
            if (Path(os.environ["NIGHTBOOK_DATA"]) / FILE).exists():
                await trio.sleep(0.5)  # so that what was said is stored
                die_at(THINKING)

    RunbookModel.reply = thinking  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    weaken()
    cli.main()
