"""Cutting bytes into text that stands alone; leaving out of a rewritten line what nobody would see."""

import time
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.sandbox.text import LONGEST_ESCAPE, Decoder, compact, open_escape, pieces, rewrites

ESCAPES = [
    "\x1b",
    "\x1b[3",
    "\x1b]x",
    "\x1b[31m",
    "\x1b[0m",
    "\x1b[2K",
    "\x1b]8;;http://x\x1b\\",
    "\x1b]0;title\x07",
    "\x1b(B",
    "\x1b7",
]
terminal_text = st.lists(st.one_of(st.sampled_from([*ESCAPES, "\r", "\n", "≤", "🙂"]), st.text(max_size=5))).map(
    "".join
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@settings(deadline=None)
@given(terminal_text, st.lists(st.integers(0, 10_000), max_size=8))
def test_however_the_bytes_arrive_the_text_is_the_same_and_no_piece_ends_in_half_a_sequence(
    text: str, places: list[int]
) -> None:
    decoder = Decoder()
    out = [decoder.feed(piece) for piece in cut(text.encode(), places)]
    assert all(open_escape(piece) == 0 for piece in out)
    assert "".join(out) + decoder.end() == text


def test_a_flood_of_broken_sequences_is_looked_through_quickly() -> None:
    for flood in ("\x1b[" * 100_000 + "x", "\x1b" * 100_000 + "x", "\x1b]" * 100_000 + "\x07"):
        began = time.monotonic()
        assert open_escape(flood) == 0
        assert time.monotonic() - began < 10  # milliseconds; minutes where each is looked for to the end


@given(st.binary(max_size=200), st.lists(st.integers(0, 10_000), max_size=8))
def test_any_bytes_become_text_that_can_be_encoded(data: bytes, places: list[int]) -> None:
    decoder = Decoder()
    text = "".join(decoder.feed(piece) for piece in cut(data, places)) + decoder.end()
    assert text == data.decode("utf-8", "replace")
    text.encode()


def test_what_never_becomes_a_sequence_is_let_go() -> None:
    assert open_escape("x\x1b[3") == 3
    assert open_escape("x\x1b]0;title") == 9
    assert open_escape("x\x1b]0;title\x1b") == 10
    assert open_escape("\x1b[31m") == 0
    assert open_escape("\x1b]" + "a" * LONGEST_ESCAPE) == 0


@settings(deadline=None)
@given(st.lists(terminal_text, max_size=30).map(lambda parts: "".join(parts) * 40))
def test_pieces_are_small_whole_and_together_the_text(text: str) -> None:
    size = LONGEST_ESCAPE + 10
    cut_up = pieces(text, size)
    assert "".join(cut_up) == text
    assert all(len(piece.encode()) <= size for piece in cut_up)
    assert all(open_escape(piece) == 0 for piece in cut_up[:-1])


def drawn(text: str) -> list[str]:
    """What a terminal shows of one line, each character with its colour: CR, BS, erase-line and colours count.

    It begins red, as if the text before had left that on; the colour at the end is the last element.
    """
    line: list[str] = []
    colour = "\x1b[31m"
    column = 0
    rest = text
    while rest:
        if rest.startswith("\x1b[K") or rest.startswith("\x1b[2K"):
            line = line[:column] if rest.startswith("\x1b[K") else [" "] * column
            rest = rest.partition("K")[2]
            continue
        if rest.startswith("\x1b["):
            colour, _, rest = rest.partition("m")
            colour += "m"
            continue
        character, rest = rest[0], rest[1:]
        if character == "\r":
            column = 0
        elif character == "\b":
            column = max(0, column - 1)
        else:
            line += [" "] * (column + 1 - len(line))
            line[column] = character + colour
            column += 1
    while line and line[-1].startswith(" "):
        line.pop()
    return [*line, colour]


@given(
    st.lists(st.sampled_from(["\r", "\b", "a", "bb", "c" * 7, " ", "\x1b[K", "\x1b[2K", "\x1b[31m", "\x1b[0m"])).map(
        "".join
    )
)
@example("\ra\r\x1b[0m\r")  # what is left out resets the colour of what follows it, not of what it follows
@settings(max_examples=1000, deadline=None)
def test_a_compacted_line_looks_the_same(text: str) -> None:
    assert drawn(compact(text)) == drawn(text)


def test_a_progress_bar_is_compacted_to_its_last_state() -> None:
    bar = "".join(f"\r{i:3d}% {'#' * (i // 10):10s}" for i in range(101))
    assert compact(bar) == f"\r100% {'#' * 10}"
    green = "".join(f"\r{i:3d}% \x1b[32m{'#' * (i // 10):10s}\x1b[0m" for i in range(101))
    assert compact(green) == f"\x1b[0m\r100% \x1b[32m{'#' * 10}\x1b[0m"
    spinner = "".join(f"{c}\b" for c in "|/-\\" * 50)
    assert compact(spinner) == "\\\b"
    assert rewrites(bar)
    assert not rewrites(bar + "\n")
    assert not rewrites("plain")
