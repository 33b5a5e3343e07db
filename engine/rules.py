"""What needs no ask: the notebook's policy, and rules that a person gave with an approval of "this kind". Pure.

A rule covers exactly one thing, never a family of things: the whole word list of one simple command, one host to fetch
from, one path to write. What cannot be told apart from something larger by its words alone has no word list, and so no
rule ever covers it. The list is read here by a grammar much smaller than any shell's: what a shell would do more than
split at spaces and take quotes off is refused, not understood.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from engine.frames import Policy, Risk

POLICIES: dict[Policy, frozenset[Risk]] = {
    "ask": frozenset({"read"}),
    "edits": frozenset({"read", "write"}),
    "all": frozenset({"read", "write", "run", "network"}),
}

# Printable ASCII that no shell gives a meaning of its own, anywhere in a word. Everything else is out by not being in:
# ; & | < > ( ) $ ` \ * ? [ ] ~ { } ! # ^, control characters, and every look-alike beyond ASCII.
_PLAIN = re.compile(r"[A-Za-z0-9_./:=,+@%-]+")
_QUOTED = re.compile(r"[A-Za-z0-9_./:=,+@% -]*")  # what quotes may hold: as above, and spaces
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_KEYWORDS = frozenset(
    {"if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "select", "in"}
    | {"function", "time", "coproc", "eval", "exec", "source", "."}
)
WORDS = 100  # of one command
CHARACTERS = 2000


def words_of(command: str) -> list[str] | None:
    """The words of one simple command; null when it is anything else, or might be.

    Spaces separate words, single and double quotes keep some together. Nothing else is understood.
    """
    if len(command) > CHARACTERS:
        return None
    words: list[str] = []
    word: str | None = None  # null between words: a pair of quotes with nothing in it is a word, too
    at = 0
    while at < len(command):
        char = command[at]
        if char == " ":
            if word is not None:
                words.append(word)
                word = None
            at += 1
        elif char in "'\"":
            end = command.find(char, at + 1)
            if end < 0 or _QUOTED.fullmatch(inside := command[at + 1 : end]) is None:
                return None
            word = (word or "") + inside
            at = end + 1
        elif (run := _PLAIN.match(command, at)) is not None:
            word = (word or "") + run[0]
            at = run.end()
        else:
            return None
    if word is not None:
        words.append(word)
    return words if _simple(words) else None


def _simple(words: Sequence[str]) -> bool:
    """Whether the words are those of one command that is named by its first."""
    if not words or len(words) > WORDS or not words[0] or words[0] in _KEYWORDS or " " in words[0]:
        return False
    return all(_QUOTED.fullmatch(word) and not _ASSIGNMENT.match(word) for word in words)


def permits(
    policy: str, rules: Iterable[Mapping[str, Any]], risk: Risk, tool: str, words: Sequence[str] | None
) -> Literal["policy", "rule"] | None:
    """Why a call needs no ask; null: it needs one. A policy of a newer version permits nothing but reads."""
    if risk in POLICIES.get(policy, POLICIES["ask"]):  # type: ignore[call-overload]
        return "policy"
    if words is None or not _simple(words):
        return None
    covered = any(rule.get("tool") == tool and rule.get("words") == list(words) for rule in rules)
    return "rule" if covered else None


def rule_of(ask_id: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
    """The rule that an approval of "this kind" gives, from the body of its ask; null when none can be given."""
    words = body.get("words")
    if not words:
        return None
    return {"id": ask_id, "tool": body["tool"], "words": list(words), "title": body["rule"]}


def rule_title(tool: str, words: Sequence[str] | None, title: str | None) -> str | None:
    """In words for people, what a rule would cover; null when there can be none."""
    if words is None or not _simple(words):
        return None
    return title or f"exactly this {tool} command: {shlex.join(words)}"
