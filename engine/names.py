"""What can be said about a name without asking a kernel: the words of the notebook, of Python, and its builtins.

For a kernel that is busy or asleep. Nothing is run and nothing is looked up: the sources are read as text.
"""

from __future__ import annotations

import builtins
import keyword
import re
from typing import Any

from engine.notebook import Notebook

MOST = 300  # names in one answer
_WORD = re.compile(r"[^\W\d]\w*")
_BEFORE = re.compile(r"(?:[^\W\d]\w*)?\Z")
_KEYWORDS = frozenset(keyword.kwlist)
_BUILTINS = frozenset(name for name in dir(builtins) if not name.startswith("_"))
_SEARCHED = 1024 * 1024  # characters of source that are read for one answer


def completions(notebook: Notebook, source: str, at: int) -> dict[str, Any]:
    """Names that go on from what stands before code point `at`: `{start, end, items: [{text, type}]}`.

    Behind a point these are the words that follow a point elsewhere: what the object has, only a kernel knows.
    """
    before = source[:at]
    found = _BEFORE.search(before)
    prefix = found.group() if found else ""
    start = at - len(prefix)
    texts = [source, *(cell.source for cell in notebook.cells.values() if cell.kind == "python")]
    whole = "\n".join(texts)[:_SEARCHED]
    if before[:start].endswith("."):
        names = dict.fromkeys(re.findall(r"\.([^\W\d]\w*)", whole), "")
    else:
        names = dict.fromkeys(_WORD.findall(whole), "variable")
        names |= dict.fromkeys(_BUILTINS, "function") | dict.fromkeys(_KEYWORDS, "keyword")
    lower = prefix.lower()
    fits = [name for name in names if name.lower().startswith(lower) and name != prefix]
    fits.sort(key=lambda name: (not name.startswith(prefix), name in _BUILTINS, name.startswith("_"), name.lower()))
    return {"start": start, "end": at, "items": [{"text": name, "type": names[name]} for name in fits[:MOST]]}
