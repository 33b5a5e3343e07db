"""What a tool gives back, cut to what a model and a page can use: the beginning, the end, and how much is between."""

from __future__ import annotations

RESULT_BYTES = 40 * 1024  # of UTF-8, of one result; with what is said around it, it fits a frame


def trimmed(text: str, limit: int = RESULT_BYTES) -> tuple[str, int]:
    """`text` in at most about `limit` bytes of UTF-8, two thirds from its beginning; and the bytes left out."""
    if len(text) * 4 <= limit:
        return text, 0
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text, 0
    head = data[: limit * 2 // 3].decode("utf-8", "ignore")
    tail = data[-(limit // 3) :].decode("utf-8", "ignore")
    left_out = len(data) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[… {left_out} bytes left out …]\n{tail}", left_out


def one_line(text: str, limit: int = 120) -> str:
    """`text` as one line for a title: the first that is not blank, control characters made visible, cut at `limit`."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = lines[0] if lines else ""
    line = "".join(character if character.isprintable() else "�" for character in line)
    more = len(lines) > 1 or len(line) > limit
    return line[:limit].rstrip() + (" …" if more else "")
