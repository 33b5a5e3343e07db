"""`read_file`, `list_files`, `search_files`: looking at the notebook's folder, never outside it.

All are `pure`: looking again after a crash changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, ClassVar, TypeVar

import trio
from pydantic import BaseModel, ConfigDict, Field

from engine import workspace
from engine.agent.calls import Description, EffectClass, Result, Room, ToolFailed
from engine.agent.tools.text import one_line
from engine.apart import run_apart
from engine.files import digest
from engine.frames import Risk
from engine.trimming import bounded

READ_BYTES = 16 * 1024 * 1024
SEARCH_SECONDS = 15.0

T = TypeVar("T")
FilePath = Annotated[str, Field(min_length=1, max_length=1024, description="Path in the notebook's folder")]


async def in_folder(room: Room, work: Callable[..., T], *args: Any) -> T:
    """`work(root, *args)` in a thread, `root` a descriptor of the folder. What is wrong there is the tool's failure."""
    root = await room.workspace()
    try:
        return await trio.to_thread.run_sync(work, root, *args)
    except workspace.WorkspaceError as error:
        raise ToolFailed(str(error)) from None


def expect_inside(path: str) -> str:
    """The path as it is stored. Raises `ToolFailed` when it leads out of the folder."""
    try:
        return workspace.plain(path)
    except workspace.WorkspaceError as error:
        raise ToolFailed(str(error)) from None


class ReadFile:
    """Reads a text file, whole or some of its lines."""

    class Arguments(BaseModel):
        """Reads a text file of the notebook's folder. The last line of the result says which lines it shows, and the
        file's sha256. What is too long is cut in its middle: ask for fewer lines then."""

        model_config = ConfigDict(extra="forbid")
        path: FilePath
        first_line: Annotated[int, Field(ge=1, description="Where to begin, from 1")] = 1
        lines: Annotated[int | None, Field(ge=1, description="How many lines; left out: to the end")] = None

    name: ClassVar[str] = "read_file"
    risk: ClassVar[Risk] = "read"
    effect: ClassVar[EffectClass] = "pure"

    async def describe(self, room: Room, arguments: Arguments) -> Description:
        path = expect_inside(arguments.path)
        return Description(title=workspace.shown(path), command=f"read {workspace.shown(path)}", touches=(path,))

    async def run(self, room: Room, key: str, arguments: Arguments, description: Description) -> Result:
        content = await in_folder(room, workspace.read, expect_inside(arguments.path), READ_BYTES)
        return read_result(content.data, arguments.first_line, arguments.lines)

    async def look_up(self, room: Room, key: str, arguments: Arguments) -> Result | None:
        return None


def read_result(data: bytes, first_line: int, count: int | None) -> Result:
    """What a reader is told of a file. Raises `ToolFailed` for one that is no text."""
    name = digest(data)
    if b"\0" in data[:8192]:
        raise ToolFailed(f"not text: {len(data)} bytes with NUL among them (sha256 {name}); look at it with a program")
    text = data.decode("utf-8", "replace")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if first_line > max(1, len(lines)):
        raise ToolFailed(f"the file has {len(lines)} lines; line {first_line} is past its end")
    chosen = lines[first_line - 1 : None if count is None else first_line - 1 + count]
    shown, left_out = bounded("\n".join(chosen))
    note = f"lines {first_line} to {first_line + len(chosen) - 1} of {len(lines)}" if lines else "an empty file"
    odd = "" if text.encode("utf-8", "replace") == data else ", not all of it UTF-8"
    return Result("done", f"{shown}\n[{note}, {len(data)} bytes{odd}, sha256 {name}]", left_out=left_out)


