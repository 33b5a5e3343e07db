"""`add_cell` and `run_cell`: a turn at the notebook itself, by the same decisions as a person's commands."""

from __future__ import annotations

import hashlib
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from engine import commands, decide
from engine.agent.calls import Description, EffectClass, Result, Room, ToolFailed
from engine.agent.tools.code import CODE_LIMIT, kept
from engine.agent.tools.text import one_line
from engine.frames import Risk
from engine.notebook import Cell

BY = "agent"
CellId = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.:-]+$")]


class AddCell:
    """Adds a cell. `pure`: the cell is committed with the result, and a repetition would give it the same id."""

    class Arguments(BaseModel):
        """Adds a cell to the notebook, at its end or behind another one. It is not run: use run_cell with the id that
        the result tells. People see it, can edit it and run it again."""

        model_config = ConfigDict(extra="forbid")
        kind: Literal["python", "shell", "markdown"]
        source: Annotated[str, Field(max_length=CODE_LIMIT)]
        after: Annotated[CellId | None, Field(description="Id of the cell to put it behind; left out: the end")] = None

    name: ClassVar[str] = "add_cell"
    risk: ClassVar[Risk] = "write"
    effect: ClassVar[EffectClass] = "pure"

    async def describe(self, room: Room, arguments: Arguments) -> Description:
        if arguments.after is not None:
            _cell(room, arguments.after)
        return Description(
            title=f"{arguments.kind}: {one_line(arguments.source) or 'an empty cell'}",
            command=arguments.source,
            touches=("the notebook's cells",),
        )

    async def run(self, room: Room, key: str, arguments: Arguments, description: Description) -> Result:
        cell_id = hashlib.sha256(f"cell {key}".encode()).hexdigest()[:16]
        command = commands.AddCell(
            id=f"add-{cell_id}",
            kind="add_cell",
            cell_kind=arguments.kind,
            source=arguments.source,
            after=arguments.after or "end",
            cell_id=cell_id,
        )
        try:
            commands.check_source(arguments.source)
            plan = decide.decide(room.notebook, command, BY)
        except (decide.Refused, commands.TooLarge) as refusal:
            raise ToolFailed(str(refusal)) from None
        return Result("done", f"added cell {cell_id}", drafts=plan.drafts)

    async def look_up(self, room: Room, key: str, arguments: Arguments) -> Result | None:
        return None


class RunCell:
    """Runs a cell. `once`, as for `shell`: the run has a name that belongs to the call."""

    class Arguments(BaseModel):
        """Runs a Python or shell cell of the notebook, waits for its end and returns what it printed. Its output shows
        below the cell, as when a person runs it."""

        model_config = ConfigDict(extra="forbid")
        cell_id: CellId

    name: ClassVar[str] = "run_cell"
    risk: ClassVar[Risk] = "run"
    effect: ClassVar[EffectClass] = "once"

    async def describe(self, room: Room, arguments: Arguments) -> Description:
        cell = _cell(room, arguments.cell_id)
        if cell.kind not in ("python", "shell"):
            raise ToolFailed(f"cell {cell.id} is a {cell.kind} cell; only Python and shell cells can be run here")
        return Description(
            title=one_line(cell.source) or f"an empty {cell.kind} cell",
            command=cell.source,
            touches=("everything in the notebook's folder", "what its programs can reach"),
            facts=(_fact(cell),),
        )

    async def run(self, room: Room, key: str, arguments: Arguments, description: Description) -> Result:
        cell = room.notebook.cells.get(arguments.cell_id)
        if cell is not None and _fact(cell) not in description.facts:
            raise ToolFailed(f"cell {cell.id} was edited meanwhile: look at it again")
        return await self._outcome(room, key, arguments.cell_id)

    async def _outcome(self, room: Room, key: str, cell_id: str) -> Result:
        return await kept(room, await room.run_cell(key, cell_id))

    async def look_up(self, room: Room, key: str, arguments: Arguments) -> Result | None:
        try:
            return await self._outcome(room, key, arguments.cell_id)
        except ToolFailed:
            return None


def _cell(room: Room, cell_id: str) -> Cell:
    cell = room.notebook.cells.get(cell_id)
    if cell is None:
        raise ToolFailed(f"there is no cell {cell_id}; it may have been deleted meanwhile")
    return cell


def _fact(cell: Cell) -> str:
    return f"cell {cell.id} is version {cell.version}, {cell.kind}"
