"""The kernel's end of the socket to the shim, and the objects that stand in for stdout, stderr and stdin.

One order for everything: text is joined for a few milliseconds and flushed before any message. Nothing here blocks
while it holds a lock, so that an interrupt can always be raised in the code that prints. In a forked child the socket
is closed and print goes to the raw descriptors instead, which the shim reads as well.
"""

import codecs
import io
import os
import re
import select
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from engine.sandbox import wire

JOIN_SECONDS = 0.01
JOIN_CHARACTERS = 32 * 1024
# So much may wait for the shim; then the printing code waits.
WAITING_BYTES = 1024 * 1024

_LONE = re.compile("[\ud800-\udfff]")
_KINDS = {stream: kind for kind, stream in wire.STREAMS.items()}
_DESCRIPTORS = {"stdout": 1, "stderr": 2, "traceback": 2}


def encode(text: str) -> bytes:
    """UTF-8; lone surrogates become U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _LONE.sub("\ufffd", text).encode()


class Channel:
    """Sends text and messages in order. Thread-safe; `forked` is true in a child process of the kernel."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lock = threading.RLock()
        self._texts: deque[tuple[str, str]] = deque()
        self._size = 0
        self._flushed = 0.0
        self._waiting = bytearray()
        self._work = threading.Event()
        self._asked = False
        self._interrupt = False
        self._inside = 0
        self._main = threading.main_thread().ident
        self.forked = False
        os.register_at_fork(before=self._before_fork, after_in_parent=self._lock.release, after_in_child=self._in_child)
        threading.Thread(target=self._flush_for_ever, name="nightbook-output", daemon=True).start()

    # An interrupt that arrives while the main thread is in here is raised when it leaves: see `interrupted`.

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:
            self._inside += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if threading.get_ident() == self._main:
            self._inside -= 1
            if self._interrupt and not self._inside:
                self._interrupt = False
                raise KeyboardInterrupt

    def interrupted(self) -> bool:
        """For the signal handler: true when the interrupt is put off until the channel is left."""
        if self._inside:
            self._interrupt = True
        return bool(self._inside)

    def text(self, stream: str, text: str) -> None:
        """Send text; waits while too much is unsent."""
        if self.forked:
            data = encode(text)
            while data:
                data = data[os.write(_DESCRIPTORS[stream], data) :]
            return
        for start in range(0, len(text), JOIN_CHARACTERS):
            piece = text if len(text) <= JOIN_CHARACTERS else text[start : start + JOIN_CHARACTERS]
            self._texts.append((stream, piece))  # without the lock: appending is atomic, and a print loop is hot
            self._size += len(piece)
            # print() writes its text and its newline separately: they should travel together.
            if self._size >= JOIN_CHARACTERS or (
                piece.endswith("\n") and time.monotonic() - self._flushed >= JOIN_SECONDS
            ):
                self.flush()
            if len(self._waiting) > WAITING_BYTES:  # whoever flushed: also the code itself, after each line
                self._wait_for_room()
        self._ask_for_flush()

    def message(self, body: dict[str, Any], wait: bool = True) -> None:
        """Send a message after all text so far. `wait` false never blocks (for a signal handler)."""
        if self.forked:
            return
        frame = wire.message(body)
        with self:
            self._close_text()
            self._waiting += frame
            self._push()
        if wait:
            self._wait_for_room()
        self._ask_for_flush()

    def flush(self) -> None:
        if not self.forked:
            with self:
                self._close_text()
                self._push()

    def _close_text(self) -> None:
        self._size = 0
        self._flushed = time.monotonic()
        texts = self._texts
        while texts:
            stream, text = texts.popleft()
            joined = [text]
            while texts and texts[0][0] == stream:
                joined.append(texts.popleft()[1])
            self._waiting += wire.pack(_KINDS[stream], encode("".join(joined)))

    def _ask_for_flush(self) -> None:
        if not self._asked:
            self._asked = True
            self._work.set()

    def _push(self) -> None:
        """Send what the socket takes now."""
        try:
            while self._waiting:
                with memoryview(self._waiting) as view:
                    sent = self._socket.send(view[: 256 * 1024], socket.MSG_DONTWAIT)
                del self._waiting[:sent]
        except BlockingIOError:
            return
        except OSError:
            os._exit(0)  # the shim is gone, and with it whoever could see this kernel's work

    def _wait_for_room(self) -> None:
        while len(self._waiting) > WAITING_BYTES and not self.forked:
            select.select((), (self._socket,), (), 0.1)
            with self:
                self._push()

    def _flush_for_ever(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        while True:
            self._work.wait()
            self._work.clear()
            time.sleep(JOIN_SECONDS)
            self._asked = False
            while True:
                self.flush()
                if not self._waiting:
                    break
                select.select((), (self._socket,), (), 0.1)

    def _before_fork(self) -> None:
        self.flush()
        self._lock.acquire()

    def _in_child(self) -> None:
        self._lock = threading.RLock()
        self.forked = True
        self._inside = 0
        self._texts.clear()
        self._waiting = bytearray()
        self._socket.close()


class _Bytes(io.RawIOBase):
    """`sys.stdout.buffer`: bytes are decoded across writes."""

    def __init__(self, owner: "OutStream") -> None:
        self._owner = owner
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        data = bytes(data)
        self._owner.write(self._decoder.decode(data))
        return len(data)


class OutStream(io.TextIOBase):
    """`sys.stdout` or `sys.stderr`. `fileno()` is the raw descriptor, for programs started with it."""

    def __init__(self, channel: Channel, name: str) -> None:
        self._channel = channel
        self._name = name
        self.buffer = _Bytes(self)

    @property
    def name(self) -> str:
        return f"<{self._name}>"

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "replace"

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return _DESCRIPTORS[self._name]

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if text:
            self._channel.text(self._name, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self._channel.flush()

    def close(self) -> None:
        """Stays open: a library that closes stdout must not silence the next cell."""


class InStream(io.TextIOBase):
    """`sys.stdin`: a line is asked of the person at the notebook."""

    def __init__(self, ask: Any) -> None:
        self._ask = ask

    encoding = "utf-8"

    def readable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return 0

    def readline(self, _size: int = -1) -> str:  # type: ignore[override]
        return f"{self._ask('', False)}\n"

    def close(self) -> None:
        """Stays open, like stdout."""


def flush_c_stdio() -> None:
    """What C code printed with printf waits in C's own buffer until somebody flushes it."""
    with suppress(Exception):
        import ctypes

        ctypes.CDLL(None).fflush(None)
