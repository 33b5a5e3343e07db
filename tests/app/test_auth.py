"""The door, tried from outside: a real server, real requests, real sockets."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import uvicorn
import websockets.exceptions
import websockets.sync.client

from app import auth, login
from app.auth import AuthMiddleware
from app.settings import Settings

TOKEN = "a-token-for-these-tests"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
PAGE = {"Accept": "text/html,application/xhtml+xml"}


async def inside(scope: Any, receive: Any, send: Any) -> None:
    """What is behind the door: says who came, by which scheme, and echoes one message on sockets."""
    if scope["type"] == "lifespan":
        return
    said = f"{scope.get('nightbook.member')} {scope['scheme']} {scope['path']}".encode()
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": said.decode()})
        await send({"type": "websocket.close"})
        return
    headers = [(b"content-type", b"text/plain")]
    if scope["path"] == "/own-policy":
        headers.append((b"content-security-policy", b"sandbox"))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": said})


@dataclass
class Door:
    """A server behind the middleware, on a port of its own."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def cookie(self) -> str:
        return f"nightbook-{self.port}"

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, trust_env=False, **options)

    @contextlib.contextmanager
    def logged_in(self) -> Iterator[httpx.Client]:
        with self.client() as client:
            assert client.get("/", params={"token": TOKEN}).status_code == 303
            yield client

    def socket(self, **headers: str) -> websockets.sync.client.ClientConnection:
        url = f"ws://127.0.0.1:{self.port}/_nicegui_ws/socket.io/"
        return websockets.sync.client.connect(url, additional_headers=headers, proxy=None)


OpenDoor = Callable[..., Door]


@pytest.fixture
def open_door() -> Iterator[OpenDoor]:
    servers: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(**options: Any) -> Door:
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        chosen = {"token": TOKEN, "public_url": None, "trusted_proxies": (), "host": "127.0.0.1", "port": port}
        app = AuthMiddleware(inside, **(chosen | options))
        config = uvicorn.Config(app, log_level="critical", access_log=False, proxy_headers=False, lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        servers.append((server, thread))
        deadline = time.monotonic() + 10
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.005)
        return Door(port)

    yield start
    for server, thread in servers:
        server.should_exit = True
        thread.join(10)


