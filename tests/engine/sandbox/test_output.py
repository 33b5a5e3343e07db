"""The shaper on a clock of its own: when records come, how large, and what is left out."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sandbox.output import FIRST_BYTES, LAST_BYTES, LOOK_BYTES, RECORD_BYTES, Shaper, Whole

KIB = 1024


class Shaped:
    """A shaper, its clock, and what it emitted: `(time, stream, text, left_out)`."""

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        self.out: list[tuple[float, str, str, int]] = []
        self.folder = folder
        self.shaper = Shaper(self._emit, Whole(str(folder), str(folder / "raw"), "run"), lambda: self.now)

    def _emit(self, stream: str, text: str, left_out: int) -> None:
        self.out.append((round(self.now - 100, 3), stream, text, left_out))

    def until(self, seconds: float) -> None:
        """Let the clock run, pumping whenever something is due."""
        while self.shaper.due is not None and self.shaper.due <= 100 + seconds:
            self.now = max(self.now, self.shaper.due)
            self.shaper.pump()
        self.now = 100 + seconds

    @property
    def text(self) -> str:
        return "".join(text for _, _, text, _ in self.out)

    @property
    def accounted(self) -> int:
        return sum(len(text.encode()) + left_out for _, _, text, left_out in self.out)


@pytest.fixture
def shaped(tmp_path: Path) -> Shaped:
    return Shaped(tmp_path)


def test_the_first_text_goes_at_once_then_at_most_every_40_ms(shaped: Shaped) -> None:
    for i in range(100):
        shaped.until(i / 1000)
        shaped.shaper.feed("stdout", f"{i}\n".encode())
    shaped.until(1)
    assert [time for time, *_ in shaped.out] == [0, 0.04, 0.08, 0.12]
    assert shaped.text == "".join(f"{i}\n" for i in range(100))


def test_32_kib_do_not_wait(shaped: Shaped) -> None:
    shaped.shaper.feed("stdout", b"first\n")
    shaped.shaper.feed("stdout", b"x" * 100 * KIB)
    assert [len(text) for _, _, text, _ in shaped.out] == [6, RECORD_BYTES, RECORD_BYTES, RECORD_BYTES, 4 * KIB]


def test_a_rewritten_line_comes_twice_a_second_and_compacted(shaped: Shaped) -> None:
    for i in range(1000):
        shaped.until(i / 100)
        shaped.shaper.feed("stderr", f"\r{i:4d}".encode())
    shaped.shaper.finish()
    assert len(shaped.out) == 21
    assert all(text.count("\r") == 1 for _, _, text, _ in shaped.out)
    assert shaped.out[-1][2] == "\r 999"


def test_a_newline_ends_the_patience(shaped: Shaped) -> None:
    shaped.shaper.feed("stderr", b"\r1")
    shaped.until(0.1)
    shaped.shaper.feed("stderr", b"\r2")
    shaped.shaper.feed("stderr", b"\n")
    assert shaped.out[-1] == (0.1, "stderr", "\r2\n", 0)


def test_streams_keep_their_order_and_flush_empties_them(shaped: Shaped) -> None:
    shaped.shaper.feed("stdout", b"a")
    for stream, text in (("stdout", b"b"), ("stderr", b"c"), ("stdout", b"d"), ("stdout", b"e")):
        shaped.shaper.feed(stream, text)
    shaped.shaper.flush()
    assert [(stream, text) for _, stream, text, _ in shaped.out] == [
        ("stdout", "a"), ("stdout", "b"), ("stderr", "c"), ("stdout", "de"),
    ]  # fmt: skip
    assert shaped.shaper.due is None


def test_half_a_sequence_waits_a_second_half_a_character_for_ever(shaped: Shaped) -> None:
    shaped.shaper.feed("terminal", b"x\x1b[3")
    shaped.until(0.5)
    assert shaped.text == "x"
    shaped.until(1.5)
    assert shaped.text == "x\x1b[3"
    shaped.shaper.feed("terminal", "≤".encode()[:2])
    shaped.until(60)
    shaped.shaper.feed("terminal", "≤".encode()[2:])
    assert shaped.text == "x\x1b[3≤"
    shaped.shaper.feed("terminal", b"\xe2")
    shaped.shaper.finish()
    assert shaped.text == "x\x1b[3≤\ufffd"


def test_past_5_mib_one_look_every_two_seconds_and_the_last_5_mib_at_the_end(shaped: Shaped) -> None:
    line = b"%07d\n"
    total = 0
    for i in range(500):  # 20 MB in 5 s
        shaped.until(i / 100)
        block = b"".join(line % (i * 5000 + j) for j in range(5000))
        total += len(block)
        shaped.shaper.feed("stdout", block)
    before = len(shaped.out)
    whole = shaped.shaper.finish()
    looks = [out for out in shaped.out[:before] if out[3]]
    assert 1 <= len(looks) <= 3
    assert all(len(text) <= LOOK_BYTES for _, _, text, _ in looks)
    assert shaped.accounted == total
    assert sum(len(text) for *_, text, _ in shaped.out[before:]) > LAST_BYTES - 64 * KIB
    assert shaped.text.endswith("2499999\n")
    assert all(len(part) in (0, 7) for part in "".join(text for *_, text, _ in looks).split("\n"))
    assert whole == {"path": ".nightbook/outputs/run.txt.gz", "bytes": total}
    with gzip.open(shaped.folder / whole["path"]) as file:
        assert file.read() == b"".join(line % i for i in range(2_500_000))
    assert not (shaped.folder / "raw").exists()


def test_small_output_leaves_no_file(shaped: Shaped) -> None:
    shaped.shaper.feed("stdout", b"x" * 200 * KIB)
    assert shaped.shaper.finish() is None
    assert list(shaped.folder.iterdir()) == []


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["stdout", "stderr"]),
            st.sampled_from(["≤" * 40_000, "x" * 100_000, "\x1b[31m🙂\n" * 9_000, "y"]),
            st.floats(0, 1),
        ),
        min_size=60, max_size=200,
    )
)  # fmt: skip
def test_every_byte_is_shown_or_counted(
    tmp_path_factory: pytest.TempPathFactory, feeds: list[tuple[str, str, float]]
) -> None:
    shaped = Shaped(tmp_path_factory.mktemp("whole"))
    now = 0.0
    for stream, text, pause in feeds:
        now += pause
        shaped.until(now)
        shaped.shaper.feed(stream, text.encode())
    shaped.shaper.finish()
    assert shaped.accounted == sum(len(text.encode()) for _, text, _ in feeds)
    assert "\ufffd" not in shaped.text


def test_many_tiny_writes_of_two_streams_stay_small(shaped: Shaped) -> None:
    shaped.shaper.feed("stdout", b"x" * (FIRST_BYTES + 1))
    for _ in range(20_000):
        shaped.shaper.feed("stdout", b"a")
        shaped.shaper.feed("stderr", b"b")
    assert len(shaped.shaper._tail) <= 4096
    shaped.shaper.finish()
    assert shaped.accounted == FIRST_BYTES + 1 + 40_000
