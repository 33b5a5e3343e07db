"""Visitors who go before the answer began: real sockets, and what the server's log says of them."""

import contextlib
import re
import socket
import struct
import time
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from app.departed import DepartedMiddleware
from e2e.api import Api
from e2e.server import Server
from e2e.waiting import until
from tests.app.conftest import TOKEN

RESET = struct.pack("ii", 1, 0)  # closing sends RST, as a phone that lost its network may


def depart(server: Server, request: str, body: bytes = b"") -> None:
    """Sends a request, over and over, and goes at all sorts of moments."""
    head = f"{request} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body) + 1000}\r\n"
    for moment in (0, 0.001, 0.002, 0.004, 0.008, 0.02):
        for reset in (False, True):
            with socket.create_connection(("127.0.0.1", server.port)) as visitor:
                if reset:
                    visitor.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                visitor.sendall(f"{head}\r\n".encode() + body)
                time.sleep(moment)


def test_who_goes_before_the_answer_begins_is_not_in_the_log(served: Server, api: Api) -> None:
    notebook = api.notebook(("python", "1"))
    page = api.client.get(f"/n/{notebook.id}").text
    script = re.search(r'/_nicegui/[^"\']+\.js', page)
    assert script
    before = served.told()
    depart(served, f"GET {script[0]}")
    depart(served, "GET /_nicegui_ws/socket.io/?EIO=4&transport=polling")
    depart(served, f"POST /api/v1/notebooks/{notebook.id}/commands", b'{"kind": "rename"')
    depart(served, f"PUT /api/v1/notebooks/{notebook.id}/files/a.txt", b"half of it")
    with contextlib.suppress(AssertionError):  # what is told late is told within that time
        until(lambda: served.told() != before, "something is told", 2)
    assert served.told().removeprefix(before) == ""
    assert api.client.get(script[0]).status_code == 200


async def _gone() -> Any:
    return {"type": "http.disconnect"}


async def _here() -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _unheard(_: Any) -> None:
    """Nobody is there to send to."""


def failing(error: Exception) -> DepartedMiddleware:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        raise error

    return DepartedMiddleware(app)


@pytest.mark.asyncio
async def test_an_error_of_another_kind_passes_though_the_visitor_has_gone() -> None:
    with pytest.raises(RuntimeError, match="the disk is full"):
        await failing(RuntimeError("the disk is full"))({"type": "http"}, _gone, _unheard)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "error", [RuntimeError("No response returned."), ClientDisconnect(), KeyError("REQUEST_METHOD")], ids=repr
)
async def test_an_error_of_this_kind_passes_while_the_visitor_is_there(error: Exception) -> None:
    with pytest.raises(type(error)):
        await failing(error)({"type": "http"}, _here, _unheard)
    await failing(error)({"type": "http"}, _gone, _unheard)
