"""The terminal by its table of cases, which the page's own reducer runs, too."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from engine.terminal import HEIGHT, Terminal

CASES = json.loads((Path(__file__).parents[1] / "terminal_cases.json").read_text("utf-8"))


def fed(texts: list[Any]) -> Terminal:
    terminal = Terminal()
    for text in texts:
        base, text = text if isinstance(text, list) else ("", text)
        terminal.feed(text, base)
    return terminal


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_case(case: dict[str, Any]) -> None:
    terminal = fed(case["texts"])
    assert terminal.text == case["text"]
    if "lines" in case:
        assert [[list(run) for run in line] for line in terminal.lines] == case["lines"]


def test_where_the_text_is_cut_changes_nothing() -> None:
    chance = random.Random(1)
    for case in CASES:
        if all(isinstance(text, str) for text in case["texts"]):
            whole = "".join(case["texts"])
            cuts = sorted(chance.choices(range(len(whole) + 1), k=4))
            pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
            if "\r\n" not in whole:  # a CR at a piece's end is carried out, which looks the same
                assert fed(pieces).lines == fed([whole]).lines, case["name"]


def test_noise_is_text_or_nothing_and_never_an_error() -> None:
    chance = random.Random(7)
    alphabet = "ab \t\n\r\b\x1b[]?;:0123456789ABCDEFGHJKLMPXhlmsu@\x9b\x00界é\u0301😀"
    terminal = Terminal()
    for _ in range(400):
        terminal.feed("".join(chance.choices(alphabet, k=60)), "err" if chance.random() < 0.3 else "")
    assert "\x1b" not in terminal.text
    assert len(terminal._rows) <= HEIGHT
