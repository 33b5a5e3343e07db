"""What a turn is shown of its notebook: the cells above it and what they show, trimmed. Pure."""

from __future__ import annotations

from engine.agent.plain import plain
from engine.notebook import Cell, Notebook
from engine.output import Output

TOTAL = 24_000  # characters; the cells nearest to the turn come first
SOURCE = 4_000  # of one cell
OUTPUT = 2_000  # of one cell


def context(notebook: Notebook, cell_id: str, total: int = TOTAL) -> str:
    """The cells above `cell_id` in their order, each with its source and what it shows; what is left out is said."""
    if cell_id not in notebook.order:
        return ""
    above = notebook.order[: notebook.order.index(cell_id)]
    shown: list[str] = []
    size = 0
    for number in range(len(above), 0, -1):
        piece = _cell(number, notebook.cells[above[number - 1]])
        if size + len(piece) > total:
            shown.append(
                f"({number} cells further up are not shown)" if number > 1 else "(the first cell is not shown)"
            )
            break
        shown.append(piece)
        size += len(piece)
    return "\n\n".join(reversed(shown))


def _cell(number: int, cell: Cell) -> str:
    lines = [f"## Cell {number} ({cell.kind}, id {cell.id}{_state(cell)})", trimmed(cell.source, SOURCE)]
    if cell.kind == "agent":
        text = next((item["text"] for item in reversed(cell.story.items) if item["t"] == "delivered"), "")
    else:
        text = text_of(cell.output)
    if text.strip():
        lines += ["### What it shows", trimmed(text.strip("\n"), OUTPUT)]
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


def trimmed(text: str, limit: int) -> str:
    """`text` in about `limit` characters: its start and its end, and how much is missing between."""
    if len(text) <= limit:
        return text
    first, last = limit * 2 // 3, limit // 3
    return f"{text[:first]}\n(… {len(text) - first - last} characters not shown …)\n{text[-last:]}"
