"""The tool servers of one notebook: who is connected, what they offer, and what pages are told of them.

What the journal holds of a server is where it is and what it listed last. A connection is opened when a turn begins
that may call it, or when a person asks for a look; it lives as long as the engine and the sandbox do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import trio

from engine.agent.calls import Tool
from engine.agent.mcp.connection import AnswerLost, Connection, ServerFailed
from engine.agent.mcp.flow import Flow
from engine.agent.mcp.listing import ALL_TOOLS, Listing, flattened, offered
from engine.agent.mcp.opening import opening
from engine.agent.mcp.spec import ServerSpec, specs
from engine.agent.mcp.tool import ServerTool
from engine.frames import Draft, draft
from engine.notebook import Notebook
from engine.runs import Decided
from engine.sandbox.client import Sandbox

log = logging.getLogger(__name__)

SUMMARY = 160  # characters of a description, for people


@dataclass(frozen=True, slots=True)
class ServersConfig:
    """The team's servers; seconds for one to be connected and listed, and for one call."""

    team: Sequence[ServerSpec] = ()
    connect: float = 30.0
    call: float = 120.0


class Host(Protocol):
    """What the session lends."""

    @property
    def notebook(self) -> Notebook:
        """As it stands now."""

    async def step(self, decide: Callable[[Notebook], Decided]) -> None:
        """Commits what `decide` makes of the notebook as it is at that moment, in one step."""

    async def awake(self) -> Sandbox:
        """The sandbox, started when there was none."""


@dataclass(slots=True)
class _Server:
    spec: ServerSpec
    lock: trio.Lock = field(default_factory=trio.Lock)
    connection: Connection | None = None
    listing: Listing | None = None
    tools: dict[str, ServerTool] = field(default_factory=dict)


