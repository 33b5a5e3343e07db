"""Cutting a program's bytes into text that can stand alone: whole characters, whole escape sequences.

Whoever receives a piece may draw it at once; no piece ends in half a `≤` or half a colour change.
"""

import codecs
import re

# A sequence that was never finished is let go after this many characters (terminals give up much earlier).
LONGEST_ESCAPE = 4096

# ECMA-48: CSI is ESC [ parameters intermediates final; OSC, DCS, SOS, PM and APC run to BEL or ESC \. Any of them may
# be broken off by the ESC of the next, which then belongs to what is open.
_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*|[ -/]*)")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_RESET = re.compile(r"\x1b\[0?m\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_STRUCK = re.compile(r"[^\x00-\x1f\x7f-\x9f]\x08(?=[^\x00-\x1f\x7f-\x9f])")
_ERASE = re.compile(r"\A\x1b\[2?K")


def open_escape(text: str) -> int:
    """How many characters at the end of `text` are the beginning of an escape sequence; 0 when it ends cleanly."""
    begin, end = max(0, len(text) - LONGEST_ESCAPE), len(text)
    # Backwards from the last ESC, so that a flood of them costs no more than its length.
    while (escape := text.rfind("\x1b", begin, end)) >= 0 and _BEGUN.fullmatch(text, escape, end):
        end = escape
    return len(text) - end


class Decoder:
    """Incremental UTF-8 of one stream. Invalid bytes become U+FFFD; what is unfinished is held for the next call."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self.held = ""

    def feed(self, data: bytes) -> str:
        text = self.held + self._utf8.decode(data)
        unfinished = open_escape(text)
        self.held = text[len(text) - unfinished :] if unfinished else ""
        return text[: len(text) - unfinished] if unfinished else text

    def release(self) -> str:
        """The unfinished escape sequence as it is (it will not be finished any more), not half a character."""
        held, self.held = self.held, ""
        return held

    def end(self) -> str:
        """All that is left; half a character becomes U+FFFD."""
        return self.release() + self._utf8.decode(b"", True)

    def drop(self) -> bytes:
        """Give back what is held, as bytes, and start anew."""
        rest = self._utf8.getstate()[0]
        held = self.release().encode()
        self._utf8.reset()
        return held + rest


def pieces(text: str, size: int) -> list[str]:
    """Cut into pieces of at most `size` bytes of UTF-8, none of which splits an escape sequence.

    `size` must be larger than `LONGEST_ESCAPE`.
    """
    cut = []
    start = 0
    while start < len(text):
        end = min(len(text), start + size)
        piece = text[start:end]
        if not piece.isascii():
            piece = piece.encode()[:size].decode("utf-8", "ignore")
            end = start + len(piece)
        if end < len(text) and (unfinished := open_escape(piece)) and unfinished < len(piece):
            end -= unfinished
            piece = text[start:end]
        cut.append(piece)
        start = end
    return cut


def rewrites(text: str) -> bool:
    """Whether the text only draws its line again, as a progress bar does."""
    return "\n" not in text and ("\r" in text or "\b" in text)


def compact(text: str) -> str:
    """Leave out of a rewritten line what a later part of the same text covers anyway.

    Kept are the part before the first `\\r` (it continues a line whose column is not known here) and every part that
    later ones do not cover whole: they count when they are at least as long, or begin by erasing the line. A part with
    other control characters is kept, and one with colours when any part leaves a colour on.
    """
    if "\x1b" not in text:  # else the character before \b may be the end of a sequence
        text = _STRUCK.sub("", text)
    first, *parts = text.split("\r")
    kept: list[str] = []
    covered = -1
    reset = ""  # what was left out ended in the default colours, whatever colour the text before it left on
    leaky = any(colours and not _RESET.match(colours[-1]) for colours in map(_COLOUR.findall, (first, *parts)))
    for part in reversed(parts):
        erases = _ERASE.match(part) is not None
        plain = _COLOUR.sub("", _ERASE.sub("", part))
        simple = not _CONTROL.search(plain)
        colours = _COLOUR.search(part) is not None
        needed = 1 << 30 if erases else len(plain)  # an erasure reaches what was there before, however long
        if kept and simple and needed <= covered and not (colours and leaky):
            reset = "\x1b[0m" if colours else reset
            continue
        kept.append(part + reset)
        reset = ""
        if erases:
            covered = 1 << 30
        elif simple:
            covered = max(covered, len(plain))
    return "\r".join([first + reset, *reversed(kept)])
