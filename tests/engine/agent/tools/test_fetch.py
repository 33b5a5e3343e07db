"""`fetch` against real servers on this machine, which are not public: refused, unless the operator allows them."""

from __future__ import annotations

import gzip
import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from engine.agent.calls import ToolFailed
from engine.agent.tools import TOOLS, exchange
from engine.agent.tools.public import Allowed, is_public
from tests.certificate import unvouched
from tests.engine.agent.tools.house import House, house

FETCH, SEND = TOOLS["fetch"], TOOLS["send"]
LOOPBACK = ("127.0.0.0/8", "::1")


@dataclass
class Site:
    """A server that answers `pages` (path → bytes of a whole response, or what writes one) and notes requests."""

    port: int = 0
    requests: list[bytes] = field(default_factory=list)
    pages: dict[str, bytes | Callable[[trio.SocketStream], Awaitable[None]]] = field(default_factory=dict)

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def serve(self, stream: trio.SocketStream) -> None:
        request = b""
        try:
            while b"\r\n\r\n" not in request and (part := await stream.receive_some(65536)):
                request += part
            if not request:
                return
            self.requests.append(request)
            page = self.pages.get(request.split(b" ")[1].decode(), b"HTTP/1.1 404 Not Found\r\n\r\n")
            if isinstance(page, bytes):
                await stream.send_all(page)
            else:
                await page(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            await trio.aclose_forcefully(stream)


def page(body: bytes, mime: str = "text/plain", *headers: str, status: str = "200 OK") -> bytes:
    more = "".join(f"{header}\r\n" for header in headers)
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {mime}\r\nContent-Length: {len(body)}\r\n{more}Connection: close\r\n\r\n"
    )
    return head.encode() + body


