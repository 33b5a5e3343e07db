"""The inbox's one element."""

from __future__ import annotations

from nicegui.element import Element


class InboxView(Element, component="inbox.js"):
    """Draws what waits for a person. Emits `hello`; takes `asked` and `beat`."""
