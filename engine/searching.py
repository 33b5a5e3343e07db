"""Searching a folder for a literal or a regular expression, in a process of its own (`engine/apart.py`).

An expression may take for ever. Each match is said in a line of JSON, so that what was found before the end is known.
"""

from __future__ import annotations

import fnmatch
import json
import re
import sys
from typing import Any

from engine import workspace

FILE_BYTES = 8 * 1024 * 1024  # larger files are passed over
LINE_CHARACTERS = 400  # of a matching line that are told


def search(root: int, wanted: dict[str, Any]) -> None:
    """Prints the matches, one JSON object a line: {"path", "line", "text"}; last {"done", "files", "passed", "whole"}.

    A bad expression or folder: {"error"}.
    """
    pattern = wanted["pattern"] if wanted["regex"] else re.escape(wanted["pattern"])
    try:
        expression = re.compile(pattern, re.IGNORECASE if wanted["ignore_case"] else 0)
        if (start := wanted["path"]) and workspace.is_plain(root, start):
            names = workspace.split(start)
            found = workspace.Walk([workspace.Entry("/".join(names), 0, ())])
        else:
            found = workspace.walk(root, start)
    except (re.error, OverflowError, RecursionError) as error:
        _say(error=f"the regular expression cannot be used: {error}")
        return
    except workspace.WorkspaceError as error:
        _say(error=str(error))
        return
    left, files, passed = int(wanted["limit"]), 0, 0
    glob = wanted["glob"]
    for entry in found.files:
        if glob is not None and not _fits(entry.path, glob):
            continue
        try:
            data = workspace.read(root, entry.path, FILE_BYTES).data
        except workspace.WorkspaceError:
            passed += 1
            continue
        if b"\0" in data[:8192]:
            passed += 1
            continue
        files += 1
        for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
            if (hit := expression.search(line)) is None:
                continue
            if left == 0:
                _say(done=True, files=files, passed=passed, whole=False)
                return
            left -= 1
            start_at = max(0, min(hit.start() - LINE_CHARACTERS // 2, len(line) - LINE_CHARACTERS))
            text = line[start_at : start_at + LINE_CHARACTERS].rstrip("\r")
            _say(path=entry.path, line=number, text=("…" if start_at else "") + text)
    _say(done=True, files=files, passed=passed, whole=found.whole)


def _fits(path: str, glob: str) -> bool:
    """Whether a path, or its last name when `glob` has no slash, fits."""
    return fnmatch.fnmatchcase(path if "/" in glob else path.rpartition("/")[2], glob)


def _say(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def main(root: int) -> None:
    """What the process does: reads its task from stdin."""
    try:
        search(root, json.load(sys.stdin))
    except MemoryError:
        _say(error="the search needs too much memory")
