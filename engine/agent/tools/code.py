"""`shell` and `python`: code in the notebook's own sandbox, the Python in the kernel that the cells use."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.agent.calls import CodeResult, Description, EffectClass, Result, Room, ToolFailed
from engine.agent.tools.text import one_line
from engine.files import Cause
from engine.frames import Risk
from engine.rules import rule_title, words_of
from engine.trimming import bounded

CODE_LIMIT = 256 * 1024  # characters


async def _outcome(room: Room, key: str, kind: Literal["python", "shell"], code: str) -> Result:
    return await kept(room, await room.run_code(key, kind, code))


async def kept(room: Room, outcome: CodeResult) -> Result:
    """The outcome of a run as a call's result, once the files that its program wrote and its pictures are kept."""
    await keep_files(room)
    for picture in outcome.pictures:
        if picture.sha256 in outcome.inline:
            await room.keep_blob(picture.mime, None, outcome.inline[picture.sha256])
    return replace(result_of(outcome), pictures=tuple(outcome.pictures))


async def keep_files(room: Room) -> None:
    """What the call's program wrote is kept before the call is settled."""
    await room.files.keep(Cause("agent", room.cell_id, room.run_id, room.call_id), ends=True)


def result_of(outcome: CodeResult) -> Result:
    """What a run of code means for its caller: its text, and why it was not done when it was not."""
    text, left_out = bounded(outcome.text)
    if outcome.status == "done":
        return Result("done", text, left_out=outcome.left_out + left_out)
    reason = outcome.reason or outcome.status
    if outcome.exit is not None and "exit" not in reason:
        reason = f"{reason} (exit status {outcome.exit})"
    ending = f"[{outcome.status}: {reason}]"
    separator = "\n" if text and not text.endswith("\n") else ""
    status: Literal["cancelled", "error"] = "cancelled" if outcome.status == "cancelled" else "error"
    return Result(status, f"{text}{separator}{ending}", left_out=outcome.left_out + left_out)


class Shell:
    """Runs a command line. `once`: it may do anything, so it is never repeated; the shim keeps what became of it."""

    class Arguments(BaseModel):
        """Runs a shell command in the notebook's folder and returns what it printed.

        Each call is a shell of its own: folders and variables of one are not those of the next. It has no stdin, so
        commands that ask questions must be told the answers as options. Background processes end with the call.
        """

        model_config = ConfigDict(extra="forbid")
        command: Annotated[str, Field(min_length=1, max_length=CODE_LIMIT, description="Command line, as for bash")]

    name: ClassVar[str] = "shell"
    risk: ClassVar[Risk] = "run"
    effect: ClassVar[EffectClass] = "once"

    async def describe(self, room: Room, arguments: Arguments) -> Description:
        words = words_of(arguments.command)
        return Description(
            title=one_line(arguments.command),
            command=arguments.command,
            touches=("everything in the notebook's folder", "what its programs can reach"),
            words=words,
            rule=rule_title(self.name, words, None),
        )

    async def run(self, room: Room, key: str, arguments: Arguments, description: Description) -> Result:
        return await _outcome(room, key, "shell", arguments.command)

    async def look_up(self, room: Room, key: str, arguments: Arguments) -> Result | None:
        try:
            return await _outcome(room, key, "shell", arguments.command)
        except ToolFailed:
            return None


class Python:
    """Runs Python in the notebook's kernel. `once`, as for `shell`."""

    class Arguments(BaseModel):
        """Runs Python code in the notebook's own kernel: names that its Python cells made are there, and stay.

        Returns what it printed and the value of a last expression. There is no stdin: `input()` fails.
        """

        model_config = ConfigDict(extra="forbid")
        code: Annotated[str, Field(min_length=1, max_length=CODE_LIMIT, description="Python source")]

    name: ClassVar[str] = "python"
    risk: ClassVar[Risk] = "run"
    effect: ClassVar[EffectClass] = "once"

    async def describe(self, room: Room, arguments: Arguments) -> Description:
        return Description(
            title=one_line(arguments.code),
            command=arguments.code,
            touches=("the kernel's names", "everything in the notebook's folder", "what its programs can reach"),
        )

    async def run(self, room: Room, key: str, arguments: Arguments, description: Description) -> Result:
        return await _outcome(room, key, "python", arguments.code)

    async def look_up(self, room: Room, key: str, arguments: Arguments) -> Result | None:
        try:
            return await _outcome(room, key, "python", arguments.code)
        except ToolFailed:
            return None
