"""A notebook as one readable document: Markdown, HTML or plain text. Cells, sources, and outputs as they end up on a
terminal; pictures stand inside. The HTML holds no script and loads nothing from anywhere.

`parts` says what a cell shows, once for all three; a value too large for its frame is a blob, which the caller loads
beforehand (`blobs_of`) and hands in.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from markdown_it import MarkdownIt

from engine.notebook import Cell, Notebook
from engine.output import Output
from engine.terminal import Run, Terminal
from ui import theme
from ui.harmless import harmless
from ui.math import NotTex, mathml
from ui.ops import best
from ui.telling import Told, told

Format = Literal["md", "html", "txt"]
MIME = {"md": "text/markdown", "html": "text/html", "txt": "text/plain"}
BLOB_BYTES = 64 * 1024 * 1024  # of pictures and the like in one document
JSON_CHARACTERS = 64 * 1024

_TABLE = "application/vnd.nightbook.table+json"
_NAMES = {"python": "Python", "shell": "Shell", "markdown": "Text", "agent": "Agent"}
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_MATH = re.compile(r"(`+).+?\1|\$\$(.+?)\$\$|\$(?![\s$])([^$\n]*?[^\s$\\])\$(?!\d)", re.DOTALL)
_HOLE = "\ue000{}\ue001"  # stands for a formula while Markdown is rendered
_markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


@dataclass(frozen=True, slots=True)
class Text:
    """Lines of a terminal; `kind` is text or traceback."""

    kind: str
    lines: list[list[Run]]

    @property
    def plain(self) -> str:
        return "\n".join("".join(text for text, _ in line) for line in self.lines).rstrip("\n")


@dataclass(frozen=True, slots=True)
class Gap:
    """What is not kept."""

    words: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A display: its best MIME type, that value, its plain text."""

    mime: str
    value: Any
    plain: str


Part = Text | Gap | Shown
_Cell = tuple[Cell, list[Told]]


def blobs_of(notebook: Notebook) -> list[str]:
    """The digests of the blobs that a document of this notebook shows, in order."""
    found: dict[str, None] = {}
    for cell_id in notebook.order:
        for item in notebook.cells[cell_id].output:
            data = item.get("data") or {}
            for mime in (best(data), "text/plain"):
                if mime is not None and (digest := _digest(data.get(mime))) is not None:
                    found[digest] = None
    return list(found)


def _digest(value: Any) -> str | None:
    return value.get("blob") if isinstance(value, dict) and isinstance(value.get("blob"), str) else None


def parts(output: Output, blobs: Mapping[str, bytes]) -> list[Part]:
    """What a cell shows, in order."""
    found: list[Part] = []
    terminal, kind = Terminal(), ""

    def close() -> None:
        nonlocal terminal, kind
        if kind and terminal.text:
            found.append(Text(kind, terminal.lines))
        terminal, kind = Terminal(), ""

    for item in output:
        missing = []
        if item.get("left_out"):
            missing.append(f"{item['left_out']:,} bytes")
        if item.get("displays_left_out"):
            missing.append(f"{item['displays_left_out']:,} displays")
        if missing:
            close()
            found.append(Gap(f"… {' and '.join(missing)} not shown here"))
        if "data" in item:
            close()
            found.append(_shown(item["data"], blobs))
        elif item.get("text"):
            stream = item.get("stream") or "stdout"
            wanted = "traceback" if stream == "traceback" else "text"
            if kind != wanted:
                close()
                kind = wanted
            terminal.feed(item["text"], "err" if stream == "stderr" else "")
    close()
    return found


def _shown(data: dict[str, Any], blobs: Mapping[str, bytes]) -> Shown:
    values = {mime: _loaded(mime, value, blobs) for mime, value in data.items()}
    mime = best({mime: value for mime, value in values.items() if value is not None})
    plain = values.get("text/plain")
    if mime is None:
        return Shown("", None, f"({', '.join(sorted(data)) or 'nothing'}: not shown here)")
    return Shown(mime, values[mime], plain if isinstance(plain, str) else "")


