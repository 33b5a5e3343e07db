"""What a tool gives back is cut to a size that models and pages can use."""

from __future__ import annotations

from engine.agent.tools.text import one_line, trimmed


def test_a_result_is_cut_in_its_middle_and_says_how_much() -> None:
    text, left_out = trimmed("é" * 100_000, 3000)
    assert len(text.encode()) < 3100
    assert left_out == 200_000 - 3000
    assert f"{left_out} bytes left out" in text
    assert trimmed("short", 3000) == ("short", 0)


def test_a_title_is_one_visible_line() -> None:
    assert one_line("\n  a\x1b[31mred\nb") == "a�[31mred …"
