"""`write_file` and `edit_file`: changing files of the notebook's folder, as versions that can be had back.

Both are `keyed`: the version that a call commits carries the call, so that the same call, made again after a crash,
finds it and only sees to it that the folder has it too.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from engine import workspace
from engine.agent.calls import Description, EffectClass, Result, Room, ToolFailed
from engine.agent.tools.reading import FilePath, expect_inside, in_folder
from engine.diff import Diff, unified
from engine.files import Cause, ChangedMeanwhile, Placed, digest
from engine.frames import Risk
from engine.rules import rule_title

WRITE_CHARACTERS = 4 * 1024 * 1024
EDIT_BYTES = 2 * 1024 * 1024
ABSENT = "none"


@dataclass(frozen=True, slots=True)
class _File:
    """A file as a change finds it. `name` is its digest, `ABSENT` when there is none; `text` is null for no text."""

    path: str
    name: str
    text: str | None
    size: int

    @property
    def fact(self) -> str:
        return f"{self.path} is {self.name}"


async def _find(room: Room, path: str, limit: int) -> _File:
    path = expect_inside(path)
    content = await in_folder(room, _read_or_none, path, limit)
    if content is None:
        return _File(path, ABSENT, "", 0)
    data = content.data
    try:
        text = None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        text = None
    return _File(path, digest(data), text, len(data))


def _read_or_none(root: int, path: str, limit: int) -> workspace.Content | None:
    try:
        return workspace.read(root, path, limit)
    except workspace.Missing:
        return None


async def _put(room: Room, path: str, text: str, description: Description) -> Result:
    """Writes what was described over what was described."""
    was = description.facts[0].rpartition(" is ")[2]
    cause = Cause("agent", room.cell_id, room.run_id, room.call_id)
    try:
        placed = await room.files.put(expect_inside(path), text.encode(), cause, over="" if was == ABSENT else was)
    except (ChangedMeanwhile, workspace.WorkspaceError) as error:
        raise ToolFailed(str(error)) from None
    return Result("done", _told(placed, text.encode()), diff=description.diff)


def _told(placed: Placed, data: bytes) -> str:
    changed = "" if placed.drafts else ", as before"
    about = f"{len(data)} bytes, sha256 {digest(data)}"
    return f"{workspace.shown(placed.path)} is version {placed.version}{changed} ({about})"


async def _look_up(room: Room, path: str) -> Result | None:
    path = expect_inside(path)
    version = await room.files.made_by(path, room.call_id)
    return None if version is None else Result("done", f"{workspace.shown(path)} is version {version}")


def _described(tool: str, verb: str, file: _File, text: str) -> Description:
    """What people are asked about: the change as a diff, and the file by its hash."""
    path = workspace.shown(file.path)
    if file.text is None:
        change = Diff("", 0, 0)
        title = f"{path} (replaces {file.size} bytes that are no text)"
    else:
        change = unified(path, file.text, text)
        title = f"{path} (+{change.added} −{change.removed})" if change.text else f"{path} (no change)"
    return Description(
        title=title,
        command=f"{verb} {path}",
        touches=(file.path,),
        facts=(file.fact,),
        diff=change.text or None,
        words=[file.path],
        rule=rule_title(
            tool, [file.path], f"{'writing' if verb == 'write' else 'editing'} {path}, whatever the change"
        ),
    )


def _encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ToolFailed("the text has half a surrogate pair, which no file can hold as UTF-8") from None


class WriteFile:
    """Writes a whole file."""

    class Arguments(BaseModel):
        """Writes a text file in the notebook's folder, whole: a new one, or in place of one that is there. Folders on
        the way are made. The version before is kept. To change part of a file, use edit_file."""

        model_config = ConfigDict(extra="forbid")
        path: FilePath
        content: Annotated[str, Field(max_length=WRITE_CHARACTERS, description="All that the file is to hold")]
        over: Annotated[
            str | None,
            Field(
                pattern=r"^[0-9a-f]{8,64}$",
                description="The beginning of the sha256 that read_file told: fails when the file changed since",
            ),
        ] = None

    name: ClassVar[str] = "write_file"
    risk: ClassVar[Risk] = "write"
    effect: ClassVar[EffectClass] = "keyed"

    async def describe(self, room: Room, arguments: Arguments) -> Description:
        _encodable(arguments.content)
        file = await _find(room, arguments.path, 64 * 1024 * 1024)
        if arguments.over is not None and not file.name.startswith(arguments.over):
            now = "gone" if file.name == ABSENT else f"another one now (sha256 {file.name})"
            raise ToolFailed(f"{workspace.shown(file.path)} is {now}: read it again")
        return _described(self.name, "write", file, arguments.content)

    async def run(self, room: Room, key: str, arguments: Arguments, description: Description) -> Result:
        if (done := await self.look_up(room, key, arguments)) is not None:
            return done
        return await _put(room, arguments.path, arguments.content, description)

    async def look_up(self, room: Room, key: str, arguments: Arguments) -> Result | None:
        return await _look_up(room, arguments.path)


class EditFile:
    """Replaces a piece of a file."""

    class Arguments(BaseModel):
        """Replaces text in a file of the notebook's folder. `old` must be there exactly, spaces and line ends too, and
        once only (or set `all`): take it from read_file, with enough around it to be unique."""

        model_config = ConfigDict(extra="forbid")
        path: FilePath
        old: Annotated[str, Field(min_length=1, max_length=WRITE_CHARACTERS, description="Exact text to replace")]
        new: Annotated[str, Field(max_length=WRITE_CHARACTERS, description="What to put in its place")]
        all: Annotated[bool, Field(description="Replace every occurrence")] = False

    name: ClassVar[str] = "edit_file"
    risk: ClassVar[Risk] = "write"
    effect: ClassVar[EffectClass] = "keyed"

    async def describe(self, room: Room, arguments: Arguments) -> Description:
        _encodable(arguments.new)
        file = await _find(room, arguments.path, EDIT_BYTES)
        return _described(self.name, "edit", file, edited(file.path, file.name, file.text, arguments))

    async def run(self, room: Room, key: str, arguments: Arguments, description: Description) -> Result:
        if (done := await self.look_up(room, key, arguments)) is not None:
            return done
        file = await _find(room, arguments.path, EDIT_BYTES)
        text = edited(file.path, file.name, file.text, arguments)
        return await _put(room, arguments.path, text, description)

    async def look_up(self, room: Room, key: str, arguments: Arguments) -> Result | None:
        return await _look_up(room, arguments.path)


def edited(path: str, name: str, text: str | None, arguments: EditFile.Arguments) -> str:
    """`text` after the replacement. Raises `ToolFailed`, which says what is there instead."""
    path = workspace.shown(path)
    if name == ABSENT:
        raise ToolFailed(f"there is no file {path}; write_file makes one")
    if text is None:
        raise ToolFailed(f"{path} is no UTF-8 text: change it with a program")
    if arguments.old == arguments.new:
        raise ToolFailed("`old` and `new` are the same: there is nothing to change")
    count = text.count(arguments.old)
    if count == 0:
        raise ToolFailed(f"`old` is not in {path}. {_nearest(text, arguments.old)}")
    if count > 1 and not arguments.all:
        where = _lines_of(text, arguments.old)
        raise ToolFailed(
            f"`old` is {count} times in {path} (at lines {where}): add what stands around the one that is meant, "
            "or set `all`"
        )
    made = text.replace(arguments.old, arguments.new)
    if len(made) > WRITE_CHARACTERS:
        raise ToolFailed(f"{path} would have {len(made)} characters; at most {WRITE_CHARACTERS}")
    return made


def _lines_of(text: str, old: str, limit: int = 8) -> str:
    numbers: list[str] = []
    at = text.find(old)
    while at >= 0:
        if len(numbers) == limit:
            return ", ".join(numbers) + ", …"
        numbers.append(str(text.count("\n", 0, at) + 1))
        at = text.find(old, at + len(old))
    return ", ".join(numbers)


def _nearest(text: str, old: str) -> str:
    """What in `text` comes nearest to the beginning of `old`, with its line."""
    if not text:
        return "The file is empty."
    if old.replace("\r\n", "\n") in text.replace("\r\n", "\n"):
        return "It is there with other line ends (\\r\\n): match them exactly, or change the file with a program."
    wanted = next((line.strip() for line in old.split("\n") if line.strip()), "")[:300]
    lines = text.split("\n")[:20_000]
    same = [number for number, line in enumerate(lines, 1) if line.strip() == wanted]
    if wanted and same:
        at = same[0]
        about = "Its first line is there, but what follows or the spaces around it differ"
    else:
        near = difflib.get_close_matches(wanted, [line.strip()[:300] for line in lines[:2000]], 1, 0.6)
        if not near:
            return "Nothing in the file is like it: read it again."
        at = next(number for number, line in enumerate(lines, 1) if line.strip()[:300] == near[0])
        about = "The nearest is"
    excerpt = "\n".join(line[:300] for line in lines[max(0, at - 2) : at + 6])
    return f"{about}, at line {at}:\n{excerpt}"