def _loaded(mime: str, value: Any, blobs: Mapping[str, bytes]) -> Any:
    """A value as its frame would carry it; None when its blob is not at hand."""
    digest = _digest(value)
    if digest is None:
        return "".join(value) if isinstance(value, list) and mime.startswith(("text/", "image/")) else value
    content = blobs.get(digest)
    if content is None:
        return None
    if mime.endswith("json"):
        try:
            return json.loads(content)
        except ValueError:
            return None
    if mime.startswith("image/") and mime != "image/svg+xml":
        return base64.b64encode(content).decode()
    return content.decode("utf-8", "replace")


def document(notebook: Notebook, form: Format, blobs: Mapping[str, bytes]) -> str:
    """The whole document."""
    cells = [(cell, _told(cell, notebook)) for cell in (notebook.cells[cell_id] for cell_id in notebook.order)]
    title = " ".join(notebook.title.split()) or "Untitled notebook"
    if form == "html":
        return _html(title, cells, blobs)
    pieces = _md(title, cells, blobs) if form == "md" else _txt(title, cells, blobs)
    return "\n\n".join(pieces) + "\n"


def _told(cell: Cell, notebook: Notebook) -> list[Told]:
    """A cell that is not an agent's any more does not show its story."""
    return told(cell.story, cell.source, notebook.files) if cell.kind == "agent" else []


def _heading(place: int, cell: Cell) -> str:
    words = f"Cell {place}, {_NAMES.get(cell.kind, cell.kind)}"
    if cell.state not in ("idle", "done"):
        words += f", {cell.state}"
    return words + (f": {cell.reason}" if cell.reason and cell.state in ("error", "cancelled") else "")


def _picture(shown: Shown) -> str | None:
    """A display's picture as a data address."""
    if not shown.mime.startswith("image/") or not isinstance(shown.value, str):
        return None
    content = shown.value
    if shown.mime == "image/svg+xml":
        content = base64.b64encode(content.encode()).decode()
    return f"data:{shown.mime};base64,{re.sub(r'[^A-Za-z0-9+/=]', '', content)}"


def _table(value: Any) -> tuple[list[str], list[list[str]], str] | None:
    """Names, rows and a closing line of a table's value; None when it is none."""
    try:
        names = [str(column["name"]) for column in value["columns"]]
        rows = [[_cell(item) for item in row] for row in value["rows"]]
        head, shape = int(value["head"]), [int(side) for side in value["shape"]]
        if any(len(row) != len(names) for row in rows) or len(shape) != 2:
            return None
    except (KeyError, TypeError, ValueError):
        return None
    if len(rows) < shape[0]:
        rows.insert(head, ["…"] * len(names))
    return names, rows, f"{shape[0]:,} rows × {shape[1]:,} columns"


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value.get('text', '')}…" if value.get("cut") else str(value.get("text", ""))
    if value is None:
        return "null"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _plain(shown: Shown) -> str:
    """A display where only text can stand."""
    if shown.mime in ("text/plain", "text/markdown", "text/latex"):
        return _terminal(str(shown.value))
    if shown.mime == "application/json":
        return _json(shown.value)
    return _terminal(shown.plain) or f"({shown.mime})"


def _terminal(text: str) -> str:
    terminal = Terminal()
    terminal.feed(text)
    return terminal.text.rstrip("\n")


def _json(value: Any) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return text if len(text) <= JSON_CHARACTERS else f"{text[:JSON_CHARACTERS]}\n… {len(text) - JSON_CHARACTERS:,} more"


# Plain text


def _txt(title: str, cells: list[_Cell], blobs: Mapping[str, bytes]) -> Iterator[str]:
    yield f"{title}\n{'=' * min(len(title), 100)}"
    for place, (cell, story) in enumerate(cells, 1):
        heading = _heading(place, cell)
        yield f"{heading}\n{'-' * min(len(heading), 100)}\n{cell.source}".rstrip()
        for item in story:
            yield _txt_told(item)
        for part in parts(cell.output, blobs):
            match part:
                case Text():
                    yield part.plain
                case Gap():
                    yield part.words
                case Shown():
                    yield _plain(part)


def _txt_told(item: Told) -> str:
    pieces = [f"[{item.label}]", _terminal(item.prose or item.words)]
    for caption, text in item.blocks:
        pieces += [f"  {caption}:", "\n".join(f"    {line}" for line in _terminal(text).split("\n"))]
    return "\n".join(piece for piece in pieces if piece)


# Markdown


