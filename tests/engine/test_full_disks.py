"""A workspace or a spool that is really full: the run tells the truth, nothing is lost, and the next run works.

On small file systems in memory, which only root may mount.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from e2e.scale import SOAK
from tests.engine.engine_run import text_of, worker

pytestmark = pytest.mark.trio

MEBIBYTE = 2**20
FILL = """
try:
    with open("large", "wb") as file:
        while True: file.write(bytes(65536)); file.flush()
except OSError as problem:
    print("stopped:", problem.strerror, flush=True)
    raise
"""
LINES = """
import os, time
n = 0
while not os.path.exists("enough"):
    print("line", n, "x" * 2000, flush=True)
    open("count", "w").write(str(n))
    n += 1
    time.sleep(0.05)
print("lines", n)
"""


@contextlib.contextmanager
def small(folder: Path, mebibytes: int) -> Iterator[None]:
    """A file system of this size at `folder`; skips the test where none can be mounted."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=700", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a file system can be mounted by root alone, and not in every container")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def test_a_full_workspace_is_told_by_the_run_and_the_next_one_works(database: str, tmp_path: Path) -> None:
    with small(tmp_path / "workspaces", 2):
        async with worker(database, tmp_path) as hand:
            notebook_id, [fill, note, tidy, again] = await hand.create(
                ("python", FILL), ("shell", "echo more > more || echo refused"), ("shell", "rm large"),
                ("python", "print(open('new', 'w').write('x' * 1000))"),
            )  # fmt: skip
            for cell, state in ((fill, "error"), (note, "done"), (tidy, "done"), (again, "done")):
                await hand.ask(notebook_id, "run_cell", cell_id=cell)
                assert await hand.ended(notebook_id, cell, 60) == state
            notebook = await hand.notebook(notebook_id)
            assert "stopped: No space left on device" in text_of(notebook, fill)
            assert "No space left on device" in str(notebook.cells[fill].reason)
            assert "refused" in text_of(notebook, note)
            assert text_of(notebook, again) == "1000\n"


@pytest.mark.skipif(not SOAK, reason="only with NIGHTBOOK_SOAK=1: half a minute, most of it waiting")
async def test_a_spool_on_a_full_disk_holds_the_program_up_and_loses_nothing(database: str, tmp_path: Path) -> None:
    with small(tmp_path / "sandboxes", 4):
        async with worker(database, tmp_path) as hand:
            notebook_id, [cell, after] = await hand.create(("python", LINES), ("python", "print('fine')"))
            await hand.ask(notebook_id, "run_cell", cell_id=cell)
            await hand.until(notebook_id, lambda n: "line 3 " in text_of(n, cell), 60)
            filler = tmp_path / "sandboxes" / "filler"
            with contextlib.suppress(OSError), filler.open("wb", 0) as file:
                while file.write(bytes(4096)):
                    pass
            count = tmp_path / "workspaces" / notebook_id / "count"
            await _stands(count)
            filler.unlink()
            seen = int(count.read_text())
            await hand.until(notebook_id, lambda n: f"line {seen + 5} " in text_of(n, cell), 60)
            (count.parent / "enough").touch()
            assert await hand.ended(notebook_id, cell, 60) == "done"
            await hand.ask(notebook_id, "run_cell", cell_id=after)
            assert await hand.ended(notebook_id, after, 60) == "done"
            printed = "".join(
                frame.body.get("text", "") for frame in await hand.frames(notebook_id) if frame.cell_id == cell
            )
            *lines, last = printed.splitlines()
            assert [line.split()[1] for line in lines] == [str(n) for n in range(len(lines))]
            assert last == f"lines {len(lines)}"


async def _stands(count: Path) -> None:
    """Until the program is held up: it counts no further for a while."""
    with trio.fail_after(60):
        seen, since = "", trio.current_time()
        while trio.current_time() - since < 1.5:
            if (now := await trio.Path(count).read_text()) != seen:
                seen, since = now, trio.current_time()
            await trio.sleep(0.05)
