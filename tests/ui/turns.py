"""Turns for the scripted site: the frames that an agent's turn writes, in few words."""

from __future__ import annotations

from typing import Any

from tests.ui.conftest import Site


class Turn:
    """A turn that runs in cell c0 of a new notebook, as run r0."""

    def __init__(self, site: Site, *cells: tuple[str, str], title: str = "T", source: str = "Do it") -> None:
        self.site = site
        self.notebook = site.notebook(("agent", source), *cells, title=title)
        site.start(self.notebook)

    def tells(self, kind: str, /, **fields: Any) -> None:
        """A frame of the turn."""
        self.site.write((self.notebook, kind, {"cell_id": "c0", "run_id": "r0", **fields}))

    def calls(self, call: str = "x", title: str = "Run it", **fields: Any) -> None:
        """A tool call that has not begun."""
        self.tells("tool", **{"event": "call", "call": call, "tool": "shell", "title": title, "round": 1} | fields)

    def ends_call(self, call: str = "x", status: str = "done", **fields: Any) -> None:
        self.tells("tool", event="result", call=call, status=status, **fields)

    def asks(self, ask: str, call: str = "x", **fields: Any) -> None:
        """A call and its question."""
        self.calls(call)
        self.tells("run", event="waiting", waits_for="ask")
        body = {"tool": "shell", "title": "Run make", "command": "make all", "risk": "run", "seconds": 300}
        self.tells("ask", ask=ask, call=call, **body | fields)

    def decides(self, ask: str, verdict: str, reason: str = "person", call: str = "x", **fields: Any) -> None:
        self.tells("verdict", **{"ask": ask, "call": call, "verdict": verdict, "reason": reason, "by": "Mia"} | fields)

    def ends(self, status: str = "done", **fields: Any) -> None:
        self.tells("run", event="ended", status=status, **fields)
