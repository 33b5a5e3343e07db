"""The door: one ASGI middleware that every request and socket passes before anything else sees it.

It asks, in this order: does the request name a host that is ours (a name that was rebound to our address does not
count); who is it (the token as a bearer, or the login cookie); and, when a cookie says so, did one of our own pages
send it. Only the two health checks are free. Whoever passes is `scope["nightbook.member"]`.

The cookie is SameSite=Lax, not Strict: a link to a notebook in a chat has to open it, and the login link itself, opened
from another site, would arrive at its page without a Strict cookie. Lax still keeps the cookie out of foreign
posts, frames and sockets; the checks of Origin and Sec-Fetch-Site cover other ports of the same machine, which
browsers count as the same site.

uvicorn has to run with `proxy_headers=False` and `access_log=False`: who is a trusted proxy is decided here, and a
login link must not reach a log.
"""

import asyncio
import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from app.login import COOKIE_SECONDS, Tickets, load_or_make_token, login_page
from app.settings import is_loopback

__all__ = ["AuthMiddleware", "load_or_make_token"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_FREE = frozenset({"/healthz", "/readyz"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_WRONG_SECONDS = 0.5  # the answer to a wrong token waits this long
_WRONG_AT_ONCE = 16  # and this many of them may wait; further ones are turned away
_FORM_BYTES = 8192

# NiceGUI's pages consist of inline scripts, and its Vue evaluates templates and handlers: so no nonces here.
_PAGE_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; "
    "connect-src 'self' {sockets}; object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
# What the API hands out was often made by a program: opened by itself it must not act as one of our pages.
_API_POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox"
_LOGIN_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_ALWAYS: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class _Refused(Exception):
    """The request goes no further. Status and one sentence for the caller."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class AuthMiddleware:
    """Lets the owner in and nobody else.

    `host` and `port` are where the server listens; `public_url` is the origin that browsers use when a proxy stands
    in front, and `trusted_proxies` are the networks whose X-Forwarded-Proto is believed.
    """

    def __init__(
        self,
        app: App,
        *,
        token: str,
        public_url: str | None,
        trusted_proxies: Iterable[str],
        host: str,
        port: int,
    ) -> None:
        self._app = app
        self._tickets = Tickets(token)
        self._public = urlsplit(public_url) if public_url else None
        self._proxies = [ipaddress.ip_network(network) for network in trusted_proxies]
        self._any_address = host in {"0.0.0.0", "::"}
        self._hosts = {host.lower().strip("[]")}
        if self._any_address:
            self._hosts.add(socket.gethostname().lower())
        if self._public is not None and self._public.hostname:
            self._hosts.add(self._public.hostname)
        # Cookies ignore the port: by its name, two Nightbooks on one machine do not log each other out.
        self._cookie = f"nightbook-{port}"
        self._wrong_waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        request = _Request(scope)
        if request.path in _FREE and scope["type"] == "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check_host(request)
            self._check_path(request)
            self._settle_scheme(request)
            if scope["type"] == "http" and await self._log_in(request, receive, send):
                return
            await self._check_member(request)
        except _Refused as refused:
            await self._refuse(request, send, refused)
            return
        scope["nightbook.member"] = "owner"
        await self._app(scope, receive, self._with_headers(request, send))

    # What is asked of every request

    def _check_host(self, request: "_Request") -> None:
        name = _host_name(request.header("host"))
        if name and (name in self._hosts or is_loopback(name) or (self._any_address and _is_address(name))):
            return
        raise _Refused(
            HTTPStatus.BAD_REQUEST,
            "This name is not one of this server's: set NIGHTBOOK_PUBLIC_URL to the address that browsers use.",
        )

    def _check_path(self, request: "_Request") -> None:
        if "\x00" in request.path:  # the one character that no part of it could be looked up by
            raise _Refused(HTTPStatus.BAD_REQUEST, "This address holds a NUL character.")

    async def _check_member(self, request: "_Request") -> None:
        scheme, _, bearer = request.header("authorization").partition(" ")
        if scheme.lower() == "bearer":
            if self._tickets.is_token(bearer.strip()):
                return
            await self._slow_down()
            raise _Refused(HTTPStatus.UNAUTHORIZED, "This token is not the right one.")
        if not self._has_cookie(request):
            raise _Refused(HTTPStatus.UNAUTHORIZED, "Log in first, or send the token as 'Authorization: Bearer …'.")
        self._check_origin(request)

    def _check_origin(self, request: "_Request") -> None:
        """Refuse what another site's page sent with our cookie. Programs send neither header, and no such page."""
        foreign = _Refused(HTTPStatus.FORBIDDEN, "This request came from a page that is not one of this server's.")
        if request.is_socket or request.method not in _SAFE:
            if (origin := request.header("origin")) and not self._is_ours(request, origin):
                raise foreign
        elif request.header("sec-fetch-mode") == "navigate":
            return
        if request.header("sec-fetch-site") in {"cross-site", "same-site"}:
            raise foreign

    def _is_ours(self, request: "_Request", origin: str) -> bool:
        parts = urlsplit(origin)
        if self._public is not None and (parts.scheme, parts.netloc) == (self._public.scheme, self._public.netloc):
            return True
        if request.secure and parts.scheme != "https":
            return False
        return parts.scheme in {"http", "https"} and parts.netloc.lower() == request.header("host").lower()

    # Logging in

    async def _log_in(self, request: "_Request", receive: Receive, send: Send) -> bool:
        """Answer the login form and the login link. Returns False when the request is neither."""
        if request.path == "/login":
            if request.method != "POST":
                await _redirect(send, "/", ())
                return True
            self._check_origin(request)
            fields = dict(parse_qsl((await _read(receive)).decode("utf-8", "replace")))
            token, path = fields.get("token", "").strip(), _local(fields.get("path", "/"))
        elif request.method in {"GET", "HEAD"} and not request.is_api and "token" in dict(request.query):
            token = dict(request.query)["token"]
            rest = urlencode([item for item in request.query if item[0] != "token"])
            path = _local(quote(request.path, safe="/:@!$&'()*+,;=~") + (f"?{rest}" if rest else ""))
        else:
            return False
        if self._tickets.is_token(token):
            await _redirect(send, path, [(b"set-cookie", self._set_cookie(request).encode())])
        elif request.method != "POST" and self._has_cookie(request):
            await _redirect(send, path, ())  # an old link of someone who is in
        else:
            await self._slow_down()
            await _send_login(send, path, "This token is not the right one.")
        return True

    def _has_cookie(self, request: "_Request") -> bool:
        return any(self._tickets.is_ticket(value) for value in request.cookies(self._cookie))

    def _set_cookie(self, request: "_Request") -> str:
        secure = "; Secure" if request.secure else ""
        value = self._tickets.issue()
        return f"{self._cookie}={value}; Path=/; Max-Age={COOKIE_SECONDS}; HttpOnly; SameSite=Lax{secure}"

    async def _slow_down(self) -> None:
        if self._wrong_waiting >= _WRONG_AT_ONCE:
            raise _Refused(HTTPStatus.TOO_MANY_REQUESTS, "Too many wrong tokens at once: try again in a moment.")
        self._wrong_waiting += 1
        try:
            await asyncio.sleep(_WRONG_SECONDS)
        finally:
            self._wrong_waiting -= 1

    # Answers

    async def _refuse(self, request: "_Request", send: Send, refused: _Refused) -> None:
        if request.is_socket:
            await send({"type": "websocket.close", "code": 1008, "reason": refused.detail})
        elif refused.status is HTTPStatus.UNAUTHORIZED and request.wants_page:
            await _send_login(send, _local(request.target), "")
        else:
            await _send_problem(send, refused)

    def _settle_scheme(self, request: "_Request") -> None:
        """Put into the scope how the browser really reached us, so that redirects and cookies fit."""
        client = request.scope.get("client")
        forwarded = request.header("x-forwarded-proto").rpartition(",")[2].strip().lower()
        https = request.scope.get("scheme") in {"https", "wss"}
        if forwarded in {"http", "https"} and client and self._is_proxy(client[0]):
            https = forwarded == "https"
        elif self._public is not None and request.header("host").lower() == self._public.netloc.lower():
            https = https or self._public.scheme == "https"
        request.secure = https
        plain = "ws" if request.is_socket else "http"
        request.scope["scheme"] = plain + "s" if https else plain

    def _is_proxy(self, address: str) -> bool:
        return _is_address(address) and any(ipaddress.ip_address(address) in network for network in self._proxies)

    def _with_headers(self, request: "_Request", send: Send) -> Send:
        """Add the headers that keep an answer from being framed, sniffed or read by others. The app's own win."""

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers: Headers = list(message.get("headers", []))
                present = {name.lower() for name, _ in headers}
                extra = list(_ALWAYS)
                if b"content-security-policy" not in present:
                    policy = _API_POLICY if request.is_api else _PAGE_POLICY.format(sockets=request.sockets)
                    extra += [(b"content-security-policy", policy.encode()), (b"x-frame-options", b"DENY")]
                message["headers"] = headers + [item for item in extra if item[0] not in present]
            await send(message)

        return send if request.is_socket else guarded


class _Request:
    """What the door looks at in an ASGI scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.is_socket = scope["type"] == "websocket"
        self.method: str = scope.get("method", "GET")
        self.path: str = scope["path"]
        self.query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        self.secure = False
        self._headers: Headers = scope["headers"]

    @property
    def is_api(self) -> bool:
        return self.path.startswith("/api/")

    @property
    def wants_page(self) -> bool:
        return self.method in {"GET", "HEAD"} and not self.is_api and "text/html" in self.header("accept")

    @property
    def target(self) -> str:
        query = urlencode([item for item in self.query if item[0] != "token"])
        return quote(self.path, safe="/:@!$&'()*+,;=~") + (f"?{query}" if query else "")

    @property
    def sockets(self) -> str:
        """Our own WebSocket address for a policy, as not every browser takes 'self' to cover it."""
        return f"{'wss' if self.secure else 'ws'}://{self.header('host')}"

    def header(self, name: str) -> str:
        wanted = name.encode()
        return next((value.decode("latin-1") for key, value in self._headers if key == wanted), "")

    def cookies(self, name: str) -> list[str]:
        parts = [
            part.strip().partition("=")
            for key, value in self._headers
            if key == b"cookie"
            for part in value.decode("latin-1").split(";")
        ]
        return [value for key, _, value in parts if key == name]


def _host_name(host: str) -> str:
    """Take the name out of a Host header: lower case, without port and brackets; empty when it is not one."""
    try:
        parts = urlsplit(f"//{host}")
        return (parts.hostname or "") if parts.netloc == host and "@" not in host else ""
    except ValueError:
        return ""


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _local(path: str) -> str:
    """Keep a redirect on this server: `//elsewhere` and `/\\elsewhere` would leave it."""
    good = path.startswith("/") and path[1:2] not in {"/", "\\"} and not any(c < " " or c == "\x7f" for c in path)
    return path if good else "/"


async def _read(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b""  # gone
        body += bytes(message.get("body", b""))
        if len(body) > _FORM_BYTES:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A login form has at most {_FORM_BYTES} bytes.")
        if not message.get("more_body"):
            return body


async def _answer(send: Send, status: HTTPStatus, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
    length, fresh = (b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store")
    every = dict([*_ALWAYS, fresh, length, *headers])
    await send({"type": "http.response.start", "status": status, "headers": list(every.items())})
    await send({"type": "http.response.body", "body": body})


async def _redirect(send: Send, path: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
    await _answer(send, HTTPStatus.SEE_OTHER, [(b"location", path.encode("latin-1", "replace")), *headers], b"")


async def _send_login(send: Send, path: str, message: str) -> None:
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", _LOGIN_POLICY.encode()),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"same-origin"),  # under no-referrer the form would be sent with "Origin: null"
    ]
    await _answer(send, HTTPStatus.UNAUTHORIZED, headers, login_page(path, message))


async def _send_problem(send: Send, refused: _Refused) -> None:
    problem = {
        "type": "about:blank",
        "title": refused.status.phrase,
        "status": refused.status,
        "detail": refused.detail,
    }
    headers = [(b"content-type", b"application/problem+json")]
    if refused.status is HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    await _answer(send, refused.status, headers, json.dumps(problem, ensure_ascii=False).encode())
