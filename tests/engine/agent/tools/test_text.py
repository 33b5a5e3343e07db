"""The title of a call."""

from __future__ import annotations

from engine.agent.tools.text import one_line


def test_a_title_is_one_visible_line() -> None:
    assert one_line("\n  a\x1b[31mred\nb") == "a�[31mred …"
