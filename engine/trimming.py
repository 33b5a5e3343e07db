"""Long texts cut in their middle: two thirds of what may stay are the beginning, a third is the end, and between them
stands how much is missing. What is stored or sent is bounded in bytes, what a reader is given in characters. Pure."""

from __future__ import annotations

RESULT_BYTES = 40 * 1024  # of UTF-8, of what a tool gives back; with what is said around it, it fits a frame


def bounded(text: str, limit: int = RESULT_BYTES) -> tuple[str, int]:
    """`text` in about `limit` bytes of UTF-8, and the bytes left out."""
    if len(text) * 4 <= limit:
        return text, 0
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text, 0
    head = data[: limit * 2 // 3].decode("utf-8", "ignore")
    tail = data[-(limit // 3) :].decode("utf-8", "ignore")
    left_out = len(data) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[… {left_out} bytes left out …]\n{tail}", left_out


def trimmed(text: str, limit: int) -> str:
    """`text` in about `limit` characters."""
    if len(text) <= limit:
        return text
    first, last = limit * 2 // 3, limit // 3
    return f"{text[:first]}\n(… {len(text) - first - last} characters not shown …)\n{text[-last:]}"
