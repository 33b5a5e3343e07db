"""An HTML page as text that people and models can read: headings, lists, links and code stay, scripts and styles go.

Runs in a process of its own (`engine/apart.py`): what a page may contain can take any parser very long.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

_SILENT = frozenset(("script", "style", "template", "noscript", "svg", "math", "iframe", "object", "canvas", "select"))
_BLOCKS = frozenset(
    (
        "address", "article", "aside", "blockquote", "body", "dd", "details", "dialog", "div", "dl", "dt", "fieldset",
        "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main",
        "nav", "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul",
    )
)  # fmt: skip
_APART = frozenset(("p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "pre", "table", "blockquote", "article"))
_SPACE = re.compile(r"[ \t\r\n\f]+")
LEVELS = 200  # of nested lists and silent elements that are kept count of


class _Reader(HTMLParser):
    def __init__(self, address: str) -> None:
        super().__init__(convert_charrefs=True)
        self._address = address
        self._lines: list[str] = []
        self._line = ""
        self._blank = False  # a blank line is due before the next text
        self._silent: list[str] = []
        self._pre = 0
        self._lists: list[int | None] = []
        self._link: str | None = None
        self._in_title = False
        self.title = ""

    def text(self) -> str:
        self._break()
        return "\n".join(self._lines).strip("\n")

    def _break(self, blank: bool = False) -> None:
        line, self._line = self._line.rstrip() if not self._pre else self._line, ""
        if line.strip() and line.strip() not in ("-", "#"):
            if self._blank and self._lines and self._lines[-1]:
                self._lines.append("")
            self._blank = False
            self._lines.append(line)
        self._blank = self._blank or blank

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            if len(self._silent) < LEVELS:
                self._silent.append(tag)
            return
        if self._silent:
            return
        found = dict(attrs)
        if tag == "title":
            self._in_title = not self.title
        elif tag == "base" and found.get("href"):
            self._address = _joined(self._address, found["href"] or "")
        if tag in _BLOCKS:
            self._break(tag in _APART)
        match tag:
            case "br":
                self._break()
            case "hr":
                self._line = "---"
                self._break()
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self._line = "#" * int(tag[1]) + " "
            case "pre":
                self._pre += 1
            case "ul" | "ol" if len(self._lists) < LEVELS:
                self._lists.append(0 if tag == "ol" else None)
            case "li":
                self._item()
            case "td" | "th":
                if self._line.strip():
                    self._line = self._line.rstrip() + " | "
            case "a":
                self._link = found.get("href")
            case "img" if found.get("alt"):
                self._add(f"[image: {found['alt']}]")

    def _item(self) -> None:
        mark = "- "
        if self._lists and (number := self._lists[-1]) is not None:
            self._lists[-1] = number + 1
            mark = f"{number + 1}. "
        self._line = "  " * min(10, max(0, len(self._lists) - 1)) + mark

    def handle_endtag(self, tag: str) -> None:
        if self._silent:
            if tag in self._silent:  # what was left open inside is over too
                del self._silent[self._silent.index(tag) :]
            return
        match tag:
            case "title":
                self._in_title = False
            case "pre":
                self._break(True)
                self._pre = max(0, self._pre - 1)
            case "ul" | "ol" if self._lists:
                self._lists.pop()
            case "a" if self._link:
                self._end_link(self._link)
        if tag in _BLOCKS:
            self._break(tag in _APART)

    def _end_link(self, link: str) -> None:
        self._link = None
        address = _joined(self._address, link)
        own = self._address.partition("#")[0]
        if urlsplit(address).scheme in ("http", "https", "mailto") and address.partition("#")[0] != own:
            self._line += f" ({address})"

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data[: 1000 - len(self.title)]
        elif not self._silent:
            self._add(data)

    def _add(self, data: str) -> None:
        if self._pre:
            first, *rest = data.split("\n")
            self._line += first
            for line in rest:
                self._lines.append(self._line.rstrip("\r"))
                self._line = line
            return
        text = _SPACE.sub(" ", data)
        if not self._line or self._line.endswith(" "):
            text = text.lstrip(" ")
        self._line += text

    def unknown_decl(self, data: str) -> None:
        """CDATA and the like: nothing to read."""


def _joined(base: str, link: str) -> str:
    try:
        return urljoin(base, link.strip())
    except ValueError:
        return ""


def readable(page: str, address: str) -> str:
    """The text of an HTML page that was read at `address`; links are told as absolute addresses."""
    reader = _Reader(address)
    reader.feed(page)
    reader.close()
    text = reader.text()
    title = _SPACE.sub(" ", reader.title).strip()
    return f"{title}\n\n{text}" if title and not text.startswith((title, f"# {title}")) else text


def main() -> None:
    """What the process does: address in the first line of stdin, the page behind it; the text on stdout."""
    address, _, page = sys.stdin.buffer.read().decode("utf-8", "replace").partition("\n")
    sys.stdout.buffer.write(readable(page, address).encode("utf-8", "replace"))
