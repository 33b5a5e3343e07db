"""The notebook page's one element. All that changes in it comes through its methods, never by re-rendering."""

from __future__ import annotations

from nicegui.element import Element


class NotebookView(Element, component="notebook.js"):
    """Draws one notebook. Emits `hello {stream, seq}`, `drawn {stream, n}` and `look {looking, back}`; takes `push`,
    `beat`, `back` and `vanished`."""

    def __init__(self, notebook_id: str, member: str) -> None:
        super().__init__()
        self._props["notebook"] = notebook_id
        self._props["member"] = member
