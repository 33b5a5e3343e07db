"""What one cell shows: its first 64 KiB and last 256 KiB of text, and the displays among them.

Immutable from outside. Appending shares storage with the older value, so that folding many small frames costs little:
a value is a view (start, end) on a list that only ever grows at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

HEAD = 64 * 1024  # characters kept from the start
TAIL = 256 * 1024  # characters kept from the end

Item = dict[str, Any]  # {"stream", "text"} or {"data", "metadata", …}; "left_out" counts bytes not shown before it


def _size(item: Item) -> int:
    """Characters an item counts for; a display counts a fixed amount, its weight lies in the body's own limit."""
    text = item.get("text")
    return len(text) if text is not None else 256


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """The items of one execution. `total` counts all characters ever added, kept or not."""

    _items: tuple[list[Item], int] = ((), 0)  # type: ignore[assignment]
    _head: int = 0  # items that belong to the first part
    _head_size: int = 0
    _tail_size: int = 0
    _dropped: int = 0  # items dropped between the first part and the rest
    dropped_size: int = 0
    total: int = 0

    def add(self, body: dict[str, Any]) -> Output:
        """With the body of one `output` frame added."""
        item = {key: value for key, value in body.items() if key != "src"}
        if item.get("update") and item.get("display") is not None:
            return self._updated(item)
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
        dropped, dropped_size = self._dropped, self.dropped_size
        while tail_size > TAIL and tail_size - _size(shared[head + dropped]) >= TAIL:
            gone = _size(shared[head + dropped])
            before = shared[head + dropped].get("left_out") or 0  # a gap that falls into this one
            dropped, dropped_size, tail_size = dropped + 1, dropped_size + gone + before, tail_size - gone
        if dropped > 1024 and dropped * 2 > end:  # give the memory back, now and then
            shared = shared[:head] + shared[head + dropped :]
            end, dropped = end - dropped, 0
        return Output((shared, end), head, head_size, tail_size, dropped, dropped_size, self.total + size)

    def _updated(self, item: Item) -> Output:
        shared, end = self._items
        shared = [
            {**item, "update": None} if known.get("display") == item["display"] else known for known in shared[:end]
        ]
        return Output(
            (shared, end), self._head, self._head_size, self._tail_size, self._dropped, self.dropped_size, self.total
        )

    def __iter__(self) -> Iterator[Item]:
        """The kept items. A gap is told by `left_out` on the item behind it, in characters."""
        shared, end = self._items
        for at in range(self._head):
            yield shared[at]
        first = self._head + self._dropped
        for at in range(first, end):
            if at == first and self.dropped_size:
                item = shared[at]
                yield {**item, "left_out": item.get("left_out", 0) + self.dropped_size}
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
            value["total"],
        )
