"""What a turn lends to a tool for one call. No viewer, no page, no request is to be had here."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from engine.agent.calls import CodeResult
from engine.files import Files
from engine.frames import Draft
from engine.notebook import Notebook, Run
from engine.store.steps import Row

if TYPE_CHECKING:
    from engine.agent.making import Host

Waiting = Callable[[], AbstractContextManager[None]]


class TurnRoom:
    """`engine.agent.calls.Room` for one call of a turn; entered while the call lasts."""

    def __init__(self, host: Host, run: Run, call: str, waiting: Waiting, fetch_allow: Sequence[str]) -> None:
        self.call_id = call
        self.fetch_allow = fetch_allow
        self._host = host
        self._run = run
        self._waiting = waiting
        self._folders: list[int] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._folders:
            os.close(self._folders.pop())

    @property
    def notebook(self) -> Notebook:
        return self._host.notebook

    @property
    def cell_id(self) -> str:
        return self._run.cell_id

    @property
    def run_id(self) -> str:
        return self._run.id

    @property
    def files(self) -> Files:
        return self._host.files

    async def run_code(self, key: str, kind: Literal["python", "shell"], code: str) -> CodeResult:
        return await self._host.code.run_code(self._run, key, kind, code, self._waiting)

    async def run_cell(self, key: str, cell_id: str) -> CodeResult:
        return await self._host.code.run_cell(self._run, key, cell_id, self._waiting)

    async def workspace(self) -> int:
        folder = await self.files.root()
        self._folders.append(folder)
        return folder

    async def write(self, drafts: Sequence[Draft], rows: Sequence[Row] = ()) -> None:
        await self._host.step(lambda _: (drafts, rows))

    async def keep_blob(self, mime: str, encoding: str | None, data: bytes) -> str:
        return await self._host.keep_blob(mime, encoding, data)
