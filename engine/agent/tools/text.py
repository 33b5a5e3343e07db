"""A title of a call, from whatever text it stands for."""

from __future__ import annotations


def one_line(text: str, limit: int = 120) -> str:
    """`text` as one line for a title: the first that is not blank, control characters made visible, cut at `limit`."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = lines[0] if lines else ""
    line = "".join(character if character.isprintable() else "�" for character in line)
    more = len(lines) > 1 or len(line) > limit
    return line[:limit].rstrip() + (" …" if more else "")
