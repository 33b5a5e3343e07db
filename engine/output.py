"""What one cell shows: its first 64 KiB and last 256 KiB, where a display counts as 4 KiB: so at most the first 16 and
the last 64 displays. What lay between is counted.

Immutable from outside. Appending shares storage with the older value, so that folding many small frames costs little:
a value is a view (start, end) on a list that only ever grows at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

HEAD = 64 * 1024  # characters kept from the start
TAIL = 256 * 1024  # characters kept from the end

DISPLAY = 4096  # what a display counts for: its large values are blobs, which a page loads when they come near

# {"stream", "text"} or {"data", "metadata", …}; "left_out" counts bytes, "displays_left_out" displays, not shown before
Item = dict[str, Any]


def _size(item: Item) -> int:
    text = item.get("text")
    return len(text) if text is not None else DISPLAY


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """The items of one execution. `total` counts all characters added since it was empty, kept or not."""

    _items: tuple[list[Item], int] = ((), 0)  # type: ignore[assignment]
    _head: int = 0  # items that belong to the first part
    _head_size: int = 0
    _tail_size: int = 0
    _dropped: int = 0  # items dropped between the first part and the rest
    dropped_size: int = 0  # bytes of text not shown there
    dropped_displays: int = 0
    total: int = 0

    def add(self, body: dict[str, Any]) -> Output:
        """With the body of one `output` frame added."""
        item = {key: value for key, value in body.items() if key != "src"}
        if item.get("update") and item.get("display") is not None:
            return self._updated(item)
        if item.get("clear"):
            return Output()
        shared, end = self._items
        if end == 0 or len(shared) != end:  # another version already grew from here: take a copy of its own
            shared = list(shared[:end])
        shared.append(item)
        end += 1
        size = _size(item)
        head, head_size, tail_size = self._head, self._head_size, self._tail_size
        if head == end - 1 and head_size + size <= HEAD:
            head, head_size = head + 1, head_size + size
        else:
            tail_size += size
        dropped, dropped_size, displays = self._dropped, self.dropped_size, self.dropped_displays
        while tail_size > TAIL and tail_size - _size(gone := shared[head + dropped]) >= TAIL:
            dropped, tail_size = dropped + 1, tail_size - _size(gone)
            dropped_size += len(gone.get("text") or "") + (gone.get("left_out") or 0)
            displays += ("data" in gone) + (gone.get("displays_left_out") or 0)
        if dropped > 1024 and dropped * 2 > end:  # give the memory back, now and then
            shared = shared[:head] + shared[head + dropped :]
            end, dropped = end - dropped, 0
        total = self.total + len(item.get("text") or "")
        return Output((shared, end), head, head_size, tail_size, dropped, dropped_size, displays, total)

    def _updated(self, item: Item) -> Output:
        shared, end = self._items
        shared = [
            {**item, "update": None} if known.get("display") == item["display"] else known for known in shared[:end]
        ]
        return replace(self, _items=(shared, end))

    def __iter__(self) -> Iterator[Item]:
        """The kept items. A gap is told by `left_out` and `displays_left_out` on the item behind it."""
        shared, end = self._items
        for at in range(self._head):
            yield shared[at]
        first = self._head + self._dropped
        for at in range(first, end):
            if at == first and (self.dropped_size or self.dropped_displays):
                item = shared[at]
                left_out = (item.get("left_out") or 0) + self.dropped_size
                displays = (item.get("displays_left_out") or 0) + self.dropped_displays
                yield {**item, "left_out": left_out, "displays_left_out": displays}
            else:
                yield shared[at]

    @property
    def left_out(self) -> int:
        """How much of what was printed is not kept here, all gaps together."""
        return sum(item.get("left_out") or 0 for item in self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Output) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.total)

    def to_json(self) -> dict[str, Any]:
        """A plain value that `from_json` reads back; equal values give equal outputs."""
        shared, end = self._items
        return {
            "head": list(shared[: self._head]),
            "tail": list(shared[self._head + self._dropped : end]),
            "dropped": self.dropped_size,
            "dropped_displays": self.dropped_displays,
            "total": self.total,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Output:
        head, tail = value["head"], value["tail"]
        items = [*head, *tail]
        return cls(
            (items, len(items)),
            len(head),
            sum(map(_size, head)),
            sum(map(_size, tail)),
            0,
            value["dropped"],
            value.get("dropped_displays", 0),
            value["total"],
        )
