"""`nightbook worker` that notes how long each step of its engines takes: `python -m tests.bench.timed worker`.

The file `steps` in the data folder gets a line a step: when it began (ns since the epoch) and how long it took (ms).
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from app import cli
from engine.session import Session

FILE = "steps"


def note_steps() -> None:
    """Notes them from now on, in every engine of this process."""
    commit = Session._commit
    notes = (Path(os.environ["NIGHTBOOK_DATA"]) / FILE).open("a", buffering=1)

    async def timed(session: Session, *args: Any, **more: Any) -> None:
        at, began = time.time_ns(), time.perf_counter()
        await commit(session, *args, **more)
        notes.write(f"{at} {(time.perf_counter() - began) * 1000:.3f}\n")

    Session._commit = timed  # type: ignore[method-assign,assignment]


def steps(data: Path) -> list[tuple[int, float]]:
    """What was noted: (ns, ms) of each step."""
    lines = (data / FILE).read_text().splitlines(keepends=True)
    return [(int(at), float(took)) for at, took in (line.split() for line in lines if line.endswith("\n"))]


if __name__ == "__main__":
    note_steps()
    cli.main()
