"""`fetch` and `send`: the web, as far as a turn may reach it (`public.py`), bounded in size and time.

`fetch` only reads, so it is `pure`. `send` is `keyed`: it goes out with an `Idempotency-Key` that is the same when it
is sent again after a crash, and it follows no redirect elsewhere.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
import ssl
import zlib
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import httpx
import trio
from pydantic import BaseModel, ConfigDict, Field

from engine import workspace
from engine.agent.calls import Description, EffectClass, Result, Room, ToolFailed
from engine.agent.tools.public import NotAllowed, client
from engine.agent.tools.reading import FilePath, expect_inside
from engine.agent.tools.text import one_line
from engine.apart import run_apart
from engine.files import Cause
from engine.frames import Risk
from engine.rules import rule_title
from engine.trimming import bounded

SECONDS = 30.0  # for all of it, redirects too
READ_BYTES = 5 * 1024 * 1024  # of a text, unpacked
SAVE_BYTES = 32 * 1024 * 1024  # of what is saved as a file
REDIRECTS = 5
READABLE_SECONDS = 10.0
URL_CHARACTERS = 4000
BODY_CHARACTERS = 1024 * 1024

Url = Annotated[str, Field(min_length=1, max_length=URL_CHARACTERS, description="Address, http or https")]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered. `whole` is false when the body went past the bound and the rest was not read."""

    url: str
    status: int
    reason: str
    mime: str
    charset: str | None
    body: bytes
    whole: bool
    location: str | None


def checked(url: str) -> httpx.URL:
    """An address that may be tried. Raises `ToolFailed`."""
    try:
        found = httpx.URL(url.strip())
    except (httpx.InvalidURL, ValueError, UnicodeError) as error:
        raise ToolFailed(f"{one_line(url)}: not an address ({error})") from None
    if found.scheme not in ("http", "https"):
        raise ToolFailed(f"{one_line(url)}: only http and https addresses can be fetched")
    if found.userinfo:
        raise ToolFailed("an address must not hold a user name or password: it would be stored and shown")
    if not found.host:
        raise ToolFailed(f"{one_line(url)}: the address names no host")
    if not re.fullmatch(r"[A-Za-z0-9._:-]+", found.raw_host.decode("ascii", "replace")):
        raise ToolFailed(f"{one_line(url)}: not an address (its host is no name)")
    if found.port is not None and not 0 < found.port < 65536:
        raise ToolFailed(f"{one_line(url)}: not an address (a port is a number up to 65535)")
    return found


def origin(url: httpx.URL) -> str:
    """Scheme, host and port, for people and rules."""
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}"


async def exchange(
    room: Room,
    method: str,
    url: httpx.URL,
    limit: int,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    """One request and, for one that only reads, up to five redirects. Raises `ToolFailed`."""
    reads = method in ("GET", "HEAD")
    with trio.move_on_after(SECONDS):
        async with client(room.fetch_allow, SECONDS) as http:
            for _ in range(REDIRECTS + 1):
                answer = await _once(http, method, url, limit, body, headers or {})
                if answer.location is None or not reads:
                    return answer
                try:
                    url = checked(str(url.join(answer.location)))
                except (httpx.InvalidURL, ValueError, UnicodeError):
                    raise ToolFailed(f"{url} redirects to something that is no address") from None
            raise ToolFailed(f"more than {REDIRECTS} redirects, the last to {one_line(str(url))}")
    raise ToolFailed(f"{one_line(str(url))} took longer than {SECONDS:g} s")


async def _once(
    http: httpx.AsyncClient, method: str, url: httpx.URL, limit: int, body: bytes | None, headers: dict[str, str]
) -> Answer:
    where = one_line(str(url))
    try:
        async with http.stream(method, url, content=body, headers=headers) as response:
            location = response.headers.get("location") if response.has_redirect_location else None
            data, whole = (b"", True) if location is not None else await _body(response, limit)
            mime, _, rest = response.headers.get("content-type", "").partition(";")
            return Answer(
                str(response.url), response.status_code, response.reason_phrase, mime.strip().lower(), _charset(rest),
                data, whole, location,
            )  # fmt: skip
    except NotAllowed as error:
        raise ToolFailed(str(error)) from None
    except httpx.TimeoutException as error:
        raise ToolFailed(f"{where} did not answer in time{f' ({error})' if str(error) else ''}") from None
    except zlib.error as error:
        raise ToolFailed(f"{where} sent what cannot be unpacked ({error})") from None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise ToolFailed(f"{where} could not be fetched: {_cause(error)}") from None


def _cause(error: BaseException) -> str:
    """The deepest reason that says something: a bad certificate lies under what the layers above made of it."""
    said = type(error).__name__
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError):
            kind = "its certificate" if isinstance(seen, ssl.SSLCertVerificationError) else "TLS"
            return f"{kind}: {one_line(str(seen), 300)}"
        said = one_line(str(seen), 300) or said
        seen = seen.__cause__ or seen.__context__
    return said


async def _body(response: httpx.Response, limit: int) -> tuple[bytes, bool]:
    """At most `limit` bytes, unpacked as they come: a small answer cannot become a large one."""
    packed = response.headers.get("content-encoding", "identity").strip().lower()
    unpack = None
    if packed in ("gzip", "x-gzip"):
        unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
    elif packed == "deflate":
        unpack = zlib.decompressobj()
    elif packed not in ("identity", ""):
        raise httpx.DecodingError(f"it is packed as {one_line(packed)}, which was not asked for")
    parts: list[bytes] = []
    room = limit
    async for part in response.aiter_raw():
        data = part if unpack is None else unpack.decompress(part, room + 1)
        if len(data) > room:
            parts.append(data[:room])
            return b"".join(parts), False
        parts.append(data)
        room -= len(data)
        if unpack is not None and unpack.eof:
            break
    return b"".join(parts), True


_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_META = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_ODD = frozenset(("idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "utf-7", "unicode_escape"))


def _charset(text: str) -> str | None:
    found = _CHARSET.search(text)
    return found[1] if found else None


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
        url = checked(arguments.url)
        body = f"\n{arguments.content_type}\n\n{arguments.body}" if arguments.body else ""
        return Description(
            title=f"{arguments.method} {one_line(str(url))}",
            command=f"{arguments.method} {url}{body}",
            touches=(origin(url),),
        )

    async def run(self, room: Room, key: str, arguments: Arguments, description: Description) -> Result:
        name = hashlib.sha256(f"{room.notebook.id} {key}".encode()).hexdigest()[:32]
        headers = {"Idempotency-Key": name}
        body = arguments.body.encode("utf-8", "replace")
        if body:
            headers["Content-Type"] = arguments.content_type
        url = checked(arguments.url)
        return await _told(await exchange(room, arguments.method, url, READ_BYTES, body or None, headers))

    async def look_up(self, room: Room, key: str, arguments: Arguments) -> Result | None:
        return None
