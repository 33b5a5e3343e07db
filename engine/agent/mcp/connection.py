"""One conversation with one server, by the official SDK, as a task of its own: whatever the server does ends in words.

It is opened when something is wanted of it, and closed with the notebook's engine, with its sandbox, or when the server
is taken out. A server that hangs, dies, floods or lies fails what was asked of it then, and nothing else.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from engine.agent.mcp.flow import Flow
from engine.agent.mcp.listing import flattened

if TYPE_CHECKING:
    from mcp import ClientSession
    from mcp.client._transport import TransportStreams
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

log = logging.getLogger(__name__)

PAGES = 20  # of one list of tools
LISTED = 2_000  # tools that are looked at
END_SECONDS = 5.0  # for the reason why a connection broke to be known
IMPORTED = ("mcp.client.session", "mcp.shared.jsonrpc_dispatcher", "engine.agent.mcp.web")  # takes a second

Opening = Callable[["Connection"], AbstractAsyncContextManager["TransportStreams"]]


class ServerFailed(Exception):
    """What was asked did not come to pass; the message says why. Nothing was done."""


class AnswerLost(ServerFailed):
    """It was asked, and no answer came: what it did is not known."""


class Connection:
    """`opening` gives the streams. `run` is to be started in a nursery; it returns when the conversation is over."""

    def __init__(self, name: str, opening: Opening, flow: Flow) -> None:
        self.name = name
        self.flow = flow
        self.why: str | None = None  # it is over
        self.stale = False  # the server says that its tools changed
        self.spoken: object = ""  # what its program said beside the protocol
        self._opening = opening
        self._over = trio.Event()
        self._scope = trio.CancelScope()
        self._session: ClientSession | None = None
        self._dispatcher: JSONRPCDispatcher[Any] | None = None

    @property
    def over(self) -> bool:
        return self._over.is_set()

    @property
    def aside(self) -> str:
        """What its program said beside the protocol, in brackets; nothing when it said nothing."""
        spoken = flattened(str(self.spoken), 300)
        return f" ({spoken})" if spoken else ""

    def fail(self, why: str) -> None:
        """It is over, and that is why; the first reason counts."""
        self.why = self.why or flattened(why, 500)
        self._over.set()
        self._scope.cancel()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until it is over. Started when the first words were exchanged, or when that failed (`why`)."""
        try:  # around the scope: where it cuts the SDK short, errors come out together with its cancellation
            with self._scope:
                for module in IMPORTED:
                    await trio.to_thread.run_sync(importlib.import_module, module)
                await self._talk(task_status)
        except* Exception as errors:  # a stranger's server: whatever comes of it must not reach the engine
            log.info("tool server %s: %s", self.name, errors, exc_info=True)
            self.fail(_reason(errors))
        self.fail("it was closed")
        with contextlib.suppress(RuntimeError):
            task_status.started()  # it never came so far

    async def _talk(self, task_status: trio.TaskStatus[None]) -> None:
        import mcp.types as types
        from mcp import ClientSession
        from mcp.shared.exceptions import MCPError
        from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

        async with self._opening(self) as (read, write):
            dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(read, write)
            me = types.Implementation(name="nightbook", version="1")
            async with ClientSession(dispatcher=dispatcher, client_info=me, message_handler=self._heard) as session:
                self.flow.asked()
                try:
                    await session.initialize()
                except MCPError as error:
                    if error.code == types.CONNECTION_CLOSED:  # why, is known in a moment
                        with trio.move_on_after(END_SECONDS):
                            await self._over.wait()
                    raise
                self._session, self._dispatcher = session, dispatcher
                task_status.started()
                await trio.sleep_forever()

    async def _heard(self, message: Any) -> None:
        if getattr(message, "method", None) == "notifications/tools/list_changed":
            self.stale = True

    async def listing(self) -> list[Any]:
        """Its tools as it lists them, decoded and not checked. Raises `ServerFailed`."""
        self.stale = False
        found: list[Any] = []
        cursor: Any = None
        for _ in range(PAGES):
            params = {} if cursor is None else {"cursor": cursor}
            page = await self._ask(partial(self._raw, "tools/list", params))
            tools = page.get("tools")
            if not isinstance(tools, list):
                raise ServerFailed("its list of tools is none")
            found += tools
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor or len(found) >= LISTED:
                break
        return found[:LISTED]

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """What the server answers to a call, decoded. Raises `AnswerLost` when none came, `ServerFailed` else."""
        import mcp.types as types

        asked = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=arguments))

        async def send() -> dict[str, Any]:
            assert self._session is not None
            answer = await self._session.send_request(asked, types.CallToolResult)
            return answer.model_dump(by_alias=True, mode="json")

        return await self._ask(send)

    async def _raw(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert self._dispatcher is not None
        return await self._dispatcher.send_raw_request(method, params)

    async def _ask(self, send: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        from mcp.shared.exceptions import MCPError
        from mcp.types import CONNECTION_CLOSED
        from pydantic import ValidationError

        if self.over or self._session is None:
            raise ServerFailed(self.why or "it is not connected")
        self.flow.asked()
        answer: dict[str, Any] | None = None
        problem: ServerFailed | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_over, nursery.cancel_scope)
            try:
                answer = await send()
            except MCPError as error:
                if error.code == CONNECTION_CLOSED:
                    with trio.move_on_after(END_SECONDS):
                        await self._over.wait()
                else:
                    problem = ServerFailed(f"it answers with an error: {flattened(error.message, 500)}")
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                where = flattened(".".join(str(part) for part in first["loc"][:6]), 100)
                problem = AnswerLost(
                    f"its answer is none that the protocol knows ({where}: {flattened(first['msg'], 200)})"
                )
            nursery.cancel_scope.cancel()
        if answer is not None:
            return answer
        raise problem or AnswerLost(self.why or "its connection was closed")

    async def _until_over(self, scope: trio.CancelScope) -> None:
        await self._over.wait()
        scope.cancel()


def _reason(error: BaseException) -> str:
    """The first cause that says something, at whatever depth of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