class Servers:
    """Opens, lists, calls and closes. Its tasks are in `nursery`, set when the engine runs."""

    def __init__(
        self, host: Host, config: ServersConfig, fetch_allow: Sequence[str], rested: Callable[[], None]
    ) -> None:
        self.nursery: trio.Nursery | None = None
        self._host = host
        self._config = config
        self._fetch_allow = fetch_allow
        self._servers: dict[str, _Server] = {}
        self._looking = 0
        self._rested = rested  # called when nothing is looked at any more

    @property
    def busy(self) -> bool:
        """Whether a server is being looked at for a person."""
        return self._looking > 0

    def _known(self) -> dict[str, _Server]:
        """The servers that there are now; one that is gone, or is another now, is closed."""
        wanted = specs(self._config.team, self._host.notebook.servers)
        for name, server in list(self._servers.items()):
            if wanted.get(name) != server.spec:
                if server.connection is not None:
                    server.connection.fail("it was taken out of the notebook")
                del self._servers[name]
        for name, spec in wanted.items():
            if name not in self._servers:
                self._servers[name] = _Server(spec)
        return self._servers

    def team_drafts(self) -> list[Draft]:
        """What the journal does not say yet of the team's servers."""
        told = self._host.notebook.servers
        ours = {spec.name: spec for spec in self._config.team}
        drafts = [
            draft("server", event="removed", server=name, team=True)
            for name, server in told.items()
            if server.get("team") and name not in ours
        ]
        for name, spec in ours.items():
            before = told.get(name, {})
            where = {"url": spec.place} if spec.url is not None else {"command": [spec.place]}
            if not before.get("team") or any(before.get(key) != value for key, value in where.items()):
                drafts.append(draft("server", event="added", server=name, team=True, **where))
        return drafts

    # What a turn uses

    async def ready(self, names: Collection[str] | None) -> list[str]:
        """Connects and lists these servers (null: all), side by side; says of each that failed why, in words."""
        known = {name: server for name, server in self._known().items() if names is None or name in names}
        problems: dict[str, str] = {}

        async def one(name: str, server: _Server) -> None:
            try:
                await self._listed(server)
            except ServerFailed as failed:
                problems[name] = f"The server {name} cannot be used: {failed}. None of its tools is to be had."
            else:
                assert server.listing is not None
                if server.listing.left_out:
                    total = server.listing.left_out + len(server.listing.tools)
                    problems[name] = (
                        f"The server {name} offers {total} tools. The first {len(server.listing.tools)} can be "
                        f"called; the other {server.listing.left_out} are left out."
                    )

        async with trio.open_nursery() as nursery:
            for name, server in known.items():
                nursery.start_soon(one, name, server)
        told = [problems[name] for name in known if name in problems]
        if (more := sum(len(server.tools) for server in known.values()) - ALL_TOOLS) > 0:
            told.append(f"All servers together offer {more} tools more than the {ALL_TOOLS} that can be called.")
        return told

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools of those that were connected and listed, by the name for models; bounded together."""
        found: dict[str, Tool] = {}
        for server in self._known().values():
            for name, tool in server.tools.items():
                if len(found) < ALL_TOOLS:
                    found[name] = tool
        return found

    async def call(self, server: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """As `Caller`."""
        known = self._known().get(server)
        if known is None:
            raise ServerFailed("it was taken out of the notebook")
        connection = await self._connected(known)
        try:
            with trio.move_on_after(self._config.call):
                return await connection.call(tool, arguments)
        except ServerFailed as failed:
            raise type(failed)(known.spec.hide(str(failed))) from None
        raise AnswerLost(known.spec.hide(f"it gave no answer within {self._config.call:g} s{connection.aside}"))

    # Connecting

    async def _connected(self, server: _Server) -> Connection:
        async with server.lock:
            if server.connection is not None and not server.connection.over:
                return server.connection
            assert self.nursery is not None
            spec = server.spec
            made = Connection(spec.name, opening(spec, self._host.awake, self._fetch_allow), Flow())
            with trio.move_on_after(self._config.connect) as scope:
                await self.nursery.start(made.run)
            if scope.cancelled_caught:
                made.fail(f"it did not answer within {self._config.connect:g} s{made.aside}")
            if made.why is not None:
                raise ServerFailed(spec.hide(made.why))
            server.connection = made
            return made

    async def _listed(self, server: _Server) -> None:
        try:
            connection = await self._connected(server)
            if server.listing is None or connection.stale:
                with trio.move_on_after(self._config.connect):
                    raw = await connection.listing()
                    server.listing = offered(server.spec.name, raw)
                    server.tools = {tool.name: ServerTool(server.spec, tool, self) for tool in server.listing.tools}
                if server.listing is None:
                    raise ServerFailed(f"it did not list its tools within {self._config.connect:g} s")
        except ServerFailed as failed:
            server.tools, server.listing = {}, None
            name = server.spec.name
            await self._tell(name, draft("server", event="failed", server=name, reason=server.spec.hide(str(failed))))
            raise
        await self._tell(server.spec.name, listed(server.spec.name, server.listing))

    async def _tell(self, name: str, told: Draft) -> None:
        """Tells how it stands, when that is not what the journal says."""

        def tell(notebook: Notebook) -> Decided:
            before = notebook.servers.get(name)
            if before is None or before.get("off") or before.get("told") == told.fields:
                return (), ()
            return [told], ()

        await self._host.step(tell)

    def look(self, name: str) -> None:
        """A person wants to see what a server offers, now."""
        self._looking += 1
        assert self.nursery is not None
        self.nursery.start_soon(self._look, name)

    async def _look(self, name: str) -> None:
        try:
            server = self._known().get(name)
            if server is not None:
                server.listing = None
                await self._listed(server)
        except ServerFailed as failed:
            log.info("tool server %s: %s", name, failed)
        finally:
            self._looking -= 1
            self._rested()


def listed(name: str, listing: Listing) -> Draft:
    """What the journal holds of a list: names and a line each, for people."""
    tools = [
        {
            "name": tool.name,
            "title": tool.title,
            "about": flattened(_said(tool.description), SUMMARY),
            **({"reads": True} if tool.reads else {}),
        }
        for tool in listing.tools
    ]
    return draft(
        "server", event="listed", server=name, tools=tools, left_out=listing.left_out or None,
        problems=list(listing.problems) or None,
    )  # fmt: skip


def _said(description: str) -> str:
    """The server's own words of a marked description."""
    return description.partition("<description>\n")[2].rpartition("\n</description>")[0]
