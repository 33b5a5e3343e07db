"""Bounding what one run displays, as `output.py` bounds what it prints.

The first displays come as they are. Past them a run that shows in a loop is looked at now and then: the newest
display, and the newest value of each that is updated, at a pace that its weight allows; at the end the last ones. What
was passed over is counted. So a loop over 10,000 plots, or a day of an updated one, takes no more than `TOTAL_BYTES`
in the journal, and the last ones.
"""

import json
import time
from collections import deque
from collections.abc import Callable
from typing import Any

FIRST = 50  # displays
FIRST_UPDATES = 200
FIRST_BYTES = 16 * 1024 * 1024
LOOK_SECONDS = 0.5  # between two looks, and longer for what is heavy:
LOOK_RATE = 64 * 1024  # bytes a second
TOTAL_BYTES = 128 * 1024 * 1024  # past it nothing comes before the end
LAST = 20
LAST_BYTES = 16 * 1024 * 1024
UPDATED = 50  # displays whose newest value is held

Fields = dict[str, Any]


def weight(fields: Fields) -> int:
    """Bytes a display roughly takes."""
    return 200 + sum(
        len(value) if isinstance(value, str) else len(json.dumps(value)) for value in fields["data"].values()
    )


class Displays:
    """`emit(fields)` makes a record. The owner calls `pump` when `due` is reached and `finish` at the run's end."""

    def __init__(self, emit: Callable[[Fields], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._clock = clock
        self._count = self._updates = self._bytes = self._left_out = 0
        self._held: deque[tuple[int, Fields]] = deque()
        self._held_bytes = 0
        self._newest: dict[str, tuple[int, Fields]] = {}  # by display id, the one updated last at the end
        self.due: float | None = None

    def show(self, fields: Fields) -> None:
        size = weight(fields)
        if fields.get("update") and fields.get("display") is not None:
            self._update(size, fields)
            return
        self._count += 1
        if self._count <= FIRST and self._bytes + size <= FIRST_BYTES and not self._held:
            self._out(size, fields)
            return
        self._held.append((size, fields))
        self._held_bytes += size
        while len(self._held) > LAST or (self._held_bytes > LAST_BYTES and len(self._held) > 1):
            self._held_bytes -= self._held.popleft()[0]
            self._left_out += 1
        self._look_later(size)

    def _update(self, size: int, fields: Fields) -> None:
        name = fields["display"]
        for at, (held, known) in enumerate(self._held):
            if known.get("display") == name:
                self._held_bytes += size - held
                self._held[at] = (size, {**fields, "update": False})
        self._updates += 1
        if self._updates <= FIRST_UPDATES and self._bytes + size <= FIRST_BYTES and name not in self._newest:
            self._out(size, fields)
            return
        self._newest.pop(name, None)
        self._newest[name] = (size, fields)
        if len(self._newest) > UPDATED:
            self._newest.pop(next(iter(self._newest)))
        self._look_later(size)

    def clear(self) -> None:
        """The output was emptied: what was held is gone with it."""
        self._held.clear()
        self._newest.clear()
        self._held_bytes = self._left_out = 0
        self.due = None

    def pump(self) -> None:
        """Emit the newest, if it is time."""
        if self.due is None or self._clock() < self.due:
            return
        self.due = None
        for size, fields in self._newest.values():
            self._out(size, fields)
        self._newest.clear()
        if self._held:
            size, fields = self._held.pop()
            self._left_out += len(self._held)
            self._held.clear()
            self._held_bytes = 0
            self._out(size, fields)

    def finish(self) -> None:
        """Emit what is held: the last displays, the last values."""
        for size, fields in [*self._newest.values(), *self._held]:
            self._out(size, fields)
        self.clear()

    def _look_later(self, size: int) -> None:
        if self.due is None and self._bytes < TOTAL_BYTES:
            self.due = self._clock() + max(LOOK_SECONDS, size / LOOK_RATE)

    def _out(self, size: int, fields: Fields) -> None:
        self._bytes += size
        if self._left_out and not fields.get("update"):
            fields = {**fields, "left_out": self._left_out}
            self._left_out = 0
        self._emit(fields)
