"""Workers on one database, as real processes: who dies is followed, who freezes is refused when it wakes, and what
lives on one machine is neither taken from it while it can come back, nor ever started a second time elsewhere.

Two stories and not six tests: each process costs a second.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app.sandboxes import find_sandboxes
from e2e.api import Api, Notebook
from e2e.scale import SOAK
from e2e.server import Server
from e2e.waiting import pass_time, until
from engine.store.ownership import ALIVE_SECONDS, PRECEDENCE_SECONDS
from tests.app.conftest import TOKEN

pytestmark = pytest.mark.timeout(600)

FROZEN_SECONDS = 60.0 if SOAK else 1.0
SLOW = 120  # seconds that a busy machine may take for anything

PRINTS = """
import os, time
open("starts", "a").write("start\\n")
n = 0
while not os.path.exists("enough"):
    print("line", n, flush=True)
    n += 1
    time.sleep(0.05)
open("ended", "w").write(str(n))
"""
TURN = """Keep what matters.

```write notes.txt
from before
```

Now read it again.

```sh
cat notes.txt; echo once >> effects
```
"""


class Town:
    """One database, a web half, and workers: those with the same data folder are on one machine."""

    def __init__(self, address: str, folder: Path) -> None:
        self._address, self._folder = address, folder
        self._servers: list[Server] = []
        self.web = self.start("web")
        self.web.wait_ready()
        self.api = Api(self.web.url, TOKEN)

    def start(self, command: str = "worker", machine: str = "a") -> Server:
        """A process on a machine; it may not be ready yet."""
        made = Server(self._folder / machine, command, DATABASE_URL=self._address, TOKEN=TOKEN, POLL_SECONDS=1)
        made.launch()
        self._servers.append(made)
        return made

    def sql(self, statement: str, *args: Any) -> list[Any]:
        async def run() -> list[Any]:
            connection = await asyncpg.connect(self._address)
            try:
                return list(await connection.fetch(statement, *args))
            finally:
                await connection.close()

        return asyncio.run(run())

    def silent_for(self, seconds: float) -> None:
        """So long ago the time of the workers of now ran out, as the database sees it."""
        self.sql("UPDATE worker SET until = now() - $1::float8 * interval '1 s'", seconds)

    def owner(self, notebook: Notebook) -> str | None:
        [row] = self.sql("SELECT owner FROM notebook WHERE id = $1", notebook.id)
        found: str | None = row["owner"]
        return found

    def sandboxes(self, machine: str) -> list[Path]:
        return find_sandboxes(self._folder / machine)

    def noted(self, notebook: Notebook, name: str) -> str:
        """What the notebook's program noted in a file, on all machines."""
        found = sorted(self._folder.glob(f"*/workspaces/{notebook.id}/{name}"))
        return "".join(path.read_text() for path in found)

    def enough(self, notebook: Notebook, machine: str = "a") -> None:
        """Its program may end."""
        (self._folder / machine / "workspaces" / notebook.id / "enough").touch()

    def close(self) -> None:
        self.api.close()
        last = {server.data: server for server in self._servers}
        for server in self._servers:
            if server.running:
                os.kill(server.pid, signal.SIGCONT)  # one that is frozen cannot leave
                server.process.terminate()  # type: ignore[union-attr]
        for server in self._servers:
            server.wait(60)
        for server in last.values():
            server.stop_all()
        assert [line for server in last.values() for line in server.left_behind()] == []


@pytest.fixture
def town(own_database: Callable[..., str], tmp_path: Path) -> Iterator[Town]:
    made = Town(own_database(), tmp_path)
    yield made
    made.close()


def begun(town: Town, *more: tuple[str, str]) -> Notebook:
    """A notebook whose first cell prints."""
    notebook = town.api.notebook(("python", PRINTS), *more)
    notebook.run(notebook.cells[0])
    until(lambda: "line 3\n" in notebook.text(notebook.cells[0]), "it prints", SLOW, every=0.2)
    return notebook


def goes_on(notebook: Notebook) -> None:
    """It prints, and that is stored."""
    head = notebook.head()
    until(lambda: notebook.head() > head + 5, "it goes on", SLOW, every=0.1)


def assert_whole(town: Town, notebook: Notebook) -> None:
    """Every line once, one start, one end, numbers without a gap."""
    town.enough(notebook)
    notebook.wait(notebook.cells[0], "done", seconds=SLOW)
    lines = notebook.text(notebook.cells[0]).splitlines()
    assert lines == [f"line {n}" for n in range(int(town.noted(notebook, "ended")))]
    assert town.noted(notebook, "starts") == "start\n"
    frames = notebook.frames()
    assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))
    assert runs_of_first(notebook) == ["queued", "started", "ended"]


def runs_of_first(notebook: Notebook) -> list[str]:
    """What became of the run of its first cell."""
    return [frame["body"]["event"] for frame in notebook.runs() if frame["cell_id"] == notebook.cells[0]]


def asks(town: Town) -> list[Any]:
    found: list[Any] = town.api.client.get("/api/v1/asks").json()
    return found


