"""One request to the web, as far as a turn may reach it (`public.py`), bounded in size and time.

Its libraries take a tenth of a second of every start to import, so `fetching.py` imports this file at first use.
"""

from __future__ import annotations

import functools
import re
import ssl
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import httpcore
import httpx
import trio

from engine.agent.calls import Room, ToolFailed
from engine.agent.tools.public import Allowed, NotAllowed, judged
from engine.agent.tools.text import one_line

SECONDS = 30.0  # for all of it, redirects too
REDIRECTS = 5
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)


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
        async with _client(room.fetch_allow, SECONDS) as http:
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


def _charset(text: str) -> str | None:
    found = _CHARSET.search(text)
    return found[1] if found else None


class _Transport(httpx.AsyncHTTPTransport):
    def __init__(self, allowed: Allowed) -> None:
        super().__init__(verify=_certificates())
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=_certificates(), http1=True, http2=False, network_backend=judged(httpcore, allowed)
        )


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Whom to believe: the usual authorities, or those that SSL_CERT_FILE or SSL_CERT_DIR name."""
    return httpx.create_ssl_context()


def _client(extra: Sequence[str], seconds: float) -> httpx.AsyncClient:
    """An HTTP client, for a trio task, that reaches allowed addresses only. It follows no redirect, uses no proxy,
    keeps no cookie and sends no credential."""
    return httpx.AsyncClient(
        transport=_Transport(Allowed(extra)),
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(seconds),
        headers={"User-Agent": "Nightbook", "Accept-Encoding": "gzip, deflate", "Accept": "*/*"},
    )
