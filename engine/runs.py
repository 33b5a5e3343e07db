"""Code that turns run: it enters the cell lane at its head, and its outcome is found again by its name.

A run of code for a call is a run in the fold like any other, of the cell of its turn; what it prints is what that cell
shows. The sandbox knows runs by name, so asking for one twice starts it once, before a crash and after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol

from engine import decide
from engine.agent.calls import CodeResult, OutcomeUnknown, ToolFailed
from engine.agent.context import pictures_in, text_of
from engine.effects import code_run
from engine.frames import Draft, draft
from engine.notebook import Cell, Notebook, Run
from engine.output import Output
from engine.store.steps import Row

LOST = "the sandbox went away while it ran: how far it came is not known"
Decided = tuple[Sequence[Draft], Sequence[Row]]


class Host(Protocol):
    """What a session lends for running code."""

    @property
    def notebook(self) -> Notebook:
        """As it stands now."""

    async def step(self, decide: Callable[[Notebook], Decided]) -> None:
        """Commits what `decide` makes of the notebook as it is at that moment, in one step."""

    async def until(self, condition: Callable[[Notebook], bool]) -> None:
        """Waits until the fold meets `condition`."""

    def execute(self, run_id: str) -> None:
        """Asks the sandbox for a run that the fold holds as begun; known there, it is not started again.

        One that is queued is begun when its lane is free.
        """

    def stop(self, run_id: str) -> None:
        """Asks the sandbox to stop a run."""


class CodeRuns:
    """The code of the calls that one session has under way."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._code: dict[str, tuple[str, str]] = {}

    def code(self, run_id: str) -> tuple[str, str] | None:
        """Kind and code of a call's run; null until the turn asked for it in this life of the engine."""
        return self._code.get(run_id)

    async def run_code(
        self,
        turn: Run,
        key: str,
        kind: Literal["python", "shell"],
        code: str,
        queued: Callable[[], AbstractContextManager[None]],
    ) -> CodeResult:
        """Runs code for a call of `turn`; `queued` is entered while it waits for the lane. As `Room.run_code`."""
        run_id = code_run(key)
        self._code[run_id] = (kind, code)
        try:

            def begin(notebook: Notebook) -> Decided:
                if run_id in notebook.runs or _known(notebook, turn.cell_id, run_id):
                    return (), ()
                return [
                    draft(
                        "run", event="queued", run_id=run_id, cell_id=turn.cell_id, by="agent",
                        parent=turn.id, kind=kind,
                    )
                ], ()  # fmt: skip

            await self._host.step(begin)
            self._host.execute(run_id)  # known from before a crash: only now its code is
            await self._over(run_id, queued)
        finally:
            self._code.pop(run_id, None)
        return self._outcome(turn.cell_id, run_id)

    async def run_cell(
        self, turn: Run, key: str, cell_id: str, queued: Callable[[], AbstractContextManager[None]]
    ) -> CodeResult:
        """Runs a cell for a call of `turn`. As `Room.run_cell`."""
        run_id = code_run(key)

        def begin(notebook: Notebook) -> Decided:
            cell = notebook.cells.get(cell_id)
            if cell is None:
                raise ToolFailed(f"there is no cell {cell_id}; it may have been deleted meanwhile")
            if run_id in notebook.runs or cell.run_id == run_id:
                return (), ()
            if cell.kind not in ("python", "shell"):
                raise ToolFailed(f"cell {cell_id} is of kind {cell.kind}: only Python and shell cells can be run here")
            if cell.run_id in notebook.runs:
                raise ToolFailed(f"cell {cell_id} runs or is queued already")
            made = draft("run", event="queued", run_id=run_id, cell_id=cell_id, by="agent", turn=turn.id)
            return [made], ()

        await self._host.step(begin)
        await self._over(run_id, queued)
        cell = self._host.notebook.cells.get(cell_id)
        if cell is None or cell.run_id != run_id:
            raise ToolFailed(f"cell {cell_id} was deleted or run again meanwhile: what this run did is in its history")
        return _result(cell.state, cell.output, cell.reason, None)

    async def end_all(self, turn_id: str) -> None:
        """Stops what a turn has under way, and waits until it is gone."""

        def stop(notebook: Notebook) -> Decided:
            drafts: list[Draft] = []
            for run in decide.calls_of(notebook, turn_id):
                if run.state == "queued":
                    drafts.append(decide.end(run, "cancelled", "its turn is over"))
                elif run.state != "cancelling":
                    drafts.append(draft("run", event="cancelling", run_id=run.id, cell_id=run.cell_id))
            return drafts, ()

        await self._host.step(stop)
        for run in decide.calls_of(self._host.notebook, turn_id):
            self._host.stop(run.id)
        await self._host.until(lambda notebook: not decide.calls_of(notebook, turn_id))

    async def _over(self, run_id: str, queued: Callable[[], AbstractContextManager[None]]) -> None:
        waiting = self._host.notebook.runs.get(run_id)
        if waiting is not None and waiting.state == "queued":
            with queued():
                await self._host.until(lambda notebook: _state(notebook, run_id) != "queued")
        await self._host.until(lambda notebook: run_id not in notebook.runs)

    def _outcome(self, cell_id: str, run_id: str) -> CodeResult:
        cell = _known(self._host.notebook, cell_id, run_id)
        if cell is None or cell.call is None or cell.call.status is None:
            raise OutcomeUnknown("what became of it is not known: its cell was deleted meanwhile")
        if cell.call.lost:
            raise OutcomeUnknown(LOST)
        return _result(cell.call.status or "error", cell.output, cell.call.reason, cell.call.exit)


def _result(status: str, output: Output, reason: str | None, exit: int | None) -> CodeResult:
    inline: dict[str, bytes] = {}
    pictures = pictures_in(output, "what the call showed", inline)
    return CodeResult(status, text_of(output), output.left_out, reason, exit, pictures, inline)


def _known(notebook: Notebook, cell_id: str, run_id: str) -> Cell | None:
    """The cell, if its newest call's run is this one."""
    cell = notebook.cells.get(cell_id)
    return cell if cell is not None and cell.call is not None and cell.call.id == run_id else None


def _state(notebook: Notebook, run_id: str) -> str | None:
    run = notebook.runs.get(run_id)
    return None if run is None else run.state
