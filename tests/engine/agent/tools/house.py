"""A turn's room over a real database and a real folder: what a tool needs to run, without an engine around it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import trio

from engine.agent.calls import CodeResult, Result, Tool, ToolFailed
from engine.decide import first_frames
from engine.files import Files
from engine.frames import BODIES, Draft
from engine.ids import new_id
from engine.journal import Journal, Step
from engine.notebook import Notebook, fold, frames_from
from engine.store import asking
from engine.store.steps import Row


class House:
    """One notebook: `notebook` its fold, `folder` its workspace, and a `Room` for one turn of its only cell."""

    def __init__(self, journal: Journal, notebook_id: str, epoch: int, folder: Path) -> None:
        self.journal = journal
        self.id = notebook_id
        self.epoch = epoch
        self.folder = folder
        self.notebook = Notebook(notebook_id)
        self.files = Files(notebook_id, folder, self, journal)
        self.fetch_allow: Sequence[str] = ()
        self.run_id = "run1"
        self.call_id = "call1"
        self.code: list[tuple[str, str, str]] = []
        self.outcome = CodeResult("done", "", 0, None, 0)
        self._roots: list[int] = []

    @property
    def cell_id(self) -> str:
        return self.notebook.order[0]

    async def write(self, drafts: Sequence[Draft], rows: Sequence[Row] = ()) -> None:
        for item in drafts:
            BODIES[item.kind].model_validate(item.fields)
        step = Step(self.id, self.epoch, self.notebook.seq, drafts, rows=rows)
        at = await self.journal.commit(step)
        self.notebook = fold(self.notebook, frames_from(self.notebook, drafts, at))

    async def workspace(self) -> int:
        self._roots.append(await self.files.root())
        return self._roots[-1]

    async def run_code(self, key: str, kind: Literal["python", "shell"], code: str) -> CodeResult:
        self.code.append((key, kind, code))
        return self.outcome

    async def run_cell(self, key: str, cell_id: str) -> CodeResult:
        self.code.append((key, "cell", cell_id))
        return self.outcome

    async def keep_blob(self, mime: str, encoding: str | None, data: bytes) -> str:
        return await self.journal.keep_blob(self.id, mime, encoding, data)

    async def call(self, tool: Tool, key: str = "call1", **arguments: Any) -> Result:
        """The whole of a call, as a turn makes it. Raises `ToolFailed`."""
        self.call_id = key
        checked = tool.Arguments.model_validate(arguments)
        try:
            described = await tool.describe(self, checked)
            result = await tool.run(self, key, checked, described)
        finally:
            while self._roots:
                os.close(self._roots.pop())
        if result.drafts or result.rows:
            await self.write(result.drafts, result.rows)
        return result

    async def failure(self, tool: Tool, **arguments: Any) -> str:
        """Why the call failed."""
        try:
            result = await self.call(tool, **arguments)
        except ToolFailed as error:
            return str(error)
        raise AssertionError(f"it did not fail: {result}")

    async def sql(self, statement: str, *args: Any) -> Any:
        return await self.journal._bridge.run(self.journal._pool.fetch, statement, *args)  # type: ignore[union-attr]


@asynccontextmanager
async def house(database: str, folder: Path) -> AsyncIterator[House]:
    """A notebook with one agent cell on `database`; its workspace is `folder`/workspace."""
    journal = Journal(database)
    await journal.start(lambda _: None)
    try:
        notebook_id = new_id()
        drafts = first_frames("Test", [(new_id(), "agent", "")], "owner")
        await journal._bridge.run(asking.create, journal._pool, notebook_id, "Test", drafts, 1)
        claim = await journal.claim(notebook_id, "w-test")
        assert claim is not None
        made = House(journal, notebook_id, claim.epoch, folder / "workspace")
        made.notebook = await journal.load(notebook_id)
        with trio.fail_after(100):
            yield made
    finally:
        await journal.stop()
