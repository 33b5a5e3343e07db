"""Shaping a run's output into records, so that the engine makes one frame of each and a page can keep up.

Live output: the first at once, then at most every 40 ms or 32 KiB; a line that only rewrites itself twice a second.
The first 5 MiB come as they are. Past that, one look every 2 s at the newest 4 KiB; at the end the last 5 MiB, without
what was shown already. `left_out` of a record is exactly the number of bytes between the record before and it that no
record shows. The whole (its first 64 MiB) is a compressed file in the workspace.
"""

import os
import re
import time
import zlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from engine.sandbox.text import Decoder, compact, pieces, rewrites

RECORD_BYTES = 32 * 1024
PAUSE_SECONDS = 0.04
REWRITE_SECONDS = 0.5
HELD_SECONDS = 1.0
FIRST_BYTES = 5 * 1024 * 1024
LAST_BYTES = 5 * 1024 * 1024
LOOK_BYTES = 4 * 1024
LOOK_SECONDS = 2.0
WHOLE_BYTES = 64 * 1024 * 1024
WHOLE_FOLDER = (".nightbook", "outputs")
_CHUNK = 32 * 1024
_CHUNKS = 4096
_STRING = re.compile(rb"\A[\x80-\xbf]{1,3}")


class Whole:
    """The whole output of one run: in memory while small, then a raw file out of sight, compressed once it is large.

    The workspace belongs to the code that runs in it, so no step of the path is followed through a symbolic link.
    """

    def __init__(self, workspace: str, raw: str, run: str) -> None:
        self._workspace = workspace
        self._raw = raw
        self._name = f"{run}.txt.gz"
        self._small = bytearray()
        self._file: int | None = None
        self._zip: Any = None
        self._out: int | None = None
        self._given_up = False
        self.bytes = 0

    def write(self, data: bytes) -> None:
        data = data[: WHOLE_BYTES - self.bytes]
        if not data or self._given_up:
            return
        self.bytes += len(data)
        try:
            if self._out is not None:
                os.write(self._out, self._zip.compress(data))
                return
            self._small += data
            if len(self._small) >= 64 * 1024:
                if self._file is None:
                    self._file = os.open(self._raw, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
                os.write(self._file, self._small)
                self._small.clear()
        except OSError:
            self._give_up()

    def keep(self) -> None:
        """The output is large: from here on it is written to its file in the workspace."""
        if self._given_up or self._out is not None:
            return
        try:
            self._out = self._create()
            self._zip = zlib.compressobj(1, zlib.DEFLATED, 31)
            if self._file is not None:
                os.lseek(self._file, 0, os.SEEK_SET)
                while data := os.read(self._file, 256 * 1024):
                    os.write(self._out, self._zip.compress(data))
            os.write(self._out, self._zip.compress(bytes(self._small)))
            self._small.clear()
            self._forget_raw()
        except OSError:
            self._give_up()

    def finish(self) -> dict[str, Any] | None:
        """Close; what `ended` says of it: the path in the workspace and the bytes of text in it, or None."""
        told = None
        if self._out is not None and not self._given_up:
            with suppress(OSError):
                os.write(self._out, self._zip.flush())
                told = {"path": "/".join((*WHOLE_FOLDER, self._name)), "bytes": self.bytes}
        if self._out is not None:
            os.close(self._out)
            self._out = None
        self._forget_raw()
        self._given_up = True
        return told

    def _create(self) -> int:
        flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        at = os.open(self._workspace, os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in WHOLE_FOLDER:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=at)
                inner = os.open(name, flags, dir_fd=at)
                os.close(at)
                at = inner
            with suppress(FileNotFoundError):
                os.unlink(self._name, dir_fd=at)
            create = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(self._name, create, 0o644, dir_fd=at)
        finally:
            os.close(at)

    def _forget_raw(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
            with suppress(OSError):
                os.unlink(self._raw)

    def _give_up(self) -> None:
        """No room or no folder: the run matters more than the copy of its output."""
        self._given_up = True
        self._small.clear()
        self._forget_raw()


class Shaper:
    """One run's output. `emit(stream, text, left_out)` makes a record.

    The owner calls `feed` with bytes as they come, `pump` when `due` (a time of `time.monotonic()`, or None) is
    reached, `flush` before anything else of the run is recorded, and `finish` at its end.
    """

    def __init__(
        self, emit: Callable[[str, str, int], None], whole: Whole, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._emit = emit
        self._clock = clock
        self._whole = whole
        self._decoders: dict[str, Decoder] = {}
        self._pending: list[list[str]] = []  # [stream, text, text, …] in the order they came
        self._pending_size = 0
        self._plain = False  # something pending is more than a rewritten line
        self._last = 0.0
        self._held_since: float | None = None
        self._shown = 0
        self._thin = False
        self._tail: deque[tuple[str, bytearray]] = deque()
        self._tail_size = 0
        self._left_out = 0
        self.due: float | None = None

    def feed(self, stream: str, data: bytes) -> None:
        self._whole.write(data)
        if self._thin:
            self._keep(stream, data)
            return
        decoder = self._decoders.get(stream)
        if decoder is None:
            decoder = self._decoders[stream] = Decoder()
        text = decoder.feed(data)
        if decoder.held and self._held_since is None:
            self._held_since = self._clock()
        if text:
            self._add(stream, text)
        self.pump()

    def pump(self) -> None:
        """Emit what is due and say when to come again."""
        now = self._clock()
        if self._thin:
            if now >= self._last + LOOK_SECONDS and self._tail:
                self._look(LOOK_BYTES)
                self._last = now
            self.due = self._last + LOOK_SECONDS if self._tail else None
            return
        if self._held_since is not None:
            if not any(decoder.held for decoder in self._decoders.values()):
                self._held_since = None
            elif now >= self._held_since + HELD_SECONDS:
                for stream, decoder in self._decoders.items():
                    if held := decoder.release():
                        self._add(stream, held)
                self._held_since = None
        wait = PAUSE_SECONDS if self._plain else REWRITE_SECONDS
        if self._pending and (now >= self._last + wait or self._pending_size >= RECORD_BYTES):
            self._write()
        if self._thin:
            return
        due = [self._last + wait] if self._pending else []
        if self._held_since is not None:
            due.append(self._held_since + HELD_SECONDS)
        self.due = min(due, default=None)

    def flush(self) -> None:
        """Emit all that is whole, now: something else follows that must not overtake it."""
        if not self._thin:
            self._write()
        if self._thin and self._tail:
            self._look(LOOK_BYTES)
            self._last = self._clock()
        self.due = self._held_since + HELD_SECONDS if self._held_since is not None and not self._thin else None

    def discard(self) -> None:
        """Forget what was not emitted: the output was emptied."""
        self._pending.clear()
        self._pending_size = self._left_out = 0
        self._plain = False
        self._tail.clear()
        self._tail_size = 0
        self.due = None if self._held_since is None else self._held_since + HELD_SECONDS

    def finish(self) -> dict[str, Any] | None:
        """Emit everything that is left; returns where the whole output is, or None when all of it was shown."""
        if not self._thin:
            self._write()
        if self._thin:
            self._look(LAST_BYTES)
        for stream, decoder in self._decoders.items():
            if rest := decoder.end():
                self._out(stream, rest)
        self.due = None
        return self._whole.finish()

    def _add(self, stream: str, text: str) -> None:
        if self._pending and self._pending[-1][0] == stream:
            self._pending[-1].append(text)
        else:
            self._pending.append([stream, text])
        self._pending_size += len(text)
        self._plain = self._plain or not rewrites(text)

    def _write(self) -> None:
        pending, self._pending = self._pending, []
        self._pending_size = 0
        self._plain = False
        if pending:
            self._last = self._clock()
        for place, (stream, *texts) in enumerate(pending):
            text = "".join(texts)
            if rewrites(text):
                text = compact(text)
            cut = pieces(text, RECORD_BYTES)
            for number, piece in enumerate(cut):
                if self._shown >= FIRST_BYTES:
                    self._turn_thin(
                        [(stream, "".join(cut[number:])), *((s, "".join(t)) for s, *t in pending[place + 1 :])]
                    )
                    return
                self._out(stream, piece)

    def _out(self, stream: str, text: str) -> None:
        left_out, self._left_out = self._left_out, 0
        self._shown += len(text) if text.isascii() else len(text.encode())
        self._emit(stream, text, left_out)

    # Past the first 5 MiB: bytes are kept, not decoded, and only the newest.

    def _turn_thin(self, rest: list[tuple[str, str]]) -> None:
        self._thin = True
        self._whole.keep()
        for stream, text in rest:
            self._keep(stream, text.encode())
        for stream, decoder in self._decoders.items():
            if held := decoder.drop():
                self._keep(stream, held)
        self._held_since = None
        self.due = self._last + LOOK_SECONDS

    def _keep(self, stream: str, data: bytes) -> None:
        tail = self._tail
        for start in range(0, len(data), _CHUNK):
            piece = data[start : start + _CHUNK]
            if tail and tail[-1][0] == stream and len(tail[-1][1]) < _CHUNK:
                tail[-1][1].extend(piece)
            else:
                tail.append((stream, bytearray(piece)))
            self._tail_size += len(piece)
        while len(tail) > _CHUNKS or self._tail_size - len(tail[0][1]) >= LAST_BYTES:
            gone = len(tail.popleft()[1])
            self._tail_size -= gone
            self._skip(gone)
        if self.due is None:
            self.due = self._last + LOOK_SECONDS

    def _skip(self, size: int) -> None:
        """Bytes that will not be shown. Half a sequence held from before the gap goes with them."""
        self._left_out += size
        for decoder in self._decoders.values():
            self._left_out += len(decoder.drop())

    def _look(self, size: int) -> None:
        """Show the newest `size` bytes of what is kept, from the beginning of a line if one is near."""
        chunks, self._tail = self._tail, deque()
        skip = self._tail_size - size
        self._tail_size = 0
        while chunks and skip > 0:
            stream, chunk = chunks[0]
            if len(chunk) <= skip:
                gone = len(chunk)
                chunks.popleft()
            else:
                gone = skip
                line = chunk.find(b"\n", gone - 1, gone + LOOK_BYTES // 2) + 1
                if line:
                    gone = line
                elif half := _STRING.match(chunk[gone : gone + 3]):
                    gone += half.end()
                del chunk[:gone]
            self._skip(gone)
            skip -= gone
        while chunks:  # let go of each as it is shown
            stream, chunk = chunks.popleft()
            decoder = self._decoders.get(stream) or self._decoders.setdefault(stream, Decoder())
            for piece in pieces(decoder.feed(bytes(chunk)), RECORD_BYTES):
                self._out(stream, piece)
