"""What an edit changed, as a unified diff: bounded in time and size, whatever the texts are."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

COMPARED_LINES = 1500  # between what is equal at both ends; comparing more takes too long
DIFF_BYTES = 40 * 1024
CONTEXT = 3


@dataclass(frozen=True, slots=True)
class Diff:
    """`text` is a unified diff, cut at `DIFF_BYTES`; `added` and `removed` count all lines."""

    text: str
    added: int
    removed: int


def unified(path: str, before: str, after: str) -> Diff:
    """The diff from `before` to `after`. Equal texts give an empty one."""
    old, new = _lines(before), _lines(after)
    start = _equal(old, new)
    end = _equal(old[start:][::-1], new[start:][::-1])
    middle_old, middle_new = old[start : len(old) - end], new[start : len(new) - end]
    if not middle_old and not middle_new:
        return Diff("", 0, 0)
    lead = old[max(0, start - CONTEXT) : start]
    trail = old[len(old) - end : len(old) - end + CONTEXT]
    if len(middle_old) + len(middle_new) <= COMPARED_LINES:
        body = list(difflib.unified_diff(lead + middle_old + trail, lead + middle_new + trail, n=CONTEXT))[2:]
    else:
        body = [
            f"@@ -1,{len(lead + middle_old + trail)} +1,{len(lead + middle_new + trail)} @@\n",
            *(f" {line}" for line in lead),
            *(f"-{line}" for line in middle_old),
            *(f"+{line}" for line in middle_new),
            *(f" {line}" for line in trail),
        ]
    added = sum(line.startswith("+") for line in body)
    removed = sum(line.startswith("-") for line in body)
    lines = [f"--- {path}\n", f"+++ {path}\n"]
    size = 0
    for line in _moved(body, start - len(lead)):
        line = line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        size += len(line.encode("utf-8", "replace"))
        if size > DIFF_BYTES:
            lines.append("… the rest of the diff is left out …\n")
            break
        lines.append(line)
    return Diff("".join(lines), added, removed)


def _lines(text: str) -> list[str]:
    """Lines with their ends, split at \\n only: what else counts as a line end differs between programs."""
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _equal(one: list[str], other: list[str]) -> int:
    """How many lines are equal at the beginning of both."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _moved(body: list[str], by: int) -> list[str]:
    """The hunks, their line numbers counted from the beginning of the file."""
    return [_header(line, by) if line.startswith("@@ ") else line for line in body]


def _header(line: str, by: int) -> str:
    parts = line.split(" ")
    for at in (1, 2):
        number, comma, length = parts[at][1:].partition(",")
        parts[at] = f"{parts[at][0]}{int(number) + by}{comma}{length}"
    return " ".join(parts)
