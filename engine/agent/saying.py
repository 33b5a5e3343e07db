"""What a model says while it replies, on its way into frames: pieces that come close together become one."""

from __future__ import annotations

from typing import Any

import trio

from engine.agent.calls import Search, Thought
from engine.agent.making import Host
from engine.frames import Draft, draft
from engine.notebook import Notebook
from engine.runs import Decided

THOUGHT_SECONDS = 0.15  # pieces that come within this become one frame
THOUGHT_CHARACTERS = 16_000  # in one frame


class Saying:
    """Of one turn. `at` names its place in each frame."""

    def __init__(self, host: Host, at: dict[str, Any]) -> None:
        self._host = host
        self._at = at
        self._said: list[Draft] = []  # what is not committed yet
        self._more = trio.Event()

    def add(self, number: int, item: Thought | Search) -> None:
        """A piece of what round `number` says."""
        if isinstance(item, Search):
            self.tell(draft("search", round=number, query=item.query, sources=list(item.sources), **self._at))
            return
        self.tell(*[
            draft(
                "thought", round=number, text=item.text[at : at + THOUGHT_CHARACTERS], thinking=item.thinking or None,
                **self._at,
            )
            for at in range(0, len(item.text), THOUGHT_CHARACTERS)
        ])  # fmt: skip

    def tell(self, *drafts: Draft) -> None:
        """More that is told with it."""
        self._said += drafts
        self._more.set()

    def forget(self) -> None:
        """What is not stored yet was of a reply that is asked for again."""
        self._said.clear()

    async def keep_telling(self) -> None:
        """Commits what comes, until it is cancelled."""
        while True:
            await self._more.wait()
            self._more = trio.Event()
            if not self._said:  # it was stored with its reply, or forgotten
                continue
            taken: list[Draft] = []

            def tell(_: Notebook, taken: list[Draft] = taken) -> Decided:
                taken += self.take()
                return taken, ()

            try:
                await self._host.step(tell)
            except trio.Cancelled:  # the reply ended meanwhile, and the step was withdrawn: it is told with the reply
                self._said[:0] = taken
                raise
            await trio.sleep(THOUGHT_SECONDS)

    def take(self) -> list[Draft]:
        """What was said since, neighbouring pieces joined."""
        said, self._said = self._said, []
        joined: list[Draft] = []
        for item in said:
            last = joined[-1] if joined else None
            if (
                last is not None
                and last.kind == item.kind == "thought"
                and last.fields.get("thinking") == item.fields.get("thinking")
                and len(last.fields["text"]) + len(item.fields["text"]) <= THOUGHT_CHARACTERS
            ):
                fields = {**item.fields, "text": last.fields["text"] + item.fields["text"]}
                joined[-1] = draft("thought", **fields, **self._at)
            else:
                joined.append(item)
        return joined
