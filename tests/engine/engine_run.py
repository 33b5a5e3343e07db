"""A whole worker half in a test's own trio run: journal, supervisor, real sandboxes; and a hand that asks and waits."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import trio

from app.sandboxes import find_sandboxes, shut_down
from engine.agent.calls import Model
from engine.decide import first_frames
from engine.frames import BODIES, Frame
from engine.ids import new_id
from engine.journal import Journal
from engine.notebook import Notebook, fold
from engine.sandbox.client import SandboxConfig
from engine.store import asking, reading
from engine.supervisor import Supervisor
from tests.engine.scripted import Given


class Hand:
    """Asks for things as the web half would, by rows, and reads frames as a viewer would."""

    def __init__(self, journal: Journal, folder: Path, supervisor: Supervisor | None = None) -> None:
        self.journal = journal
        self.supervisor = supervisor
        self.folder = folder

    async def sql(self, statement: str, *args: Any) -> Any:
        return await self.journal._bridge.run(self.journal._pool.fetch, statement, *args)  # type: ignore[union-attr]

    async def create(self, *cells: tuple[str, str]) -> tuple[str, list[str]]:
        """A notebook with cells (kind, source); returns its id and theirs."""
        notebook_id = new_id()
        made = [(new_id(), kind, source) for kind, source in cells]
        drafts = first_frames("Test", made, "owner")
        await self.journal._bridge.run(asking.create, self.journal._pool, notebook_id, "Test", drafts, len(made))
        return notebook_id, [cell_id for cell_id, _, _ in made]

    async def ask(self, notebook_id: str, kind: str, **fields: Any) -> str:
        command_id = fields.pop("id", None) or new_id()
        body = {"id": command_id, "kind": kind, **fields}
        await self.journal._bridge.run(asking.ask, self.journal._pool, notebook_id, "owner", command_id, body)
        return str(command_id)

    async def frames(self, notebook_id: str) -> list[Frame]:
        found: list[Frame] = []
        while more := await self.journal._bridge.run(
            reading.frames, self.journal._pool, notebook_id, found[-1].seq if found else 0
        ):
            found += more
        for frame in found:
            BODIES[frame.kind].model_validate(frame.body)
        return found

    async def notebook(self, notebook_id: str) -> Notebook:
        """The fold over the whole journal, not over a snapshot."""
        return fold(Notebook(notebook_id), await self.frames(notebook_id))

    async def until(self, notebook_id: str, condition: Callable[[Notebook], Any], seconds: float = 20.0) -> Notebook:
        """Waits until the fold meets `condition`; fails with its frames when it does not in time."""
        notebook = Notebook(notebook_id)
        with trio.move_on_after(seconds):
            while True:
                more = await self.journal._bridge.run(reading.frames, self.journal._pool, notebook_id, notebook.seq)
                notebook = fold(notebook, more)
                if condition(notebook):
                    return notebook
                if not more:
                    await trio.sleep(0.03)  # each look is a query, and takes processor time from what is waited for
        story = [(frame.seq, frame.kind, frame.text[:200]) for frame in await self.frames(notebook_id)]
        raise AssertionError(f"not within {seconds} s: {json.dumps(story[-30:], indent=1, ensure_ascii=False)}")

    async def ended(self, notebook_id: str, cell_id: str, seconds: float = 20.0) -> str:
        """Waits until the cell's run is over; returns its status."""
        over = ("done", "error", "cancelled")
        notebook = await self.until(notebook_id, lambda n: n.cells[cell_id].state in over, seconds)
        return notebook.cells[cell_id].state


def text_of(notebook: Notebook, cell_id: str) -> str:
    """What a cell printed."""
    return "".join(item.get("text", "") for item in notebook.cells[cell_id].output)


@contextlib.asynccontextmanager
async def worker(
    database: str,
    folder: Path,
    *,
    sandbox_idle: float = 300,
    kernel_idle: float = 86400,
    poll: float = 5.0,
    keep: bool = False,
    sandbox: dict[str, Any] | None = None,
    model: Model | None = None,
    **turns: Any,
) -> AsyncIterator[Hand]:
    """A worker on `database` with its data in `folder`; with `keep` its sandboxes go on when it ends."""
    config = SandboxConfig(root=folder / "sandboxes", workspaces=folder / "workspaces")
    if sandbox:
        config = replace(config, **sandbox)
    if model is not None:
        turns["models"] = Given(model)
    journal = Journal(database)
    supervisor = Supervisor(
        journal, config, folder / "workers", poll=poll, sandbox_idle=sandbox_idle, kernel_idle=kernel_idle, **turns
    )
    hand = Hand(journal, folder, supervisor)
    await journal.start(supervisor.hint, supervisor.question)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.serve)
            await supervisor.ready.wait()
            try:
                yield hand
            finally:
                nursery.cancel_scope.cancel()
    finally:
        await journal.stop()
        if not keep:
            await end_sandboxes(folder)


async def end_sandboxes(folder: Path) -> None:
    """Ends what runs in the sandboxes of a data folder."""
    with trio.CancelScope(shield=True):
        for state in find_sandboxes(folder):
            assert await trio.to_thread.run_sync(shut_down, state)
