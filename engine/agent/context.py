"""What a turn is shown of its notebook, trimmed; and what content of others it has read. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.agent.calls import Exchange, Picture
from engine.agent.plain import plain
from engine.images import PICTURE_TYPES
from engine.notebook import Cell, Notebook
from engine.output import Output
from engine.trimming import trimmed

TOTAL = 24_000  # characters; the cells nearest to the turn come first
SOURCE = 4_000  # of one cell
OUTPUT = 2_000  # of one cell
PICTURES = 4  # of the cells nearest to the turn


@dataclass(frozen=True, slots=True)
class Shown:
    """What a turn is shown: `text`, the cells in it (id, number, kind, characters), pictures, and how many cells are
    left out."""

    text: str
    cells: Sequence[dict[str, Any]]
    left_out: int = 0
    pictures: Sequence[Picture] = ()
    inline: Mapping[str, bytes] = field(default_factory=dict)  # bytes of pictures that are no blobs yet, by sha256


def shown(notebook: Notebook, cell_id: str, total: int = TOTAL) -> Shown:
    """The cells above `cell_id` in their order, each with its source and what it shows; what is left out is said."""
    if cell_id not in notebook.order:
        return Shown("", ())
    above = notebook.order[: notebook.order.index(cell_id)]
    shown: list[str] = []
    cells: list[dict[str, Any]] = []
    pictures: list[Picture] = []
    inline: dict[str, bytes] = {}
    size = left_out = 0
    for number in range(len(above), 0, -1):
        piece = cell_text(number, notebook.cells[above[number - 1]])
        if size + len(piece) > total:
            left_out = number
            shown.append(
                f"({number} cells further up are not shown)" if number > 1 else "(the first cell is not shown)"
            )
            break
        shown.append(piece)
        size += len(piece)
        cell = notebook.cells[above[number - 1]]
        cells.append({"id": cell.id, "number": number, "kind": cell.kind, "characters": len(piece)})
        if len(pictures) < PICTURES and (picture := last_picture(cell, number, inline)) is not None:
            pictures.append(picture)
    return Shown("\n\n".join(reversed(shown)), cells[::-1], left_out, pictures[::-1], inline)


def context(notebook: Notebook, cell_id: str, total: int = TOTAL) -> str:
    """The text of `shown`."""
    return shown(notebook, cell_id, total).text


def last_picture(cell: Cell, number: int, inline: dict[str, bytes]) -> Picture | None:
    """The last picture that a cell shows; its bytes go to `inline` where they are no blob."""
    return next(iter(pictures_in(cell.output, f"what cell {number} shows", inline, 1)), None)


def pictures_in(output: Output, name: str, inline: dict[str, bytes], limit: int = PICTURES) -> list[Picture]:
    """The newest pictures in an output, in their order; bytes of those that are no blobs go to `inline`."""
    found: list[Picture] = []
    for item in reversed(list(output)):
        if len(found) >= limit:
            break
        data = item.get("data")
        if isinstance(data, dict) and (picture := _picture(data, name, inline)) is not None:
            found.append(picture)
    return found[::-1]


def _picture(data: Mapping[str, Any], name: str, inline: dict[str, bytes]) -> Picture | None:
    for mime in PICTURE_TYPES:
        if isinstance(found := data.get(mime), dict) and isinstance(found.get("blob"), str):
            return Picture(found["blob"], mime, name)
        if isinstance(found, str):
            try:
                decoded = base64.b64decode(found)
            except binascii.Error:
                continue
            sha256 = hashlib.sha256(decoded).hexdigest()
            inline[sha256] = decoded
            return Picture(sha256, mime, name)
    return None


def cell_text(number: int, cell: Cell, source: int = SOURCE, output: int = OUTPUT) -> str:
    """A cell and what it shows, in at most so many characters of each."""
    lines = [f"## Cell {number} ({cell.kind}, id {cell.id}{_state(cell)})", trimmed(cell.source, source)]
    if cell.kind == "agent":
        text = next((item["text"] for item in reversed(cell.story.items) if item["t"] == "delivered"), "")
    else:
        text = text_of(cell.output)
    if text.strip():
        lines += ["### What it shows", trimmed(text.strip("\n"), output)]
    return "\n".join(lines)


def _state(cell: Cell) -> str:
    if cell.kind == "markdown" or cell.state == "idle":
        return ""
    return f", {cell.state}: {cell.reason}" if cell.reason and cell.state != "done" else f", {cell.state}"


def text_of(output: Output) -> str:
    """What a cell shows as text; a picture or a table by its plain form or its type."""
    pieces: list[str] = []
    for item in output:
        if item.get("left_out"):
            pieces.append(f"\n(… {item['left_out']} bytes not shown …)\n")
        if item.get("text") is not None:
            pieces.append(item["text"])
        elif isinstance(data := item.get("data"), dict):
            text = data.get("text/plain")
            pieces.append((text if isinstance(text, str) else f"<{', '.join(sorted(data))}>") + "\n")
    return plain("".join(pieces))


def foreign(exchanges: Sequence[Exchange], named: Sequence[str] = ()) -> str | None:
    """What content of others a model has read, newest first, in a few words; null when it read none. `named`: what came
    with the request or with messages."""
    found: dict[str, None] = {}
    for exchange in reversed(exchanges):
        found.update((result.source, None) for result in exchange.results.values() if result.source is not None)
    found.update(dict.fromkeys(named))
    if not found:
        return None
    names = list(found)
    more = f", and {len(names) - 2} more" if len(names) > 2 else ""
    return f"{', '.join(name[:120] for name in names[:2])}{more}"
