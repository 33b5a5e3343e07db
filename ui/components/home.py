"""The home page's one element."""

from __future__ import annotations

from nicegui.element import Element


class HomeView(Element, component="home.js"):
    """Draws the list of notebooks. Emits `hello {stream, archived}`; takes `list`, `changes` and `beat`."""

    def __init__(self, member: str) -> None:
        super().__init__()
        self._props["member"] = member
