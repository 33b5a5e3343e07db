"""Edits as splices: what one changed, and whether a later one, made on an older version, still fits.

Positions count code points. Two people who type in different places both keep what they typed, at the place they meant;
where their edits touch the same text, neither is thrown away: the caller keeps both as two cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Edit:
    """At code point `at`, `remove` became `insert`: version `base` became `version` (the seq of its frame)."""

    base: int
    version: int
    at: int
    remove: str
    insert: str
    by: str | None = None

    def on(self, source: str) -> str:
        """`source` with this edit made."""
        return source[: self.at] + self.insert + source[self.at + len(self.remove) :]

    def off(self, source: str) -> str:
        """`source` as it was before this edit."""
        return source[: self.at] + self.remove + source[self.at + len(self.insert) :]


class Overlap(Exception):
    """The edit touches text that changed since its base; `mine` is what its author had in mind, whole."""

    def __init__(self, mine: str) -> None:
        super().__init__("the edit overlaps one that came first")
        self.mine = mine


class BaseGone(Exception):
    """The version the edit is based on is not known any more."""


class OutOfRange(Exception):
    """The edit does not lie within the text of its base."""


def rebase(source: str, version: int, edits: Sequence[Edit], base: int, at: int, length: int, insert: str) -> Edit:
    """The splice (`at`, `length` removed, `insert`) made on version `base`, as an edit of today's `source`.

    `edits` are those that led to `version`, oldest first. The `version` of what comes back is 0: it is its frame's seq.
    Raises `Overlap`, `BaseGone` or `OutOfRange`.
    """
    later: list[Edit] = []
    if base != version:
        places = [number for number, edit in enumerate(edits) if edit.base == base]
        if not places:
            raise BaseGone
        later = list(edits[places[0] :])
    then = source
    for edit in reversed(later):
        then = edit.off(then)
    if at < 0 or length < 0 or at + length > len(then):
        raise OutOfRange
    mine = Edit(version, 0, at, then[at : at + length], insert)
    for edit in later:
        start, end = edit.at, edit.at + len(edit.remove)
        if mine.at + len(mine.remove) <= start and not (mine.at == start and not mine.remove and not edit.remove):
            continue
        if mine.at >= end and not (mine.at == start and not edit.remove and not mine.remove):
            mine = replace(mine, at=mine.at + len(edit.insert) - len(edit.remove))
            continue
        raise Overlap(Edit(base, 0, at, then[at : at + length], insert).on(then))
    return mine
