"""Promises broken on purpose, each in a copy of the program: the harness must find every one.

| invariant | what is broken | where | found by | which death it takes |
| --- | --- | --- | --- | --- |
| 1 stored before seen | a commit is answered before it is on disk | PostgreSQL's settings | 1, 3 | the database, just behind a frame |
| 2 one writer | a step asks neither for the epoch nor for its head | the statement of a step | 2, 3, 6, 8 | a worker that freezes and wakes |
| 3 exactly once | a viewer is handed the frame that it has already | the feed | 3 | none |
| 6 an effect happens once | a run that is known starts when asked for again | the shim | 6, 8 | a worker under its runs |
| 8 one ending | the end that a sandbox tells is written twice | records to frames | 8 | none |

Each of these deaths is in every campaign, so five seeds find each. `python -m tests.harness.broken` breaks each, and says
what found it.
"""

# ruff: noqa: E501 - a text is compared as it stands

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ATTEMPTS = 3  # a break shows only where a death meets it; so far the first attempt sufficed


@dataclass(frozen=True)
class Break:
    """`changes` are (file, text that stands there once, what takes its place)."""

    invariant: int
    changes: tuple[tuple[str, str, str], ...]


BREAKS = (
    Break(
        1,
        (
            ("engine/store/embedded.py", "synchronous_commit = on\n", "synchronous_commit = off\nwal_writer_delay = 10s\n"),
        ),
    ),
    Break(
        2,
        (
            ("engine/store/steps.py", "WHERE n.id = w.id AND n.epoch = w.epoch AND n.head = w.base", "WHERE n.id = w.id"),
            ("engine/store/steps.py", "RETURNING n.id, w.base, n.head", "RETURNING n.id, n.head - w.k AS base, n.head"),
        ),
    ),
    Break(3, (("engine/hot.py", "range(seq - self.first,", "range(max(0, seq - self.first - 1),"),)),
    Break(6, (("engine/sandbox/shim.py", "if known is not None:\n", 'if known is not None and known["state"] != "running":\n'),)),
    Break(8, (("engine/records.py", "        drafts += made\n", '        drafts += made * (2 if record["t"] == "ended" else 1)\n'),)),
)  # fmt: skip


def copy_with(broken: Break, folder: Path) -> None:
    """The program with its tests, one promise broken."""
    for name in ("app", "engine", "ui", "e2e", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in broken.changes:
        text = (folder / name).read_text()
        assert text.count(old) == 1, f"{name}: {old!r} stands there {text.count(old)} times"
        (folder / name).write_text(text.replace(old, new))


def found(broken: Break) -> list[str]:
    """What the harness says of the copy; nothing when it found nothing."""
    with tempfile.TemporaryDirectory(prefix="nightbook-broken-") as folder:
        copy_with(broken, Path(folder))
        for attempt in range(ATTEMPTS):
            first = attempt * 20  # web and worker apart
            done = subprocess.run(
                [sys.executable, "-m", "tests.harness", f"{first}-{first + 4}"],
                cwd=folder, capture_output=True, text=True, timeout=1200,
            )  # fmt: skip
            if said := [line for line in done.stdout.splitlines() if line.startswith("invariant ")]:
                return said
    return []


def main() -> None:
    for broken in BREAKS:
        said = found(broken)
        told = sorted({line.split(":")[0] for line in said})
        print(f"invariant {broken.invariant} broken; found by: {', '.join(told) or 'nothing'}", flush=True)
        print(*said[:3], sep="\n", flush=True)


if __name__ == "__main__":
    main()
