"""HTML that a program made, reduced to what can stand in a document: text, tables, lists, emphasis, images of its own.

Nothing that runs, loads, sends or covers is kept; of attributes only those that say how cells of a table lie.
"""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

_KEPT = frozenset(
    re.split(
        r"\s+",
        """table thead tbody tfoot tr th td caption p div span br hr b strong i em u s sub sup code pre samp
        kbd ul ol li dl dt dd blockquote h1 h2 h3 h4 h5 h6 details summary small mark figure figcaption""",
    )
)
_EMPTY = frozenset({"br", "hr"})
_SILENT = frozenset({"script", "style", "head", "title", "template", "noscript", "svg", "math", "iframe", "object"})
_SPAN = re.compile(r"[1-9]\d{0,3}\Z")
_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif);base64,[A-Za-z0-9+/=\s]+\Z")


def harmless(text: str) -> str:
    """`text` as well-formed HTML of harmless elements."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return "".join([*reader.out, *(f"</{tag}>" for tag in reversed(reader.open))])


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.out: list[str] = []
        self.open: list[str] = []
        self._silent: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self._silent.append(tag)
        if self._silent:
            return
        given = dict(attrs)
        if tag == "img" and _PICTURE.match(given.get("src") or ""):
            self.out.append(f'<img src="{given["src"]}" alt="{html.escape(given.get("alt") or "")}">')
        if tag not in _KEPT:
            return
        spans = "".join(
            f' {name}="{value}"'
            for name, value in given.items()
            if name in ("colspan", "rowspan") and _SPAN.match(value or "")
        )
        self.out.append(f"<{tag}{spans}>")
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _SILENT:
            self.handle_starttag(tag, attrs)
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._silent:
            if tag == self._silent[-1]:
                self._silent.pop()
        elif tag in self.open:
            while (closed := self.open.pop()) != tag:
                self.out.append(f"</{closed}>")
            self.out.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.out.append(html.escape(data))
