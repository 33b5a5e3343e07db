"""What a frame changes on a page, worked out once for all pages that show the notebook.

A fold at one seq is the same wherever it was made, so who comes a moment later takes it from here. Kept for a second:
clocks in it count from when it was made.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import NamedTuple

from engine.frames import Frame
from engine.notebook import Notebook, apply
from ui import ops

FRESH_SECONDS = 1.0
KEPT_FRAMES = 256
KEPT_BYTES = 16384  # of a frame's body; one that is larger is worked out each time


class _Made(NamedTuple):
    at: float
    notebook: Notebook
    view: list[ops.Op]


class Drawing:
    """Shared by the viewers of a web half."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, int], _Made] = {}

    def after(self, notebook: Notebook, frame: Frame) -> tuple[Notebook, list[ops.Op]]:
        """The fold behind `frame`, which follows on `notebook`, and the operations that lead there."""
        key, at = (notebook.id, frame.seq), time.monotonic()
        known = self._made.get(key)
        if known is not None and notebook.seq == frame.seq - 1 and at - known.at < FRESH_SECONDS:
            return known.notebook, known.view
        newer = apply(notebook, frame)
        view = ops.between(notebook, newer, frame, datetime.now(UTC))
        if len(frame.text) <= KEPT_BYTES and notebook.seq == frame.seq - 1:
            self._made.pop(key, None)
            self._made[key] = _Made(at, newer, view)
            if len(self._made) > KEPT_FRAMES:
                del self._made[next(iter(self._made))]
        return newer, view
