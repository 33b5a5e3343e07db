"""`fetch` and `send`: the web, as far as a turn may reach it (`public.py`), bounded in size and time.

`fetch` only reads, so it is `pure`. `send` is `keyed`: it goes out with an `Idempotency-Key` that is the same when it
is sent again after a crash, and it follows no redirect elsewhere. What speaks HTTP (`exchange.py`) is imported at first
use: most servers start without needing it.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from engine import workspace
from engine.agent.calls import Description, EffectClass, Result, Room, ToolFailed
from engine.agent.tools.reading import FilePath, expect_inside
from engine.agent.tools.text import one_line
from engine.apart import run_apart
from engine.files import Cause
from engine.frames import Risk
from engine.rules import rule_title
from engine.trimming import bounded

if TYPE_CHECKING:
    from engine.agent.tools.exchange import Answer

READ_BYTES = 5 * 1024 * 1024  # of a text, unpacked
SAVE_BYTES = 32 * 1024 * 1024  # of what is saved as a file
READABLE_SECONDS = 10.0
URL_CHARACTERS = 4000
BODY_CHARACTERS = 1024 * 1024

Url = Annotated[str, Field(min_length=1, max_length=URL_CHARACTERS, description="Address, http or https")]


_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_META = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_ODD = frozenset(("idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "utf-7", "unicode_escape"))


def decoded(answer: Answer) -> str:
    """The body as text: by its byte order mark, its header, its own word, else UTF-8."""
    data = answer.body
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    names = [answer.charset]
    if "html" in answer.mime and (meta := _META.search(data[:2048])) is not None:
        names.append(meta[1].decode("ascii", "replace"))
    for candidate in names:
        if candidate is None:
            continue
        try:
            if codecs.lookup(candidate).name in _ODD:
                continue
            return data.decode(candidate, "replace")
        except (LookupError, ValueError):
            continue
    return data.decode("utf-8", "replace")


_TEXT = ("json", "xml", "javascript", "yaml", "x-sh", "x-www-form-urlencoded", "toml", "csv", "markdown")


def _is_text(answer: Answer) -> bool:
    if answer.mime.startswith("text/") or any(answer.mime.endswith(kind) for kind in _TEXT):
        return b"\0" not in answer.body[:8192] or answer.charset is not None
    if answer.mime not in ("", "application/octet-stream"):
        return False
    return b"\0" not in answer.body[:8192]


async def _readable(answer: Answer) -> str:
    """The body for a reader: HTML as its text, JSON laid out, other text as it is."""
    text = decoded(answer)
    if answer.mime in ("text/html", "application/xhtml+xml"):
        output = await run_apart(
            "engine.readable", f"{answer.url}\n{text}".encode("utf-8", "replace"), READABLE_SECONDS
        )
        if output.whole:
            return output.data.decode("utf-8", "replace")
        return f"[this page could not be made readable; its source follows]\n{text}"
    if answer.mime.endswith("json") and len(text) < 200_000 and "\n" not in text:
        try:
            return json.dumps(json.loads(text), indent=1, ensure_ascii=False)
        except (ValueError, RecursionError):
            return text
    return text


async def _told(answer: Answer) -> Result:
    """What a model is told of an answer; one that says that it failed is an error, with what it says."""
    head = f"[{answer.status} {one_line(answer.reason)} · {answer.mime or 'no content type'} · {answer.url}]"
    if answer.location is not None:
        head += f"\n[it redirects to {one_line(answer.location, 300)}, which was not followed]"
    if not answer.body:
        return Result(_status(answer), head)
    if not _is_text(answer):
        return Result(
            _status(answer),
            f"{head}\n[{len(answer.body)} bytes that are no text: fetch it with save_as to have it as a file]",
        )
    text, left_out = bounded(await _readable(answer))
    rest = "" if answer.whole else f"\n[the body is larger than {len(answer.body)} bytes: the rest was not read]"
    return Result(_status(answer), f"{head}\n{text}{rest}", left_out=left_out)


def _status(answer: Answer) -> Literal["done", "error"]:
    return "done" if answer.status < 400 else "error"


class Fetch:
    """Reads an address."""

    class Arguments(BaseModel):
        """Fetches an address by GET. HTML comes as readable text with its links, JSON and other text as it is. Only
        public addresses can be reached. With `save_as` the bytes become a file of the notebook instead."""

        model_config = ConfigDict(extra="forbid")
        url: Url
        save_as: Annotated[FilePath | None, Field(description="Path in the notebook's folder to save it to")] = None

    name: ClassVar[str] = "fetch"
    risk: ClassVar[Risk] = "network"
    effect: ClassVar[EffectClass] = "pure"

    async def describe(self, room: Room, arguments: Arguments) -> Description:
        from engine.agent.tools.exchange import checked, origin

        url = checked(arguments.url)
        touches = [origin(url)]
        command = f"GET {url}"
        if arguments.save_as is not None:
            path = expect_inside(arguments.save_as)
            touches.append(path)
            command += f" → {workspace.shown(path)}"
        words = None if arguments.save_as is not None else [origin(url)]
        return Description(
            title=one_line(str(url)),
            command=command,
            touches=touches,
            words=words,
            rule=rule_title(self.name, words, f"fetching anything from {origin(url)}"),
        )

    async def run(self, room: Room, key: str, arguments: Arguments, description: Description) -> Result:
        from engine.agent.tools.exchange import checked, exchange

        url = checked(arguments.url)
        if arguments.save_as is None:
            return await _told(await exchange(room, "GET", url, READ_BYTES))
        answer = await exchange(room, "GET", url, SAVE_BYTES)
        if answer.status >= 400:
            return await _told(answer)
        if not answer.whole:
            raise ToolFailed(f"{one_line(str(url))} is larger than {SAVE_BYTES // 2**20} MiB and was not saved")
        cause = Cause("agent", room.cell_id, room.run_id, room.call_id)
        try:
            placed = await room.files.put(expect_inside(arguments.save_as), answer.body, cause)
        except workspace.WorkspaceError as error:
            raise ToolFailed(str(error)) from None
        about = f"{len(answer.body)} bytes, {answer.mime or 'no content type'}"
        return Result("done", f"{workspace.shown(placed.path)} is version {placed.version} ({about})")

    async def look_up(self, room: Room, key: str, arguments: Arguments) -> Result | None:
        return None


class Send:
    """Sends something to an address."""

    class Arguments(BaseModel):
        """Sends a request that may change something elsewhere, and returns the answer. It carries an Idempotency-Key,
        so that a server that knows it acts once. Only public addresses can be reached; redirects are not followed."""

        model_config = ConfigDict(extra="forbid")
        url: Url
        method: Literal["POST", "PUT", "PATCH", "DELETE"] = "POST"
        body: Annotated[str, Field(max_length=BODY_CHARACTERS)] = ""
        content_type: Annotated[str, Field(max_length=100, pattern=r"^[\w.+-]+/[\w.+-]+(;\s*charset=[\w-]+)?$")] = (
            "application/json"
        )

    name: ClassVar[str] = "send"
    risk: ClassVar[Risk] = "network"
    effect: ClassVar[EffectClass] = "keyed"

    async def describe(self, room: Room, arguments: Arguments) -> Description:
        from engine.agent.tools.exchange import checked, origin

        url = checked(arguments.url)
        body = f"\n{arguments.content_type}\n\n{arguments.body}" if arguments.body else ""
        return Description(
            title=f"{arguments.method} {one_line(str(url))}",
            command=f"{arguments.method} {url}{body}",
            touches=(origin(url),),
        )

    async def run(self, room: Room, key: str, arguments: Arguments, description: Description) -> Result:
        from engine.agent.tools.exchange import checked, exchange

        name = hashlib.sha256(f"{room.notebook.id} {key}".encode()).hexdigest()[:32]
        headers = {"Idempotency-Key": name}
        body = arguments.body.encode("utf-8", "replace")
        if body:
            headers["Content-Type"] = arguments.content_type
        url = checked(arguments.url)
        return await _told(await exchange(room, arguments.method, url, READ_BYTES, body or None, headers))

    async def look_up(self, room: Room, key: str, arguments: Arguments) -> Result | None:
        return None