@pytest.fixture
def door(open_door: OpenDoor) -> Door:
    return open_door()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers a wrong token at once, where a test is not about that delay."""
    monkeypatch.setattr(auth, "_WRONG_SECONDS", 0.0)


# Who is it


def test_nobody_gets_in_without_a_token(door: Door) -> None:
    with door.client() as client:
        for path in (
            "/",
            "/api/v1/notebooks",
            "/_nicegui/3.18.0/static/nicegui.js",
            "/_nicegui_ws/socket.io/",
            "/favicon.ico",
        ):
            answer = client.get(path)
            assert answer.status_code == 401, path
            assert "owner" not in answer.text


def test_the_health_checks_are_free_for_every_host(door: Door) -> None:
    with door.client() as client:
        assert client.get("/healthz").text == "None http /healthz"
        assert client.get("/readyz", headers={"Host": "10.1.2.3:8080"}).status_code == 200
        assert client.get("/healthz/../api/v1/notebooks").status_code == 401


def test_a_bearer_token_makes_the_owner(door: Door) -> None:
    with door.client() as client:
        assert client.get("/api/v1/notebooks", headers=BEARER).text == "owner http /api/v1/notebooks"
        assert client.post("/api/v1/notebooks", headers=BEARER).status_code == 200


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("value", ["Bearer wrong", "Bearer", f"Bearer {TOKEN}x", "Bearer \xe9", f"Basic {TOKEN}"])
def test_a_wrong_bearer_is_a_problem_that_says_so(door: Door, value: str) -> None:
    with door.client() as client:
        answer = client.get("/api/v1/notebooks", headers={"Authorization": value.encode("latin-1")})
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json().keys() == {"type", "title", "status", "detail"}
    assert TOKEN not in answer.text


@pytest.mark.usefixtures("impatient")
def test_a_wrong_bearer_is_not_saved_by_a_cookie(door: Door) -> None:
    with door.logged_in() as client:
        assert client.get("/", headers={"Authorization": "Bearer wrong"}).status_code == 401


def test_a_wrong_token_waits_and_a_right_one_does_not(door: Door) -> None:
    with door.client() as client:
        start = time.monotonic()
        client.get("/api/v1/notebooks", headers={"Authorization": "Bearer wrong"})
        assert time.monotonic() - start >= 0.5
        took = []
        for _ in range(5):
            start = time.monotonic()
            client.get("/api/v1/notebooks", headers=BEARER)
            took.append(time.monotonic() - start)
        assert min(took) < 0.4


def test_many_wrong_tokens_at_once_are_turned_away(door: Door) -> None:
    async def try_many() -> list[int]:
        async with httpx.AsyncClient(base_url=door.url, trust_env=False) as client:
            tries = [client.get("/api/v1/x", headers={"Authorization": f"Bearer {n}"}) for n in range(40)]
            return sorted(answer.status_code for answer in await asyncio.gather(*tries))

    statuses = asyncio.run(try_many())
    assert statuses.count(401) >= 16
    assert statuses.count(429) >= 1


# The login link, the form and the cookie


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("/?token={t}", "/"),
        ("/notebooks/7?token={t}&after=3", "/notebooks/7?after=3"),
        ("/?after=3&token={t}", "/?after=3"),
        ("//elsewhere.example/?token={t}", "/"),
    ],
)
def test_the_login_link_sets_the_cookie_and_loses_the_token(door: Door, link: str, target: str) -> None:
    with door.client() as client:
        answer = client.get(door.url + link.format(t=TOKEN))
        assert answer.status_code == 303
        assert answer.headers["location"] == target
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        cookie = answer.headers["set-cookie"]
        assert TOKEN not in cookie
        assert cookie.startswith(f"{door.cookie}=")
        assert {"HttpOnly", "SameSite=Lax", "Path=/", f"Max-Age={30 * 24 * 3600}"} <= set(cookie.split("; "))
        assert "Secure" not in cookie
        assert client.get("/").text == "owner http /"


def test_an_old_link_of_someone_logged_in_still_works(door: Door) -> None:
    with door.logged_in() as client:
        assert client.get("/notebooks/7?token=of-last-week").headers["location"] == "/notebooks/7"


@pytest.mark.usefixtures("impatient")
def test_a_wrong_link_shows_the_login_page_without_the_token(door: Door) -> None:
    with door.client() as client:
        answer = client.get("/?token=not-this-one", headers=PAGE)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "not the right one" in answer.text
    assert "not-this-one" not in answer.text


@pytest.mark.usefixtures("impatient")
def test_the_api_takes_no_token_from_the_address(door: Door) -> None:
    with door.client() as client:
        assert client.get("/api/v1/notebooks", params={"token": TOKEN}).status_code == 401


def test_a_page_without_a_login_is_the_form(door: Door) -> None:
    with door.client() as client:
        answer = client.get('/notebooks/7?after="><script>', headers=PAGE)
        assert answer.status_code == 401
        assert '<form method="post" action="/login">' in answer.text
        assert "<script" not in answer.text
        assert "src=" not in answer.text
        assert "http" not in answer.text
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        # Browsers send "Origin: null" with a form of a page under no-referrer, and that is refused.
        assert answer.headers.get_list("referrer-policy") == ["same-origin"]
        answer = client.post("/login", data={"token": f" {TOKEN} ", "path": "/notebooks/7?after=3"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/notebooks/7?after=3")
        assert client.get("/notebooks/7").status_code == 200


@pytest.mark.usefixtures("impatient")
def test_the_form_refuses_a_wrong_token_and_a_huge_body(door: Door) -> None:
    with door.client() as client:
        assert client.post("/login", data={"token": "wrong"}).status_code == 401
        assert client.post("/login", content=b"\xff\x00").status_code == 401
        assert client.post("/login", data={"token": "x" * 10000}).status_code == 413
        assert client.get("/login").headers["location"] == "/"
        assert client.get("/", headers=PAGE).status_code == 401


@pytest.mark.parametrize(
    "path", ["//elsewhere.example", "/\\elsewhere.example", "https://elsewhere.example", "/a\r\nX: y"]
)
def test_the_form_goes_nowhere_else(door: Door, path: str) -> None:
    with door.client() as client:
        assert client.post("/login", data={"token": TOKEN, "path": path}).headers["location"] == "/"


@pytest.mark.usefixtures("impatient")
def test_a_cookie_ends_with_its_token_its_time_and_any_change(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    tickets = login.Tickets(TOKEN)
    good = tickets.issue()
    assert tickets.is_ticket(good)
    assert not login.Tickets("another-token-than-that").is_ticket(good)
    issued, nonce, signature = good.split(".")
    assert not tickets.is_ticket(f"{int(issued) + 1}.{nonce}.{signature}")
    for bad in ("", ".", "..", "x", "\xe9.\xe9", good[:-1], good + "0", good.upper()):
        assert not tickets.is_ticket(bad), bad
        with door.client(cookies={door.cookie: bad.encode("ascii", "ignore").decode()}) as client:
            assert client.get("/").status_code == 401
    now = time.time()
    monkeypatch.setattr(login.time, "time", lambda: now + login.COOKIE_SECONDS - 10)
    assert tickets.is_ticket(good)
    monkeypatch.setattr(login.time, "time", lambda: now + login.COOKIE_SECONDS + 10)
    assert not tickets.is_ticket(good)
    monkeypatch.setattr(login.time, "time", lambda: now - 3600)
    assert not tickets.is_ticket(good)


def test_cookies_of_others_on_this_machine_do_no_harm(door: Door) -> None:
    with door.client() as client:
        answer = client.get("/", headers={"Cookie": f'a=[b]; c="d; nightbook-1=x; {door.cookie}=bad'})
        assert answer.status_code == 401
        ticket = login.Tickets(TOKEN).issue()
        answer = client.get("/", headers={"Cookie": f'a=[b]; c="d; {door.cookie}=bad; {door.cookie}={ticket}'})
        assert answer.status_code == 200


# Which host, which origin


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:9000", "127.0.0.1:1", "[::1]:8080", "127.9.9.9", "LOCALHOST."]
)
def test_names_of_this_machine_are_good_hosts(door: Door, host: str) -> None:
    with door.client() as client:
        assert client.get("/", headers=BEARER | {"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "a@localhost", "10.0.0.1", "", "[::1", "x/y"],
)
def test_a_rebound_name_is_refused_even_with_the_token(door: Door, host: str) -> None:
    with door.client() as client:
        answer = client.get("/api/v1/x", headers=BEARER | {"Host": host})
    assert answer.status_code == 400
    if answer.headers.get("content-type") == "application/problem+json":  # else uvicorn was first
        assert "NIGHTBOOK_PUBLIC_URL" in answer.json()["detail"]


def test_an_open_address_is_reached_by_number_and_by_public_name(open_door: OpenDoor) -> None:
    door = open_door(host="0.0.0.0", public_url="https://nb.example.org")
    with door.client() as client:
        for host, status in {"10.0.0.7:8080": 200, "nb.example.org": 200, "evil.example": 400}.items():
            assert client.get("/", headers=BEARER | {"Host": host}).status_code == status, host


def test_a_post_with_the_cookie_has_to_come_from_our_own_page(door: Door) -> None:
    with door.logged_in() as client:
        for headers, status in (
            ({"Origin": door.url}, 200),
            ({}, 200),  # no browser leaves it out
            ({"Origin": "http://127.0.0.1:1"}, 403),
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"Sec-Fetch-Site": "same-origin", "Origin": door.url}, 200),
        ):
            answer = client.post("/api/v1/x", headers=headers)
            assert answer.status_code == status, headers
        assert client.post("/api/v1/x", headers=BEARER | {"Origin": "https://evil.example"}).status_code == 200


def test_a_foreign_page_may_link_to_us_but_not_fetch(door: Door) -> None:
    foreign = {"Sec-Fetch-Site": "cross-site"}
    with door.logged_in() as client:
        assert client.get("/notebooks/7", headers=foreign | {"Sec-Fetch-Mode": "navigate"}).status_code == 200
        assert client.get("/api/v1/x/frames", headers=foreign | {"Sec-Fetch-Mode": "no-cors"}).status_code == 403


def test_a_foreign_page_cannot_log_someone_in(door: Door) -> None:
    with door.client() as client:
        answer = client.post("/login", data={"token": TOKEN}, headers={"Origin": "https://evil.example"})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


# Sockets


def test_a_socket_needs_the_token_or_the_cookie(door: Door) -> None:
    with door.socket(**BEARER) as connection:
        assert connection.recv(timeout=5) == "owner ws /_nicegui_ws/socket.io/"
    ticket = login.Tickets(TOKEN).issue()
    with door.socket(Cookie=f"{door.cookie}={ticket}", Origin=door.url) as connection:
        assert connection.recv(timeout=5) == "owner ws /_nicegui_ws/socket.io/"
    with pytest.raises(websockets.exceptions.InvalidStatus, match="403"):
        door.socket()


def test_a_socket_from_a_foreign_page_or_a_rebound_name_is_refused(door: Door) -> None:
    cookie = f"{door.cookie}={login.Tickets(TOKEN).issue()}"
    for headers in (
        {"Cookie": cookie, "Origin": "https://evil.example"},
        {"Cookie": cookie, "Origin": "http://localhost:1"},
        {"Cookie": cookie, "Origin": "null"},
    ):
        with pytest.raises(websockets.exceptions.InvalidStatus, match="403"):
            door.socket(**headers)


# Behind a proxy


def test_a_trusted_proxy_with_tls_makes_the_cookie_secure(open_door: OpenDoor) -> None:
    door = open_door(trusted_proxies=("127.0.0.0/8",))
    with door.client() as client:
        answer = client.get("/", params={"token": TOKEN}, headers={"X-Forwarded-Proto": "https"})
        assert "; Secure" in answer.headers["set-cookie"]
        assert client.get("/", headers=BEARER | {"X-Forwarded-Proto": "https"}).text == "owner https /"
        answer = client.get("/", params={"token": TOKEN}, headers={"X-Forwarded-Proto": "https, http"})
        assert "; Secure" not in answer.headers["set-cookie"]


def test_nobody_else_is_believed_about_tls(door: Door) -> None:
    with door.client() as client:
        answer = client.get("/", params={"token": TOKEN}, headers={"X-Forwarded-Proto": "https"})
        assert "Secure" not in answer.headers["set-cookie"]
        assert client.get("/", headers=BEARER | {"X-Forwarded-Proto": "https"}).text == "owner http /"


def test_a_public_url_with_tls_makes_the_cookie_secure_and_names_the_origin(open_door: OpenDoor) -> None:
    door = open_door(public_url="https://nb.example.org")
    host = {"Host": "nb.example.org"}
    with door.client() as client:
        answer = client.get("/", params={"token": TOKEN}, headers=host)
        assert "; Secure" in answer.headers["set-cookie"]
        cookie = host | {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
        for origin, status in (("https://nb.example.org", 200), ("http://nb.example.org", 403)):
            assert client.post("/api/v1/x", headers=cookie | {"Origin": origin}).status_code == status


# What every answer carries


def test_answers_cannot_be_framed_sniffed_or_read_by_other_sites(door: Door) -> None:
    with door.client(headers=BEARER) as client:
        page, call, own = client.get("/"), client.get("/api/v1/x"), client.get("/own-policy")
    for answer in (page, call, own):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert page.headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert f"connect-src 'self' ws://127.0.0.1:{door.port};" in page.headers["content-security-policy"]
    assert call.headers["content-security-policy"].endswith("sandbox")
    assert own.headers["content-security-policy"] == "sandbox"
    assert "x-frame-options" not in own.headers


# The token


def test_a_token_is_made_once_and_kept_private(tmp_path: Any) -> None:
    settings = Settings(data=tmp_path, token=None)
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.append(auth.load_or_make_token(settings))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert len(set(made)) == 1
    assert len(made[0]) >= 32
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["token"]


def test_a_given_token_is_used_and_not_written_down(tmp_path: Any) -> None:
    assert auth.load_or_make_token(Settings(data=tmp_path, token=TOKEN)) == TOKEN
    assert not list(tmp_path.iterdir())