def to(location: str) -> bytes:
    return page(b"", "text/plain", f"Location: {location}", status="302 Found")


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    made = Site()
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, made.serve, 0, host="127.0.0.1"))
        made.port = listeners[0].socket.getsockname()[1]
        yield made
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def both(database: str, folder: Path, *allow: str) -> AsyncIterator[tuple[House, Site]]:
    async with house(database, folder) as room, site() as made:
        room.fetch_allow = allow
        yield room, made


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "100.100.100.200", "168.63.129.16", "192.0.0.192", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
        "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.88.99.1", "::", "::1", "::ffff:127.0.0.1",
        "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "fe80::1", "fc00::1", "fd00:ec2::254",
        "fec0::1", "ff02::1", "2001:db8::1", "2001::1", "2002:7f00:1::", "100::1", "3fff::1", "5f00::1",
    ],
)  # fmt: skip
def test_what_is_not_the_internet_at_large_is_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_what_is_public_is(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


def test_the_operator_allows_names_addresses_and_networks() -> None:
    allowed = Allowed(("Wiki.internal", "10.1.0.0/16", "::1"))
    assert allowed.address("wiki.INTERNAL.", ipaddress.ip_address("10.9.9.9"))
    assert allowed.address("10.1.2.3", ipaddress.ip_address("10.1.2.3"))
    assert allowed.address("x", ipaddress.ip_address("::ffff:10.1.2.3"))
    assert allowed.address("localhost", ipaddress.ip_address("::1"))
    assert not allowed.address("not-wiki.internal", ipaddress.ip_address("10.9.9.9"))
    assert not allowed.address("10.2.0.1", ipaddress.ip_address("10.2.0.1"))


@pytest.mark.trio
async def test_no_spelling_of_a_private_address_is_reached(database: str, tmp_path: Path) -> None:
    async with both(database, tmp_path) as (room, made):
        made.pages["/"] = page(b"secret")
        hosts = (
            "127.0.0.1", "localhost", "LOCALHOST.", "2130706433", "0x7f000001", "0177.0.0.1", "0x7f.1", "127.1", "0",
            "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::]", "①②⑦.0.0.1", "127。0。0。1",
        )  # fmt: skip
        for host in hosts:
            told = await room.failure(FETCH, url=made.url("/", host))
            assert "secret" not in told
            assert "public address" in told or "could not be fetched" in told or "not an address" in told, (host, told)
        assert made.requests == []


@pytest.mark.trio
async def test_a_name_that_means_another_address_at_the_second_look_does_not_help(
    database: str, tmp_path: Path, monkeypatch: Any
) -> None:
    """The address that was judged is connected to; the name is not looked up again."""
    async with both(database, tmp_path) as (room, made):
        made.pages["/"] = page(b"secret")
        looks: list[str] = []
        tried: list[Any] = []

        async def looked_up(host: Any, port: Any, *args: Any, **more: Any) -> Any:
            looks.append(host)
            address = "93.184.216.34" if len(looks) == 1 else "127.0.0.1"
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

        async def connected(self: Any, host: str, port: int, **more: Any) -> Any:
            tried.append(host)
            raise ToolFailed("that is far enough")

        monkeypatch.setattr(trio.socket, "getaddrinfo", looked_up)
        monkeypatch.setattr("httpcore.TrioBackend.connect_tcp", connected)
        assert await room.failure(FETCH, url=made.url("/", "rebind.example")) == "that is far enough"
        assert (looks, tried) == (["rebind.example"], ["93.184.216.34"])
        told = await room.failure(FETCH, url=made.url("/", "rebind.example"))
        assert "rebind.example means 127.0.0.1, and that is no public address" in told
        assert made.requests == []


@pytest.mark.trio
async def test_a_redirect_is_judged_like_a_first_address(database: str, tmp_path: Path) -> None:
    async with both(database, tmp_path, "127.0.0.1") as (room, made):
        made.pages["/to-private"] = to(f"http://127.0.0.2:{made.port}/")
        made.pages["/to-decimal"] = to(f"http://2130706434:{made.port}/")
        made.pages["/to-file"] = to("file:///etc/passwd")
        made.pages["/to-user"] = to(f"http://a:b@127.0.0.1:{made.port}/")
        made.pages["/round"] = to("/round")
        made.pages["/to-page"] = to("/page")
        made.pages["/page"] = page(b"here")
        assert "127.0.0.2 is no public address" in await room.failure(FETCH, url=made.url("/to-private"))
        assert "no public address" in await room.failure(FETCH, url=made.url("/to-decimal"))
        assert "only http and https" in await room.failure(FETCH, url=made.url("/to-file"))
        assert "must not hold a user name" in await room.failure(FETCH, url=made.url("/to-user"))
        assert "more than 5 redirects" in await room.failure(FETCH, url=made.url("/round"))
        assert sum(b"GET /round" in request for request in made.requests) == 6
        assert "here" in (await room.call(FETCH, url=made.url("/to-page"))).text


@pytest.mark.trio
async def test_an_address_that_is_none_is_told(database: str, tmp_path: Path) -> None:
    async with house(database, tmp_path) as room:
        for url, told in (
            ("ftp://example.org/", "only http and https"),
            ("file:///etc/passwd", "only http and https"),
            ("http://user:pass@example.org/", "must not hold a user name"),
            ("http:///x", "names no host"),
            ("http://example.org:99999/", "not an address"),
            ("http://exa mple.org/", "not an address"),
            ("no-address", "only http and https"),
        ):
            assert told in await room.failure(FETCH, url=url), url


@pytest.mark.trio
async def test_a_page_is_told_as_text_with_its_links_and_json_laid_out(database: str, tmp_path: Path) -> None:
    html = """<html><head><title>A page</title><style>b{}</style><script>evil()</script></head><body>
        <nav><a href="/home">Home</a></nav><h1>Hello</h1><p>Some <b>bold</b>
        text, <a href="more?x=1">more</a>.<ul><li>one<li>two <ol><li>deep</ol></ul>
        <table><tr><th>a<th>b<tr><td>1<td>2</table><pre>def f():\n    return 1\n</pre>
        &lt;kept&gt; caf\u00e9</body></html>"""
    async with both(database, tmp_path, *LOOPBACK) as (room, made):
        made.pages["/"] = page(html.encode("latin-1"), "text/html; charset=iso-8859-1")
        made.pages["/meta"] = page(b"<meta charset=windows-1251><p>\xcf\xf0\xe8", "text/html")
        made.pages["/json"] = page(b'{"a":[1,2]}', "application/json")
        made.pages["/zip"] = page(gzip.compress(b"packed"), "text/plain", "Content-Encoding: gzip")
        made.pages["/gone"] = page(b"not here", status="404 Not Found")
        text = (await room.call(FETCH, url=made.url("/"))).text
        assert "evil" not in text
        assert f"Home (http://127.0.0.1:{made.port}/home)" in text
        assert f"text, more (http://127.0.0.1:{made.port}/more?x=1)." in text
        for part in (
            "# Hello",
            "- one",
            "- two",
            "  1. deep",
            "a | b",
            "1 | 2",
            "def f():\n    return 1",
            "<kept> café",
        ):
            assert part in text
        assert "При" in (await room.call(FETCH, url=made.url("/meta"))).text
        assert '"a": [' in (await room.call(FETCH, url=made.url("/json"))).text
        assert "packed" in (await room.call(FETCH, url=made.url("/zip"))).text
        gone = await room.call(FETCH, url=made.url("/gone"))
        assert gone.status == "error"
        assert "404 Not Found" in gone.text
        assert "not here" in gone.text


@pytest.mark.trio
async def test_nothing_endless_slow_or_packed_holds_a_turn_up(database: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(exchange, "SECONDS", 1.0)
    sent = 0

    async def endless(stream: trio.SocketStream) -> None:
        nonlocal sent
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            await stream.send_all(b"x" * 65536)
            sent += 65536

    async def slow(stream: trio.SocketStream) -> None:
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            await stream.send_all(b"x")
            await trio.sleep(0.1)

    async def silent(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async def heads(stream: trio.SocketStream) -> None:
        await stream.send_all(b"HTTP/1.1 200 OK\r\n")
        while True:
            await stream.send_all(b"X-A: " + b"x" * 65536 + b"\r\n")

    async with both(database, tmp_path, *LOOPBACK) as (room, made):
        made.pages |= {"/endless": endless, "/slow": slow, "/silent": silent, "/heads": heads}
        made.pages["/bomb"] = page(gzip.compress(b"0" * 200_000_000), "text/plain", "Content-Encoding: gzip")
        made.pages["/broken"] = page(b"no gzip", "text/plain", "Content-Encoding: gzip")
        made.pages["/br"] = page(b"x", "text/plain", "Content-Encoding: br")
        found = await room.call(FETCH, url=made.url("/endless"))
        assert "the rest was not read" in found.text
        assert found.left_out > 4_000_000
        assert len(found.text) < 60_000
        assert sent < 20_000_000
        bomb = await room.call(FETCH, url=made.url("/bomb"))
        assert "the body is larger than 5242880 bytes" in bomb.text
        for path in ("/slow", "/silent"):
            assert "took longer than 1 s" in await room.failure(FETCH, url=made.url(path))
        assert "could not be fetched" in await room.failure(FETCH, url=made.url("/heads"))
        assert "cannot be unpacked" in await room.failure(FETCH, url=made.url("/broken"))
        assert "packed as br" in await room.failure(FETCH, url=made.url("/br"))


@pytest.mark.trio
async def test_what_is_no_text_is_saved_as_a_file_when_asked(database: str, tmp_path: Path) -> None:
    async with both(database, tmp_path, *LOOPBACK) as (room, made):
        made.pages["/image"] = page(b"\x89PNG\x00\x01", "image/png")
        assert "fetch it with save_as" in (await room.call(FETCH, url=made.url("/image"))).text
        saved = await room.call(FETCH, url=made.url("/image"), save_as="images/a.png")
        assert saved.text == "images/a.png is version 1 (6 bytes, image/png)"
        assert (room.folder / "images/a.png").read_bytes() == b"\x89PNG\x00\x01"
        assert room.notebook.files["images/a.png"]["mime"] == "image/png"
        assert "cannot go up" in await room.failure(FETCH, url=made.url("/image"), save_as="../a.png")


@pytest.mark.trio
async def test_sending_again_is_sending_the_same_key_and_no_redirect_is_followed(database: str, tmp_path: Path) -> None:
    async with both(database, tmp_path, *LOOPBACK) as (room, made):
        made.pages["/hook"] = page(b"taken")
        made.pages["/moved"] = page(b"", "text/plain", "Location: /hook", status="307 Temporary Redirect")
        arguments = SEND.Arguments.model_validate({"url": made.url("/hook"), "body": '{"a": 1}'})
        described = await SEND.describe(room, arguments)
        assert described.command == f'POST {made.url("/hook")}\napplication/json\n\n{{"a": 1}}'
        for key in ("k1", "k1", "k2"):
            assert "taken" in (await SEND.run(room, key, arguments, described)).text
        keys = [line for request in made.requests for line in request.split(b"\r\n") if b"idempotency" in line.lower()]
        assert keys[0] == keys[1] != keys[2]
        moved = await room.call(SEND, url=made.url("/moved"), body="x", content_type="text/plain")
        assert "redirects to /hook, which was not followed" in moved.text


@pytest.mark.trio
async def test_a_certificate_that_nobody_vouches_for_ends_it(database: str, tmp_path: Path) -> None:
    context = unvouched(tmp_path)

    async def served(stream: Any) -> None:
        try:
            await stream.do_handshake()
            await stream.receive_some(1)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async with house(database, tmp_path) as room, trio.open_nursery() as nursery:
        room.fetch_allow = LOOPBACK
        listeners = await nursery.start(partial(trio.serve_ssl_over_tcp, served, 0, context, host="127.0.0.1"))
        port = listeners[0].transport_listener.socket.getsockname()[1]
        told = await room.failure(FETCH, url=f"https://localhost:{port}/")
        assert "certificate" in told.lower()
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_proxies_of_the_environment_are_not_used(database: str, tmp_path: Path, monkeypatch: Any) -> None:
    async with both(database, tmp_path, *LOOPBACK) as (room, made):
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
        made.pages["/"] = page(b"straight")
        assert "straight" in (await room.call(FETCH, url=made.url("/"))).text