class ListFiles:
    """Lists a folder, or all files below it."""

    class Arguments(BaseModel):
        """Lists what is in a folder of the notebook, or with `deep` all files below it (without .git, .venv,
        node_modules, caches)."""

        model_config = ConfigDict(extra="forbid")
        path: Annotated[str, Field(max_length=1024, description="Folder; left out: the notebook's own")] = ""
        deep: Annotated[bool, Field(description="All files below it, instead of what is directly in it")] = False

    name: ClassVar[str] = "list_files"
    risk: ClassVar[Risk] = "read"
    effect: ClassVar[EffectClass] = "pure"
    limit: ClassVar[int] = 1000

    async def describe(self, room: Room, arguments: Arguments) -> Description:
        where = workspace.shown(arguments.path) or "the notebook's folder"
        with suppress(workspace.WorkspaceError):
            workspace.split(arguments.path)
            return Description(title=where, command=f"list {where}", touches=(arguments.path or ".",))
        expect_inside(arguments.path)
        raise ToolFailed(f"{where} is no folder here")

    async def run(self, room: Room, key: str, arguments: Arguments, description: Description) -> Result:
        if arguments.deep:
            walk = await in_folder(room, workspace.walk, arguments.path)
            lines = [f"{workspace.shown(entry.path)}  {entry.size}" for entry in walk.files[: self.limit]]
            rest = len(walk.files) - len(lines)
            lines += [f"{workspace.shown(path)}  ({reason})" for path, reason in list(walk.skipped.items())[:50]]
            whole = walk.whole
        else:
            names, whole = await in_folder(room, workspace.names_in, arguments.path, self.limit)
            lines = [
                f"{workspace.shown(name)}/" if kind == "folder"
                else f"{workspace.shown(name)}  {size}" if kind == "file"
                else f"{workspace.shown(name)}  ({kind})"
                for name, kind, size in names
            ]  # fmt: skip
            rest = 0
        if rest or not whole:
            lines.append(f"[{f'{rest} more' if rest else 'and more'}: name a folder below]")
        text, left_out = bounded("\n".join(lines) or "[empty]")
        return Result("done", text, left_out=left_out)

    async def look_up(self, room: Room, key: str, arguments: Arguments) -> Result | None:
        return None


class SearchFiles:
    """Searches the files for text."""

    class Arguments(BaseModel):
        """Searches the text files of the notebook's folder, line by line, and returns the lines that match as
        `path:line: text`. Ignores .git, .venv, node_modules and caches."""

        model_config = ConfigDict(extra="forbid")
        pattern: Annotated[str, Field(min_length=1, max_length=1000, description="Literal text, or an expression")]
        regex: Annotated[bool, Field(description="`pattern` is a Python regular expression")] = False
        ignore_case: bool = False
        path: Annotated[str, Field(max_length=1024, description="Folder or file; left out: everywhere")] = ""
        glob: Annotated[str | None, Field(max_length=200, description="Only files like this, as `*.py`")] = None

    name: ClassVar[str] = "search_files"
    risk: ClassVar[Risk] = "read"
    effect: ClassVar[EffectClass] = "pure"
    limit: ClassVar[int] = 200

    async def describe(self, room: Room, arguments: Arguments) -> Description:
        if arguments.path:
            with suppress(workspace.WorkspaceError):
                workspace.split(arguments.path)
                return self._described(arguments)
            expect_inside(arguments.path)
        return self._described(arguments)

    def _described(self, arguments: Arguments) -> Description:
        kind = "expression" if arguments.regex else "text"
        where = workspace.shown(arguments.path) or "the notebook's folder"
        return Description(
            title=one_line(arguments.pattern),
            command=f"search {where} for the {kind} {arguments.pattern}",
            touches=(arguments.path or ".",),
        )

    async def run(self, room: Room, key: str, arguments: Arguments, description: Description) -> Result:
        wanted = {**arguments.model_dump(), "limit": self.limit}
        root = await room.workspace()
        output = await run_apart("engine.searching", json.dumps(wanted).encode(), SEARCH_SECONDS, descriptors=[root])
        found: list[dict[str, Any]] = [json.loads(line) for line in output.data.splitlines()]
        last = found.pop() if found and "path" not in found[-1] else {}
        if "error" in last:
            raise ToolFailed(last["error"])
        lines = [f"{workspace.shown(hit['path'])}:{hit['line']}: {hit['text']}" for hit in found]
        if output.timed_out:
            if not found:
                raise ToolFailed(
                    f"the search took longer than {SEARCH_SECONDS:g} s and was ended: "
                    "use a simpler expression, or search fewer files"
                )
            lines.append(f"[ended after {SEARCH_SECONDS:g} s: there may be more; use a simpler expression]")
        elif not last:
            lines.append("[the search broke off: there may be more]")
        elif not last["whole"]:
            lines.append("[there is more: search a folder below, or for something rarer]")
        elif not found:
            lines.append(f"[nothing found in {last['files']} files]")
        if last.get("passed"):
            lines.append(f"[{last['passed']} files are no text, or too large, and were passed over]")
        text, left_out = bounded("\n".join(lines))
        return Result("done", text, left_out=left_out)

    async def look_up(self, room: Room, key: str, arguments: Arguments) -> Result | None:
        return None
