"""Tools that touch nothing but the turn's own story: `progress`, `check`, `ask_person`, `deliver`, `wait`.

All are `pure`: what they tell is committed with their result, in one step, so a repetition after a crash tells it once.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import trio
from pydantic import BaseModel, ConfigDict, Field

from engine.agent.calls import Description, EffectClass, Result, Room, ToolFailed
from engine.agent.tools.reading import expect_inside
from engine.agent.tools.text import one_line
from engine.files import Cause
from engine.frames import TEXT_LIMIT, Risk, draft
from engine.workspace import shown

WAIT_SECONDS = 24 * 3600


class Progress:
    """Says how far the turn is."""

    class Arguments(BaseModel):
        """Tells people how far you are, in a few words. Use it when a piece of work takes more than a minute."""

        model_config = ConfigDict(extra="forbid")
        text: Annotated[str, Field(min_length=1, max_length=500, description="What is going on, for people")]
        fraction: Annotated[float | None, Field(ge=0, le=1, description="How much is done, from 0 to 1")] = None

    name: ClassVar[str] = "progress"
    risk: ClassVar[Risk] = "read"
    effect: ClassVar[EffectClass] = "pure"

    async def describe(self, room: Room, arguments: Arguments) -> Description:
        return Description(title=one_line(arguments.text), command=arguments.text)

    async def run(self, room: Room, key: str, arguments: Arguments, description: Description) -> Result:
        told = draft(
            "progress", cell_id=room.cell_id, run_id=room.run_id, text=arguments.text, fraction=arguments.fraction
        )
        return Result("done", "told", drafts=[told])

    async def look_up(self, room: Room, key: str, arguments: Arguments) -> Result | None:
        return None


class Check:
    """Puts an item on the checklist, or ticks it. Ticking is not closing: only a person does that."""

    class Arguments(BaseModel):
        """Puts an item on the notebook's checklist, or ticks it when it is done. The same words are the same item."""

        model_config = ConfigDict(extra="forbid")
        item: Annotated[str, Field(min_length=1, max_length=300, description="The item, in the words of the list")]
        done: Annotated[bool, Field(description="Whether it is done; false puts it on the list")] = True

    name: ClassVar[str] = "check"
    risk: ClassVar[Risk] = "read"
    effect: ClassVar[EffectClass] = "pure"

    async def describe(self, room: Room, arguments: Arguments) -> Description:
        mark = "done" if arguments.done else "to do"
        return Description(title=f"{one_line(arguments.item)}: {mark}", command=arguments.item)

    async def run(self, room: Room, key: str, arguments: Arguments, description: Description) -> Result:
        item = arguments.item.strip()
        if len(room.notebook.checks) >= 500 and item not in room.notebook.checks:
            raise ToolFailed("the checklist is full (500 items): tick what is there")
        told = draft("check", cell_id=room.cell_id, run_id=room.run_id, item=item, done=arguments.done)
        return Result("done", description.title, drafts=[told])

    async def look_up(self, room: Room, key: str, arguments: Arguments) -> Result | None:
        return None


class AskPerson:
    """Ends the turn with a question; the answer goes on with it."""

    class Arguments(BaseModel):
        """Asks the people of this notebook a question that only they can answer, and ends your turn.

        You go on when one of them answers, in minutes or in days. Ask when a wrong guess would cost more than waiting.
        """

        model_config = ConfigDict(extra="forbid")
        question: Annotated[str, Field(min_length=1, max_length=10_000, description="One question, with what matters")]

    name: ClassVar[str] = "ask_person"
    risk: ClassVar[Risk] = "read"
    effect: ClassVar[EffectClass] = "pure"

    async def describe(self, room: Room, arguments: Arguments) -> Description:
        return Description(title=one_line(arguments.question), command=arguments.question)

    async def run(self, room: Room, key: str, arguments: Arguments, description: Description) -> Result:
        return Result("done", arguments.question, ends="answer")

    async def look_up(self, room: Room, key: str, arguments: Arguments) -> Result | None:
        return None


class Deliver:
    """Hands over what the turn made, and ends it. A person decides whether it is done."""

    class Arguments(BaseModel):
        """Hands over your result and ends your turn: what you did and found, and the files that are part of it."""

        model_config = ConfigDict(extra="forbid")
        text: Annotated[str, Field(max_length=TEXT_LIMIT // 4, description="Markdown, for people who did not look on")]
        files: Annotated[
            list[Annotated[str, Field(min_length=1, max_length=1024)]],
            Field(max_length=100, description="Paths of files in the notebook's folder"),
        ] = []

    name: ClassVar[str] = "deliver"
    risk: ClassVar[Risk] = "read"
    effect: ClassVar[EffectClass] = "pure"

    async def describe(self, room: Room, arguments: Arguments) -> Description:
        files = [expect_inside(path) for path in arguments.files]
        title = one_line(arguments.text) or ", ".join(files) or "nothing to hand over"
        return Description(title=title, command=arguments.text, touches=files)

    async def run(self, room: Room, key: str, arguments: Arguments, description: Description) -> Result:
        files = [expect_inside(path) for path in arguments.files]
        cause = Cause("agent", room.cell_id, room.run_id, room.call_id)
        for path in files:
            if not await room.files.keep_one(path, cause):
                raise ToolFailed(f"there is no file {shown(path)} that could be kept: write it, or leave it out")
        told = draft("delivered", cell_id=room.cell_id, run_id=room.run_id, text=arguments.text, files=files or None)
        return Result("done", "delivered", drafts=[told], ends="delivered")

    async def look_up(self, room: Room, key: str, arguments: Arguments) -> Result | None:
        return None


class Wait:
    """Lets time pass. A crash starts its time again: it is a pause, not an alarm."""

    class Arguments(BaseModel):
        """Waits, for something outside to happen. The time counts against your turn's own."""

        model_config = ConfigDict(extra="forbid")
        seconds: Annotated[float, Field(ge=0, le=WAIT_SECONDS, description="How long")]

    name: ClassVar[str] = "wait"
    risk: ClassVar[Risk] = "read"
    effect: ClassVar[EffectClass] = "pure"

    async def describe(self, room: Room, arguments: Arguments) -> Description:
        return Description(title=f"wait {arguments.seconds:g} s", command=f"wait {arguments.seconds:g}")

    async def run(self, room: Room, key: str, arguments: Arguments, description: Description) -> Result:
        await trio.sleep(arguments.seconds)
        return Result("done", f"waited {arguments.seconds:g} s")

    async def look_up(self, room: Room, key: str, arguments: Arguments) -> Result | None:
        return None
