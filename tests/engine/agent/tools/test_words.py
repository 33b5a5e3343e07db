"""A rule of "this kind" covers words: a command of which a shell could make anything else has none."""

from __future__ import annotations

import pytest

from engine.agent.tools.code import simple_words
from engine.agent.tools.text import one_line, trimmed


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("pytest -q tests/unit", ["pytest", "-q", "tests/unit"]),
        ('git commit -m "a message"', ["git", "commit", "-m", "a message"]),
        ("  ls   -l ", ["ls", "-l"]),
        ("make 'two words'", ["make", "two words"]),
    ],
)
def test_a_simple_command_has_its_words(command: str, words: list[str]) -> None:
    assert simple_words(command) == words


@pytest.mark.parametrize(
    "command",
    [
        "pytest; rm -rf x", "pytest && rm x", "pytest || rm x", "pytest & rm x", "pytest | sh", "pytest > x",
        "pytest < x", "pytest $(rm x)", "pytest `rm x`", "pytest $HOME", "pytest ${IFS}x", "(pytest)", "pytest\nrm x",
        "pytest\rrm x", "pytest # x", "A=1 pytest", "env A=1 pytest", "pytest *", "pytest ?", "pytest [ab]",
        "pytest {a,b}", "pytest ~/x", "pytest \\; rm", "pytest !1", "pytest 'x;y'", 'pytest "$(rm x)"', "pytest 'open",
        "PATH+=x pytest", "", "   ", "pytest \x00", "pytest\u2028rm x", "pytest ^a^b", "pytest $'a'", "pytest %1",
    ],
)  # fmt: skip
def test_a_command_that_is_more_than_words_has_none(command: str) -> None:
    assert simple_words(command) is None


def test_a_result_is_cut_in_its_middle_and_says_how_much() -> None:
    text, left_out = trimmed("é" * 100_000, 3000)
    assert len(text.encode()) < 3100
    assert left_out == 200_000 - 3000
    assert f"{left_out} bytes left out" in text
    assert trimmed("short", 3000) == ("short", 0)


def test_a_title_is_one_visible_line() -> None:
    assert one_line("\n  a\x1b[31mred\nb") == "a�[31mred …"