def _md(title: str, cells: list[_Cell], blobs: Mapping[str, bytes]) -> Iterator[str]:
    yield f"# {title}"
    for place, (cell, story) in enumerate(cells, 1):
        if cell.kind == "markdown":
            yield cell.source
            continue
        yield f"**{_heading(place, cell)}**"
        yield _fence(cell.source, {"python": "python", "shell": "sh"}.get(cell.kind, ""))
        for item in story:
            yield _md_told(item)
        for part in parts(cell.output, blobs):
            match part:
                case Text():
                    yield _fence(part.plain)
                case Gap():
                    yield f"*{part.words}*"
                case Shown():
                    yield _md_shown(part)


def _fence(text: str, language: str = "") -> str:
    longest = max((len(ticks) for ticks in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _md_told(item: Told) -> str:
    """What programs and models wrote stands to the letter; only what was said to people is Markdown."""
    pieces = [f"*{_letters(item.label)}*", _quoted(item.prose) if item.prose else ""]
    pieces.append(_fence(_terminal(item.words)) if item.words else "")
    for caption, text in item.blocks:
        pieces += [f"{_letters(caption)}:", _fence(_terminal(text))]
    return "\n\n".join(piece for piece in pieces if piece)


def _letters(text: str) -> str:
    """A line in which no sign means anything to Markdown or HTML."""
    return re.sub(r"([\\`*_{}\[\]<>()#|!~&$])", r"\\\1", text)


def _quoted(text: str) -> str:
    """Markdown as a quotation: HTML in it is told, not drawn."""
    return "\n".join(f"> {line}" for line in html.escape(text, quote=False).split("\n"))


def _md_shown(shown: Shown) -> str:
    if (address := _picture(shown)) is not None:
        label = re.sub(r"[\[\]\n]", " ", shown.plain[:100]) or "output"
        return f"![{label}]({address})"
    if shown.mime == "text/markdown":
        return str(shown.value)
    if shown.mime == _TABLE and (table := _table(shown.value)) is not None:
        names, rows, foot = table
        lines = [names, ["---"] * len(names), *rows]
        cells = [[re.sub(r"\s+", " ", cell).replace("|", "\\|") for cell in line] for line in lines]
        return "\n".join(f"| {' | '.join(line)} |" for line in cells) + f"\n\n{foot}"
    return _fence(_plain(shown))


# HTML


def _html(title: str, cells: list[_Cell], blobs: Mapping[str, bytes]) -> str:
    pieces = [f"<h1>{html.escape(title)}</h1>"]
    for place, (cell, story) in enumerate(cells, 1):
        inside = []
        if cell.kind == "markdown":
            inside.append(f'<div class="prose">{_prose(cell.source)}</div>')
        else:
            inside.append(f"<h2>{html.escape(_heading(place, cell))}</h2><pre>{html.escape(cell.source)}</pre>")
        inside += [_html_told(item) for item in story]
        shown = [_html_part(part) for part in parts(cell.output, blobs)]
        if shown:
            inside.append(f'<div class="out tall">{"".join(shown)}</div>')
        pieces.append(f'<section class="{html.escape(cell.kind)}">{"".join(inside)}</section>')
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{html.escape(title)}</title><style>{theme.CSS}\n{_SHEET}</style></head>"
        f'<body><main class="nb page export">{"".join(pieces)}</main></body></html>'
    )


_SHEET = """.export h1 { font-size: 26px; line-height: 1.3; padding-bottom: 14px; }
.export h2 { font: 12.5px var(--sans); color: var(--faint); padding: 10px 14px 0; }
.export section { margin-bottom: 14px; }
.export section:not(.markdown) { background: var(--sheet); border: 1px solid var(--line); border-radius: var(--radius);
  overflow: hidden; }
.export pre { margin: 0; padding: 8px 14px 12px; font: 13.5px/1.6 var(--mono); white-space: pre-wrap;
  overflow-wrap: anywhere; }
.export .told { padding: 6px 14px; border-top: 1px solid var(--line); }
.export .told summary { cursor: pointer; color: var(--soft); overflow-wrap: anywhere; }
.export .told h3 { margin: 4px 0; font: 600 13px/1.5 var(--sans); color: var(--soft); overflow-wrap: anywhere; }
.export .told p { margin: 4px 0; white-space: pre-wrap; overflow-wrap: anywhere; } .export .told .prose { padding: 0; }
.export .told pre { padding: 6px 10px; background: var(--code); border-radius: 8px; }
.export .out pre { padding: 0; font: inherit; } .export .out-html { overflow-x: auto; font: 14px/1.5 var(--sans); }
.export .prose { cursor: auto; } .export th, .export td { padding: 3px 10px; text-align: left; }"""


def _html_told(item: Told) -> str:
    inside = f'<div class="prose">{_prose(item.prose)}</div>' if item.prose else ""
    inside += f"<p>{html.escape(_terminal(item.words))}</p>" if item.words else ""
    for caption, text in item.blocks:
        inside += f"<h3>{html.escape(caption)}</h3><pre>{html.escape(_terminal(text))}</pre>"
    label = html.escape(item.label)
    if item.folded and inside:
        return f'<details class="told"><summary>{label}{_first(item)}</summary>{inside}</details>'
    return f'<div class="told"><h3>{label}</h3>{inside}</div>'


def _first(item: Told) -> str:
    """What a folded thought begins with."""
    line = " ".join((item.prose or item.words).split())
    return f": {html.escape(line[:140])}{'…' if len(line) > 140 else ''}" if line else ""


def _html_part(part: Part) -> str:
    match part:
        case Text():
            lines = part.lines[:-1] if part.lines and not part.lines[-1] else part.lines
            return f'<pre class="out-block">{_styled(lines)}</pre>'
        case Gap():
            return f'<div class="out-gap">{html.escape(part.words)}</div>'
        case Shown():
            return f'<div class="out-display">{_html_shown(part)}</div>'


def _styled(lines: list[list[Run]]) -> str:
    return "\n".join("".join(_span(text, style) for text, style in line) for line in lines)


def _span(text: str, style: str) -> str:
    """A run as the page has it (`ui/components/page/styles.js`), without its link."""
    words = [word for word in style.split(" ") if word and not word.startswith("link:")]
    colours = {word[:2]: word[2:] for word in words if word.startswith(("fg", "bg"))}
    classes = [word for word in words if not word.startswith(("fg", "bg"))]
    if colours and "inverse" in classes:
        classes.remove("inverse")
        colours = {"bg" if kind == "fg" else "fg": colour for kind, colour in colours.items()}
        if "bg" not in colours:
            classes.append("on-ink")
    css = ""
    for kind, colour in sorted(colours.items(), reverse=True):
        classes += [kind] if colour.startswith("#") else [kind, kind + colour]
        css += f"--{kind}:{colour};" if colour.startswith("#") else ""
    if not classes:
        return html.escape(text)
    styles = f' style="{css}"' if css else ""
    return f'<span class="{" ".join(classes)}"{styles}>{html.escape(text)}</span>'


def _html_shown(shown: Shown) -> str:
    if (address := _picture(shown)) is not None:
        return f'<img src="{address}" alt="{html.escape(shown.plain[:200])}">'
    if shown.mime == _TABLE and (table := _table(shown.value)) is not None:
        names, rows, foot = table
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        return (
            f'<div class="out-table"><div class="out-table-scroll"><table><thead><tr>{head}</tr></thead>'
            f'<tbody>{body}</tbody></table></div><div class="out-table-foot">{html.escape(foot)}</div></div>'
        )
    if shown.mime == "text/html":
        return f'<div class="out-html">{harmless(str(shown.value))}</div>'
    if shown.mime == "text/markdown":
        return f'<div class="prose">{_prose(str(shown.value))}</div>'
    if shown.mime == "text/latex":
        return _formula(str(shown.value).strip().strip("$"), True)
    return f'<pre class="out-plain">{html.escape(_plain(shown))}</pre>'


def _prose(source: str) -> str:
    """Markdown as HTML, formulas as MathML."""
    formulas: list[str] = []

    def keep(match: re.Match[str]) -> str:
        tex = match.group(2) or match.group(3)
        if tex is None:
            return match.group()
        formulas.append(_formula(tex.strip(), match.group(2) is not None))
        return _HOLE.format(len(formulas) - 1)

    rendered: str = _markdown.render(_MATH.sub(keep, re.sub("[\ue000\ue001]", "", source)))
    return re.sub("\ue000(\\d+)\ue001", lambda match: formulas[int(match.group(1))], rendered)


def _formula(tex: str, display: bool) -> str:
    try:
        return mathml(tex, display).replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "")
    except NotTex:
        return f"<code>{html.escape(tex)}</code>"
