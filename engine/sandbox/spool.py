"""What the shim keeps on disk: its records until they are acknowledged, and for 24 h what became of each run.

Records survive here when no engine listens, so that kill -9 of the server loses nothing. Nothing is fsynced but a run's
start: a machine that loses power takes the running code with it, but must not start the same run a second time.
"""

import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SEGMENT_BYTES = 4 * 1024 * 1024
KEEP_SECONDS = 24 * 3600.0
_LONE = re.compile("[\ud800-\udfff]")


def encode(body: Mapping[str, Any]) -> bytes:
    """One line of JSON in valid UTF-8: lone surrogates become U+FFFD."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        return _LONE.sub("\ufffd", text).encode() + b"\n"


class _Segment:
    __slots__ = ("fd", "first", "path", "size")

    def __init__(self, path: Path, first: int) -> None:
        self.path = path
        self.first = first
        self.size = 0
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_APPEND, 0o600)

    def __del__(self) -> None:
        os.close(self.fd)


class Cursor:
    """A reader's place: the next record is number `n + 1`."""

    __slots__ = ("n", "offset", "segment")

    def __init__(self, n: int, segment: _Segment, offset: int) -> None:
        self.n = n
        self.segment = segment
        self.offset = offset


class Spool:
    """Numbered records in segment files. `limit` is in bytes; beyond it `full` says so and the caller stops reading.

    `append` itself never refuses: what was read already is kept, also when the disk is full (then in memory, little
    of it, because `full` is true).
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        folder.mkdir(mode=0o700, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        self._segments = [_Segment(folder / "1.jsonl", 1)]
        self._unwritten: list[bytes] = []
        self.last = 0
        self.acked = 0

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def full(self) -> bool:
        return bool(self._unwritten) or self.size >= self._limit

    def append(self, record: dict[str, Any]) -> int:
        """Give the record its number, keep it, return the number."""
        self.last += 1
        self._unwritten.append(encode({"n": self.last, **record}))
        self.write()
        return self.last

    def write(self) -> None:
        """Write what could not be written before. Called again by the shim while `full`."""
        while self._unwritten:
            line, newest = self._unwritten[0], self._segments[-1]
            try:
                if newest.size >= SEGMENT_BYTES:
                    first = self.last - len(self._unwritten) + 1
                    newest = _Segment(self._folder / f"{first}.jsonl", first)
                    self._segments.append(newest)
                written = os.write(newest.fd, line)
            except OSError:
                return
            if written < len(line):  # the disk filled up in the middle: take the half line back
                os.ftruncate(newest.fd, newest.size)
                return
            newest.size += written
            del self._unwritten[0]

    def ack(self, upto: int) -> None:
        """Forget whole segments whose records are all acknowledged."""
        self.acked = max(self.acked, min(upto, self.last))
        if len(self._segments) == 1 and self.acked == self.last and self._segments[0].size > SEGMENT_BYTES // 8:
            if self._unwritten:
                return
            self._segments.append(_Segment(self._folder / f"{self.last + 1}.jsonl", self.last + 1))
        while len(self._segments) > 1 and self._segments[1].first <= self.acked + 1:
            self._segments.pop(0).path.unlink(missing_ok=True)

    def cursor(self, after: int) -> Cursor:
        """A place from which records after number `after` are read. Raises `ValueError` when they are not all here."""
        if not self._segments[0].first - 1 <= after <= self.last:
            raise ValueError(f"records after {after} are not here, only {self._segments[0].first} to {self.last}")
        segment = max((s for s in self._segments if s.first <= after + 1), key=lambda s: s.first)
        cursor = Cursor(segment.first - 1, segment, 0)
        while cursor.n < after:
            data = os.pread(segment.fd, 256 * 1024, cursor.offset)
            if not data:
                break  # not written yet, the disk is full: the reader drops what it has by number
            for line in data.splitlines(keepends=True):
                cursor.offset += len(line)
                if line.endswith(b"\n"):
                    cursor.n += 1
                    if cursor.n == after:
                        break
        return cursor

    def read(self, cursor: Cursor, size: int) -> list[bytes]:
        """The next records' lines (without the newline), together about `size` bytes, at least one if there is one."""
        while True:
            want = size
            while True:
                data = os.pread(cursor.segment.fd, want, cursor.offset)
                end = data.rfind(b"\n") + 1
                if end or len(data) < want:
                    break
                want *= 2  # one record larger than the window
            if end:
                lines = data[:end].split(b"\n")[:-1]
                cursor.offset += end
                cursor.n += len(lines)
                return lines
            later = [s for s in self._segments if s.first > cursor.segment.first]
            if not later:
                return []
            cursor.segment, cursor.offset = later[0], 0
            cursor.n = later[0].first - 1


class RunBook:
    """What became of every run, by id, on disk for 24 h; also the highest epoch seen. Outlives the shim.

    A run that an earlier shim left running has ended with it: it is told as ended, and never started again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.runs: dict[str, dict[str, Any]] = {}
        self.epoch = 0
        if path.exists():
            for line in path.read_bytes().splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue  # the line that was being written when the machine stopped
                if "epoch" in entry:
                    self.epoch = max(self.epoch, int(entry["epoch"]))
                else:
                    self.runs[entry.pop("run")] = entry
        for entry in self.runs.values():
            if entry["state"] == "running":
                entry.update(state="ended", status="error", reason="the sandbox was lost", exit=None)
        self.purge()
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_CREAT, 0o600)

    def purge(self) -> None:
        """Forget what ended more than 24 h ago, and write the file anew."""
        now = time.time()
        self.runs = {
            run: entry
            for run, entry in self.runs.items()
            if entry["state"] == "running" or now - entry["at"] < KEEP_SECONDS
        }
        lines = [encode({"epoch": self.epoch}), *(encode({"run": run, **entry}) for run, entry in self.runs.items())]
        fresh = self._path.with_suffix(".new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.writelines(lines)
            file.flush()
            os.fdatasync(file.fileno())
        fresh.replace(self._path)
        if hasattr(self, "_fd"):
            os.close(self._fd)
            self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def begin(self, run: str, kind: str) -> None:
        """Note that the run is known, on the disk itself, before any of its code starts."""
        self.runs[run] = {"state": "running", "kind": kind, "at": time.time()}
        os.write(self._fd, encode({"run": run, **self.runs[run]}))
        os.fdatasync(self._fd)

    def end(self, run: str, status: str, reason: str | None, code: int | None) -> None:
        self.runs[run] |= {"state": "ended", "status": status, "reason": reason, "exit": code, "at": time.time()}
        os.write(self._fd, encode({"run": run, **self.runs[run]}))

    def seen(self, epoch: int) -> None:
        """Remember the highest epoch."""
        if epoch > self.epoch:
            self.epoch = epoch
            os.write(self._fd, encode({"epoch": epoch}))
