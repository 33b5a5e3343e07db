"""Long texts are cut in their middle, and say how much is missing."""

from __future__ import annotations

from engine.trimming import bounded, trimmed


def test_bytes_are_bounded_by_whole_characters_and_what_is_left_out_is_counted() -> None:
    text, left_out = bounded("é" * 100_000, 3000)
    assert len(text.encode()) < 3100
    assert left_out == 200_000 - 3000
    assert f"{left_out} bytes left out" in text
    text, left_out = bounded("ä" * 100, 99)
    assert left_out == 102
    assert "�" not in text
    assert bounded("short", 3000) == ("short", 0)


def test_a_reader_sees_the_beginning_and_the_end() -> None:
    assert trimmed("a" * 60 + "b" * 60 + "c" * 60, 90) == f"{'a' * 60}\n(… 90 characters not shown …)\n{'c' * 30}"
    assert trimmed("short", 5) == "short"
