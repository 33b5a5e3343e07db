"""A model for tests: it replies as it is told, and remembers what it was shown. It needs no network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import trio

from engine.agent.calls import Call, Conversation, Model, Reply, Thought, ToolSpec
from engine.agent.models.places import ModelsConfig

Said = Sequence[Thought | Reply | float | Exception]


def calls(*wanted: tuple[str, dict[str, Any]]) -> Reply:
    """A reply that asks for calls, (tool, arguments) each."""
    return Reply([Call(f"call-{at}", tool, arguments) for at, (tool, arguments) in enumerate(wanted)])


@dataclass(frozen=True)
class Given:
    """One model, whatever is chosen."""

    model: Model
    config: ModelsConfig = field(default_factory=ModelsConfig)

    def choose(self, name: str) -> Model:
        return self.model


@dataclass
class Scripted:
    """`script(conversation)` says what comes: thoughts and a reply, pauses in seconds, errors to raise."""

    script: Callable[[Conversation], Said]
    seen: list[Conversation] = field(default_factory=list)
    name: ClassVar[str] = "scripted"

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AsyncIterator[Thought | Reply]:
        self.seen.append(conversation)
        for said in self.script(conversation):
            if isinstance(said, Exception):
                raise said
            if isinstance(said, float):
                await trio.sleep(said)
            else:
                yield said
