"""A server's tool as one of ours: the same checks, the same question to a person, the same single try."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, RootModel

from engine import workspace
from engine.agent.calls import Description, EffectClass, Result, Room, Status, ToolFailed
from engine.agent.mcp.connection import AnswerLost, ServerFailed
from engine.agent.mcp.content import Kept, read
from engine.agent.mcp.listing import Offered, misfit
from engine.agent.mcp.spec import ServerSpec
from engine.agent.tools.code import keep_files
from engine.agent.tools.text import one_line
from engine.files import Cause, ChangedMeanwhile
from engine.frames import Risk
from engine.rules import rule_title
from engine.trimming import bounded

RULE_WORDS = 12


class Caller(Protocol):
    """What sends a call to a server."""

    async def call(self, server: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The answer, decoded. Raises `ServerFailed`, or `AnswerLost` when it may have been done all the same."""


class ServerTool:
    """One tool of one server. A program may do what code may, an address is the network: by that a policy goes, and not
    by what the server says of itself."""

    effect: ClassVar[EffectClass] = "once"

    def __init__(self, spec: ServerSpec, offered: Offered, caller: Caller) -> None:
        self.name = offered.name
        self.server = spec.name
        self.risk: Risk = "run" if spec.url is None else "network"
        self._spec = spec
        self._offered = offered
        self._caller = caller
        self._arguments = _arguments(offered)

    @property
    def Arguments(self) -> type[BaseModel]:
        return self._arguments

    async def describe(self, room: Room, arguments: Any) -> Description:
        given: dict[str, Any] = arguments.root
        if (wrong := misfit(self._offered.schema, given)) is not None:
            raise ToolFailed(f"the arguments of {self.name} do not fit: {wrong}")
        shown = json.dumps(given, ensure_ascii=False, indent=1) if given else "no arguments"
        words = self._words(given)
        return Description(
            title=f"{self._offered.title}: {one_line(_short(given)) or 'no arguments'}",
            command=f"{self.name}\n{shown}",
            touches=(f"{'address' if self._spec.url else 'program'}: {self._spec.place}",),
            facts=(f"server {self._spec.fingerprint}", f"tool {self._offered.digest}"),
            words=words,
            rule=rule_title(self.name, words, f"exactly this call of {self.name}: {one_line(_short(given), 200)}"),
        )

    def _words(self, given: dict[str, Any]) -> list[str] | None:
        """The call as plain words, for a rule that covers it and nothing else; null where they cannot tell it whole."""
        if len(given) > RULE_WORDS:
            return None
        words = [self.name, self._spec.fingerprint, self._offered.digest]
        for key in sorted(given):
            value = given[key]
            if isinstance(value, str) and not value.startswith("=") and ":" not in key:
                words.append(f"{key}:{value}")
            elif isinstance(value, bool | int) and ":" not in key:
                words.append(f"{key}:={json.dumps(value)}")
            else:
                return None
        return words

    async def run(self, room: Room, key: str, arguments: Any, description: Description) -> Result:
        try:
            answer = await self._caller.call(self.server, self._offered.own, arguments.root)
        except AnswerLost as lost:
            told = f"The server {self.server}: {lost}. The call may have had its effect: look before you do it again."
            return Result("unknown", told)
        except ServerFailed as failed:
            raise ToolFailed(f"the server {self.server}: {failed}") from None
        finally:
            if self._spec.url is None:
                await keep_files(room)  # its program may have written them
        try:
            said = read(self.server, answer, self._offered.result_schema)
        except ValueError as wrong:
            raise ToolFailed(f"the server {self.server} did the call and answered wrongly: {wrong}") from None
        text, left_out = bounded(self._spec.hide("\n".join([said.text, *await _keep(room, said.files)])))
        status: Status = "error" if said.failed else "done"
        return Result(status, text, left_out=left_out, source=f"the server {self.server}")

    async def look_up(self, room: Room, key: str, arguments: Any) -> Result | None:
        return None  # nobody but the server could know


async def _keep(room: Room, files: Sequence[Kept]) -> list[str]:
    """Keeps bytes as files of the notebook; says what could not be kept."""
    cause = Cause("agent", room.cell_id, room.run_id, room.call_id)
    problems: list[str] = []
    for kept in files:
        try:
            await room.files.put(kept.path, kept.data, cause)
        except (ChangedMeanwhile, workspace.WorkspaceError, OSError) as error:
            problems.append(f"[{kept.path} could not be kept: {error}]")
    return problems


def _arguments(offered: Offered) -> type[BaseModel]:
    """A model that takes any object, and tells what the server told: the server judges what it is given."""

    class Given(RootModel[dict[str, Any]]):
        @classmethod
        def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
            return offered.schema

    Given.__doc__ = offered.description
    return Given


def _short(given: dict[str, Any]) -> str:
    return ", ".join(
        f"{key} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for key, value in given.items()
    )
