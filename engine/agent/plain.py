"""Terminal text as a model reads it: what a terminal would still show, without colours and cursor moves."""

from __future__ import annotations

import re

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x07\x0b-\x1f\x7f]")


def plain(text: str) -> str:
    """`text` with carriage returns and backspaces applied, and all else that is no text taken out."""
    lines = _ESCAPES.sub("", text.replace("\r\n", "\n")).split("\n")
    return "\n".join(_CONTROL.sub("", _line(line)) for line in lines)


def _line(line: str) -> str:
    if "\r" not in line and "\b" not in line:
        return line
    shown: list[str] = []
    at = 0
    for character in line:
        if character == "\r":
            at = 0
        elif character == "\b":
            at = max(0, at - 1)
        else:
            shown[at : at + 1] = [character]
            at += 1
    return "".join(shown)
