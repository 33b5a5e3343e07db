"""What the kernel knows of a name: completions and docs, from IPython, without running the user's code for it.

IPython evaluates only what its "limited" policy calls safe (plain attributes and items of known types). Names are not
looked up by jedi, which would run for seconds on large libraries.

Nor is anything imported for it (`unimported.py`).
"""

import re
from typing import TYPE_CHECKING, Any

from engine.sandbox.unimported import importing_nothing

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

MOST = 300
LONGEST_DOCS = 16 * 1024
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def answer(shell: "InteractiveShell", kind: str, code: str, at: int) -> dict[str, Any]:
    """For complete `{start, end, items: [{text, type}]}`, for inspect `{text}`; positions are code points."""
    with importing_nothing():
        return _complete(shell, code, at) if kind == "complete" else _inspect(shell, code, at)


def _complete(shell: "InteractiveShell", code: str, at: int) -> dict[str, Any]:
    from IPython.core.completer import provisionalcompleter, rectify_completions

    with provisionalcompleter():
        found = list(rectify_completions(code, shell.Completer.completions(code, at)))[:MOST]
    if not found:
        return {"start": at, "end": at, "items": []}
    start = found[0].start
    texts = [one.text for one in found]
    if code[start : start + 1] == "." and all(text.startswith(".") for text in texts):
        start, texts = start + 1, [text[1:] for text in texts]
    types = [one.type if one.type and one.type != "<unknown>" else "" for one in found]
    items = [{"text": text, "type": kind} for text, kind in zip(texts, types, strict=True)]
    return {"start": start, "end": found[0].end, "items": items}


def _inspect(shell: "InteractiveShell", code: str, at: int) -> dict[str, Any]:
    from IPython.utils.tokenutil import token_at_cursor

    name = token_at_cursor(code, at)
    try:
        text = shell.object_inspect_text(name) if name else ""  # type: ignore[no-untyped-call]
    except KeyError:
        text = ""
    return {"text": _ESCAPES.sub("", text).strip()[:LONGEST_DOCS]}
