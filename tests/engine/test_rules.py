"""What a policy and a rule cover, and above all what a rule does not: hostile variants of an allowed command."""

from __future__ import annotations

import pytest

from engine.rules import permits, rule_of, rule_title, words_of

ALLOWED = "git status --short"
RULE = {"id": "r", "tool": "shell", "words": ALLOWED.split(), "title": "exactly this"}

HOSTILE = [
    "git status --short; rm -rf .",
    "git status --short;rm -rf .",
    "git status --short && curl evil.example",
    "git status --short & curl evil.example",
    "git status --short | sh",
    "git status --short || rm x",
    "git status --short > /etc/passwd",
    "git status --short >> notes",
    "git status --short < secrets",
    "git status --short 2>&1",
    "git status --short $(rm -rf .)",
    "git status --short `rm -rf .`",
    "git status --short ${HOME}",
    "git status $OPTION",
    "git status --short\nrm -rf .",
    "git status --short\n",
    "git status --short\r\nrm -rf .",
    "git status --short \\\n; rm x",
    "git\\ status --short",
    "git st\\atus --short",
    "git status --short *",
    "git status --shor?",
    "git status [-]-short",
    "git status --short ~",
    "~/git status --short",
    "git status {--short,--long}",
    "git status --short !!",
    "git status --short # and more",
    "(git status --short)",
    "{ git status --short; }",
    "A=1 git status --short",
    "PATH=. git status --short",
    "GIT_SSH+=x git status --short",
    "env PATH=. git status --short",
    "env git status --short",
    "git status --short --porcelain",
    "git status",
    "git --short status",
    "-c git status --short",
    "./git status --short",
    "sudo git status --short",
    "time git status --short",
    "exec git status --short",
    "sh -c 'git status --short'",
    "git 'status --short'",
    "'git status --short'",
    "git status '--short; rm x'",
    'git status "--short$(rm x)"',
    "git status $'--short'",
    "git status --short '",
    "git status --short ''",
    "git status\t--short",
    "git status --short\x00rm",
    "git status --short\x0brm",
    "git\u00a0status --short",
    "git status\u2003--short",
    "git status \u2010\u2010short",
    "git status \u2013-short",
    "g\u0456t status --short",
    "gi\u200bt status --short",
    "git status --short\u2028rm x",
    "\ufeffgit status --short",
    "git status --short\u202e",
    "git status --short\ud800",
    "GIT status --short",
    "git status --Short",
    "git status --short^",
    "!git status --short",
    "",
    " ",
]


def covered(command: str, tool: str = "shell") -> bool:
    return permits("ask", [RULE], "run", tool, words_of(command)) == "rule"


@pytest.mark.parametrize("command", HOSTILE, ids=ascii)
def test_no_hostile_variant_of_an_allowed_command_is_covered_by_its_rule(command: str) -> None:
    assert not covered(command)


@pytest.mark.parametrize(
    "command",
    [ALLOWED, "git  status   --short", " git status --short ", "git 'status' \"--short\"", "g'i't status --short"],
)
def test_the_same_words_are_covered_however_they_are_written(command: str) -> None:
    assert covered(command)


def test_a_rule_covers_its_tool_only() -> None:
    assert not covered(ALLOWED, "python")


def test_words_that_no_grammar_made_are_looked_at_again() -> None:
    rule = {"id": "r", "tool": "shell", "words": ["echo", "a; rm x"], "title": ""}
    assert permits("ask", [rule], "run", "shell", ["echo", "a; rm x"]) is None
    assert rule_title("shell", ["echo", "$HOME"], "echo") is None
    assert rule_title("shell", None, "anything") is None


def test_a_rule_without_words_covers_nothing() -> None:
    assert permits("ask", [{"id": "r", "tool": "python", "words": None}], "run", "python", None) is None
    assert rule_of("a", {"tool": "python", "rule": None}) is None


def test_a_long_command_is_covered_by_no_rule() -> None:
    assert words_of("echo " + "a" * 3000) is None
    assert words_of("echo" + " a" * 200) is None


@pytest.mark.parametrize(
    ("policy", "free"),
    [
        ("ask", {"read"}),
        ("edits", {"read", "write"}),
        ("all", {"read", "write", "run", "network"}),
        ("unheard of", {"read"}),
    ],
)
def test_a_policy_frees_what_it_says(policy: str, free: set[str]) -> None:
    risks = ("read", "write", "run", "network")
    assert {risk for risk in risks if permits(policy, [], risk, "tool", None)} == free