def approve(town: Town) -> None:
    """Says yes to the one ask that waits, or comes."""
    [ask] = until(lambda: asks(town), "somebody asks", SLOW, every=0.2)
    assert town.api.client.post(f"/api/v1/asks/{ask['id']}", json={"verdict": "approve"}).status_code == 200
    until(lambda: not asks(town) or asks(town)[0]["id"] != ask["id"], "it counts", SLOW)


def test_on_one_machine_who_dies_or_freezes_is_followed(town: Town) -> None:
    """The one that was killed is reaped by nobody: whoever asks for a process of its number finds one, as where a
    number is used again. The one that froze finds out about every notebook it had, also about one that says nothing."""
    first = town.start()
    killed_at = begun(town)
    second = town.start()
    second.wait_ready()
    os.kill(first.pid, signal.SIGKILL)
    since = time.monotonic()
    goes_on(killed_at)
    took = time.monotonic() - since
    print(f"taken over {took:.1f} s after the kill")
    assert not SOAK or took < ALIVE_SECONDS + 5
    os.kill(first.pid, 0)
    assert_whole(town, killed_at)

    busy, idle = begun(town), town.api.notebook(("python", "print('first')"))
    idle.run(idle.cells[0])
    idle.wait(idle.cells[0], "done", seconds=SLOW)
    owner = town.owner(busy)
    os.kill(second.pid, signal.SIGSTOP)
    if not SOAK:
        town.silent_for(1)
    third = town.start()
    until(lambda: town.owner(busy) != owner, "another takes it", SLOW, every=0.3)
    idle.ask("edit_cell", cell_id=idle.cells[0], source="print('second')", base=0)
    idle.run(idle.cells[0])
    until(lambda: "second" in idle.text(idle.cells[0]), "another serves the idle one", SLOW)
    pass_time(FROZEN_SECONDS, "it is frozen")
    os.kill(second.pid, signal.SIGCONT)
    for notebook in (busy, idle):
        refused = f"notebook {notebook.id}: another engine took over at a later epoch"
        until(lambda said=refused: said in second.told(), "it says of its notebooks that it is refused", SLOW)
    until(lambda: "this worker was taken for dead" in second.told(), "it says so of itself", SLOW)
    goes_on(busy)
    assert_whole(town, busy)
    assert town.owner(busy) != owner
    assert second.running, f"an engine that is refused stops, its worker does not:\n{second.told()[-6000:]}"
    assert "Traceback" not in second.told() + third.told()


def test_on_another_machine_what_cannot_come_back_is_lost_by_name_and_never_started_again(town: Town) -> None:
    """For a minute a notebook whose sandbox lives is its own machine's. A turn that has none is anybody's."""
    first = town.start()
    running, turn = begun(town), town.api.notebook(("agent", TURN))
    turn.run(turn.cells[0])
    until(lambda: asks(town), "it asks", SLOW)
    first.kill()
    town.silent_for(PRECEDENCE_SECONDS / 2)
    elsewhere = town.start(machine="b")
    elsewhere.wait_ready()
    [worker] = town.sql("SELECT id FROM worker WHERE until > now()")
    until(lambda: town.owner(turn) == worker["id"], "the turn is taken up elsewhere", SLOW, every=0.3)
    assert town.owner(running) != worker["id"]
    again = town.start()
    goes_on(running)
    assert_whole(town, running)
    assert "lost" not in str(running.frames())
    assert town.sandboxes("b") == []
    approve(town)
    approve(town)
    turn.wait(turn.cells[0], "done", seconds=SLOW)
    elsewhere.kill()

    notebook = begun(town, ("shell", "echo behind"), ("agent", TURN))
    running_cell, behind, turn_cell = notebook.cells
    notebook.run(behind)
    notebook.run(turn_cell)
    approve(town)
    until(lambda: asks(town), "it asks about its second step", SLOW)
    os.kill(again.pid, signal.SIGSTOP)
    town.silent_for(PRECEDENCE_SECONDS + 1)
    elsewhere = town.start(machine="b")
    ended = notebook.wait(running_cell, "error", seconds=SLOW)
    assert ended["reason"] == f"lost with machine {socket.gethostname()}"
    approve(town)
    notebook.wait(turn_cell, "done", seconds=SLOW)
    notebook.wait(behind, "done", seconds=SLOW)
    assert "from before" in notebook.text(turn_cell), "the folder there was filled from what is kept"
    assert notebook.file("effects", seconds=SLOW) == "once\n"
    assert "line 3\n" in notebook.text(running_cell), "what it printed stays"

    # That machine was only cut off. It comes back, and what runs there for nobody is ended.
    os.kill(again.pid, signal.SIGCONT)
    until(lambda: "it is on another machine now, so its sandbox here is ended" in again.told(), "it says so", SLOW)
    until(lambda: not town.sandboxes("a"), "nothing of it runs on there", SLOW)
    assert town.noted(notebook, "starts") == "start\n"
    assert runs_of_first(notebook) == ["queued", "started", "ended"]

    # And back, when the other one is gone for good.
    elsewhere.kill()
    town.sql(
        "UPDATE worker SET until = now() - interval '1 h' WHERE host = (SELECT place FROM notebook WHERE id = $1)",
        notebook.id,
    )
    assert notebook.file("effects", seconds=SLOW) == "once\n"
