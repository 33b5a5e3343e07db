"""What a stream of program output looks like on a terminal: the one meaning of `\\r`, `\\b`, moves and colours.

Pure: text in, lines of styled runs out. The page has the same in JavaScript (`ui/components/page/terminal.js`); both
run the cases of `tests/terminal_cases.json`, so that what is seen live, after a reload and in an export is one thing.

A *style* is a string of words in a fixed order, "" for plain text: the stream (`err`), `bold` `faint` `italic`
`underline` `strike` `inverse` `hidden`, `fg1` or `fg#rrggbb`, `bg…`, and `link:ADDRESS`. Lines never wrap here: whoever
draws them wraps them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable

HEIGHT = 40  # rows that can still be rewritten, the height of the terminal that shell cells get
WIDEST = 1000  # columns and counts that a sequence may ask for
PENDING_LIMIT = 4096  # an escape sequence longer than this is none

Run = tuple[str, str]  # text, style

_TOKEN = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-OQ-WYZ\\`-~]"
    r"|[\x00-\x08\x0a-\x1f\x7f-\x9f]|[^\x00-\x08\x0a-\x1f\x7f-\x9f]+"
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)\Z")
_LINK = re.compile(r"\x1b\]8;[^;]*;(.*?)(?:\x07|\x1b\\)\Z", re.DOTALL)
_NARROW = re.compile(r"[\x20-\x7e]*\Z")

# First and last code point of what takes no column, and of what takes two.
_ZERO = (
    (0x300, 0x36F), (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x200B, 0x200F), (0x20D0, 0x20FF), (0xFE00, 0xFE0F),
    (0xE0100, 0xE01EF),
)  # fmt: skip
_WIDE = (
    (0x1100, 0x115F), (0x2E80, 0x303E), (0x3041, 0xA4CF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFE30, 0xFE6F),
    (0xFF00, 0xFF60), (0xFFE0, 0xFFE6), (0x1F300, 0x1F64F), (0x1F680, 0x1F6FF), (0x1F900, 0x1F9FF), (0x20000, 0x3FFFD),
)  # fmt: skip
_FLAGS = ("bold", "faint", "italic", "underline", "strike", "inverse", "hidden")
_ON = {1: "bold", 2: "faint", 3: "italic", 4: "underline", 7: "inverse", 8: "hidden", 9: "strike", 21: "underline"}
_OFF = {
    22: ("bold", "faint"), 23: ("italic",), 24: ("underline",), 27: ("inverse",), 28: ("hidden",), 29: ("strike",),
}  # fmt: skip


def width(char: str, column: int) -> int:
    """Columns that `char` takes when it begins in `column`."""
    if char == "\t":
        return 8 - column % 8
    code = ord(char)
    if code < 0x300:
        return 1
    if _within(code, _ZERO):
        return 0
    return 2 if _within(code, _WIDE) else 1


def _within(code: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    at = bisect_right(ranges, (code, 0x110000)) - 1
    return at >= 0 and ranges[at][0] <= code <= ranges[at][1]


class _Pen:
    """Colours and the like that the next characters get."""

    def __init__(self) -> None:
        self.flags: set[str] = set()
        self.fg = self.bg = self.link = ""

    def style(self, base: str) -> str:
        words = [base, *(flag for flag in _FLAGS if flag in self.flags)]
        words += [name + colour for name, colour in (("fg", self.fg), ("bg", self.bg)) if colour]
        return " ".join(filter(None, [*words, f"link:{self.link}" if self.link else ""]))

    def select(self, parameters: str) -> None:
        """SGR (ECMA-48 8.3.117), with the colours of ISO 8613-6 in both spellings."""
        codes = [int(code) if code.isdigit() else 0 for code in re.split("[;:]", parameters)]
        at = 0
        while at < len(codes):
            code = codes[at]
            at += 1
            if code == 0:
                self.flags, self.fg, self.bg = set(), "", ""
            elif code in _ON:
                self.flags.add(_ON[code])
            elif code in _OFF:
                self.flags.difference_update(_OFF[code])
            elif code in (38, 48):
                colour, at = _extended(codes, at)
                if colour:
                    setattr(self, "fg" if code == 38 else "bg", colour)
            elif code == 39:
                self.fg = ""
            elif code == 49:
                self.bg = ""
            elif 30 <= code <= 37 or 90 <= code <= 97:
                self.fg = str(code - 30 if code < 90 else code - 82)
            elif 40 <= code <= 47 or 100 <= code <= 107:
                self.bg = str(code - 40 if code < 100 else code - 92)


def _extended(codes: list[int], at: int) -> tuple[str, int]:
    """The colour that follows 38 or 48, and where the next code stands."""
    kind = codes[at] if at < len(codes) else 0
    if kind == 5 and at + 1 < len(codes):
        return _indexed(min(codes[at + 1], 255)), at + 2
    if kind == 2 and at + 3 < len(codes):
        return "#" + "".join(f"{min(value, 255):02x}" for value in codes[at + 1 : at + 4]), at + 4
    return "", len(codes)


def _indexed(number: int) -> str:
    """One of the 256: 16 named ones, a cube of six levels, 24 greys."""
    if number < 16:
        return str(number)
    if number >= 232:
        return "#" + f"{8 + 10 * (number - 232):02x}" * 3
    levels = (0, 95, 135, 175, 215, 255)
    at = number - 16
    return "#" + "".join(f"{levels[part]:02x}" for part in (at // 36, at // 6 % 6, at % 6))


_Cell = tuple[str, str]  # a character with its marks, or "" where the one before reaches over; style
_BLANK: _Cell = (" ", "")


class Terminal:
    """`feed` text; `lines` is all there is so far, the last one without its line break."""

    def __init__(self) -> None:
        self._settled: list[list[Run]] = []
        self._rows: list[list[_Cell]] = [[]]
        self._row = self._column = 0
        self._saved = (0, 0)
        self._pen = _Pen()
        self._pending = ""
        self._main: tuple[list[list[_Cell]], int, int] | None = None  # what the alternate screen hides

    def feed(self, text: str, base: str = "") -> None:
        """Takes text of a stream; `base` is the stream's word in the style."""
        text = (self._pending + text).replace("\r\n", "\n")
        self._pending = ""
        unfinished = _UNFINISHED.search(text, max(0, len(text) - PENDING_LIMIT))
        if unfinished:
            self._pending = unfinished.group()
            text = text[: unfinished.start()]
        style = self._pen.style(base)
        for token in _TOKEN.findall(text):
            code = ord(token[0])
            if code == 10:
                self._line_feed()
            elif code == 27:
                self._escape(token)
                style = self._pen.style(base)
            elif code == 13:
                self._column = 0
            elif code == 8:
                self._column = max(0, self._column - 1)
            elif code == 9 or (code >= 32 and not 127 <= code < 160):
                self._write(token, style)

    @property
    def lines(self) -> list[list[Run]]:
        """Every line as its runs."""
        return [*self._settled, *map(_runs, self._rows)]

    @property
    def text(self) -> str:
        """The same without styles."""
        return "\n".join("".join(text for text, _ in line) for line in self.lines)

    def _current(self) -> list[_Cell]:
        while len(self._rows) <= self._row:
            self._rows.append([])
        return self._rows[self._row]

    def _line_feed(self) -> None:
        self._row += 1
        self._column = 0
        self._current()
        if len(self._rows) > HEIGHT:
            gone = self._rows.pop(0)
            if self._main is None:
                self._settled.append(_runs(gone))
            self._row -= 1

    def _write(self, text: str, style: str) -> None:
        row = self._current()
        if len(row) < self._column:
            row.extend([_BLANK] * (self._column - len(row)))
        if len(row) == self._column and _NARROW.match(text):
            row.extend([(char, style) for char in text])
            self._column = len(row)
            return
        for char in text:
            columns = width(char, self._column)
            if columns == 0:
                at = _head(row, self._column - 1)
                if at >= 0:
                    row[at] = (row[at][0] + char, row[at][1])
                continue
            end = self._column + columns
            self._free(row, self._column, end)
            row[self._column : end] = [(char, style), *[("", style)] * (columns - 1)]
            self._column = end

    def _free(self, row: list[_Cell], start: int, end: int) -> None:
        """What reaches over the edges of these columns becomes blanks."""
        for edge in (start, end):
            if edge < len(row) and row[edge][0] == "":
                at = _head(row, edge)
                while at < len(row) and (at <= edge or row[at][0] == ""):
                    row[at] = _BLANK
                    at += 1

    def _escape(self, token: str) -> None:
        if (link := _LINK.match(token)) is not None:
            address = link.group(1)
            self._pen.link = "" if re.search(r"\s", address) else address
        elif token.startswith("\x1b["):
            self._control(token[2:-1], token[-1])
        elif token == "\x1bM":
            self._row = max(0, self._row - 1)
        elif token == "\x1b7":
            self._saved = (self._row, self._column)
        elif token == "\x1b8":
            self._row, self._column = self._saved

    def _control(self, parameters: str, final: str) -> None:
        if final == "m" and parameters[:1] not in ("?", ">", "<", "="):
            self._pen.select(parameters)
            return
        if parameters[:1] == "?":
            if final in "hl" and parameters[1:] in ("47", "1047", "1049"):
                self._alternate(final == "h")
            return
        numbers = [int(number) if number.isdigit() else 0 for number in parameters.split(";")]
        given = numbers[0]
        count = min(given or 1, WIDEST)
        match final:
            case "A" | "F":
                self._row = max(0, self._row - count)
            case "B" | "E":
                self._row = min(HEIGHT - 1, self._row + count)
            case "C":
                self._column = min(self._column + count, WIDEST)
            case "D":
                self._column = max(0, self._column - count)
            case "G" | "`":
                self._column = count - 1
            case "d":
                self._row = min(HEIGHT, count) - 1
            case "H" | "f":
                self._row = min(HEIGHT, count) - 1
                self._column = min((numbers[1] if len(numbers) > 1 else 0) or 1, WIDEST) - 1
            case "J":
                self._erase_screen(given)
            case "K":
                self._erase_line(given)
            case "L":
                if self._row < len(self._rows):
                    self._rows[self._row : self._row] = [[] for _ in range(min(count, HEIGHT))]
                    del self._rows[HEIGHT:]
            case "M":
                del self._rows[self._row : self._row + count]
                self._current()
            case "P":
                row = self._current()
                self._free(row, self._column, self._column + count)
                del row[self._column : self._column + count]
            case "X":
                row = self._current()
                end = min(len(row), self._column + count)
                self._free(row, self._column, end)
                row[self._column : end] = [_BLANK] * max(0, end - self._column)
            case "@":
                row = self._current()
                self._free(row, self._column, self._column)
                if self._column < len(row):
                    row[self._column : self._column] = [_BLANK] * count
            case "s":
                self._saved = (self._row, self._column)
            case "u":
                self._row, self._column = self._saved
        if final in "EF":
            self._column = 0

    def _erase_line(self, how: int) -> None:
        row = self._current()
        if how == 0:
            self._free(row, self._column, self._column)
            del row[self._column :]
        elif how == 1:
            end = min(self._column + 1, len(row))
            self._free(row, end, end)
            row[:end] = [_BLANK] * end
        else:
            row.clear()

    def _erase_screen(self, how: int) -> None:
        if how == 0:
            self._erase_line(0)
            del self._rows[self._row + 1 :]
        elif how == 1:
            self._erase_line(1)
            self._rows[: self._row] = [[] for _ in range(self._row)]
        else:
            self._rows = [[]]

    def _alternate(self, on: bool) -> None:
        """The screen that an editor or a pager draws on, and that is gone when it ends."""
        if on and self._main is None:
            self._main = (self._rows, self._row, self._column)
            self._rows, self._row, self._column = [[]], 0, 0
        elif not on and self._main is not None:
            self._rows, self._row, self._column = self._main
            self._main = None


def _head(row: list[_Cell], at: int) -> int:
    """Where the character begins that covers column `at`."""
    at = min(at, len(row) - 1)
    while at > 0 and row[at][0] == "":
        at -= 1
    return at


def _runs(row: Iterable[_Cell]) -> list[Run]:
    runs: list[Run] = []
    texts: list[str] = []
    last = None
    for char, style in row:
        if style != last:
            if texts:
                runs.append(("".join(texts), last or ""))
            texts, last = [], style
        texts.append(char)
    if texts:
        runs.append(("".join(texts), last or ""))
    return runs
