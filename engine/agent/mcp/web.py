"""The HTTP transport: the SDK's, over a client that reaches allowed addresses only and reads no more than it should.

A server of the team may be anywhere, whoever set it up decided that; one that a notebook names is judged as `fetch`
judges an address, on the very one that is connected to.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import httpcore2
import httpx2
from mcp.client.streamable_http import streamable_http_client

from engine.agent.mcp.connection import Connection
from engine.agent.mcp.flow import MESSAGE_BYTES, Flooded, Flow
from engine.agent.mcp.spec import ServerSpec
from engine.agent.tools.public import CONNECT_SECONDS, Allowed, NotAllowed, judged

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

READ_SECONDS = 300.0  # between two pieces of an answer; the call has a limit of its own


@contextlib.asynccontextmanager
async def over_http(
    spec: ServerSpec, fetch_allow: Sequence[str], connection: Connection
) -> AsyncIterator[TransportStreams]:
    """The address as the streams that a session of the SDK talks over."""
    assert spec.url is not None
    allowed = None if spec.team else Allowed(fetch_allow)
    transport = _Bounded(allowed, connection)
    headers = {"User-Agent": "Nightbook", **spec.headers, "Accept-Encoding": "identity"}
    timeout = httpx2.Timeout(CONNECT_SECONDS * 2, read=READ_SECONDS)
    async with (
        httpx2.AsyncClient(transport=transport, headers=headers, timeout=timeout, trust_env=False) as client,
        streamable_http_client(spec.url, http_client=client, max_sse_event_size=MESSAGE_BYTES) as streams,
    ):
        yield streams


class _Bounded(httpx2.AsyncHTTPTransport):
    """Counts what comes, and tells the connection in words why something did not."""

    def __init__(self, allowed: Allowed | None, connection: Connection) -> None:
        super().__init__(trust_env=False)
        self._connection = connection
        if allowed is not None:
            self._pool = httpcore2.AsyncConnectionPool(
                ssl_context=httpx2.create_ssl_context(), network_backend=judged(httpcore2, allowed)
            )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await super().handle_async_request(request)
        except NotAllowed as error:
            self._connection.fail(str(error))
            raise httpx2.ConnectError(str(error)) from None
        except httpx2.ConnectError as error:
            self._connection.fail(f"it cannot be reached: {error}")
            raise
        if response.status_code in (401, 403):
            said = f"it answers {response.status_code}, it wants a key: only the team's setting can give one"
            self._connection.fail(said)
        elif response.status_code >= 400 and response.status_code not in (404, 405):
            self._connection.spoken = f"the last answer was {response.status_code} {response.reason_phrase}"
        if response.headers.get("content-encoding", "identity") not in ("", "identity"):
            self._connection.fail("it sends what is packed, although it was asked not to")
            await response.aclose()
            raise httpx2.DecodingError("packed", request=request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Counted(response.stream, self._connection)
        return response


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, connection: Connection) -> None:
        self._inner = inner
        self._connection = connection

    async def __aiter__(self) -> AsyncIterator[bytes]:
        flow: Flow = self._connection.flow
        async for part in self._inner:
            try:
                flow.came(len(part))
                for _ in range(part.count(b"\ndata:")):
                    flow.message()
            except Flooded as flooded:
                self._connection.fail(str(flooded))
                raise httpx2.ReadError(str(flooded)) from None
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()
