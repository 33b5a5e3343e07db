"""Frames between the shim and its Python kernel: one ordered socket, so that print, display and idle cannot overtake.

A frame is one kind byte, the payload's length (4 bytes, big endian) and the payload. Text is not JSON: 200 MB of it
then costs no parsing. Standard library only, used on both sides.
"""

import json
import struct
from collections.abc import Iterator
from typing import Any

STDOUT, STDERR, TRACEBACK, MESSAGE = b"o", b"e", b"t", b"j"
STREAMS = {STDOUT: "stdout", STDERR: "stderr", TRACEBACK: "traceback"}

# A display larger than the kernel lets through (16 MiB) still has to fit with its base64 and JSON escapes.
LARGEST = 64 * 1024 * 1024

_HEADER = struct.Struct("!cI")


class BrokenWire(Exception):
    """The other side sent something that is no frame: it cannot be followed any more."""


def pack(kind: bytes, payload: bytes) -> bytes:
    """One frame, ready to send."""
    return _HEADER.pack(kind, len(payload)) + payload


def message(body: dict[str, Any]) -> bytes:
    """A frame with a JSON object. Lone surrogates travel as escapes; the shim replaces them before they leave it."""
    return pack(MESSAGE, json.dumps(body).encode("ascii"))


class Unpacker:
    """Cuts a byte stream into frames. Holds at most one unfinished frame.

    `whole()` yields `(kind, payload)`; raises `BrokenWire` for an unknown kind or an impossible length.
    """

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> None:
        self._held += data

    def whole(self) -> Iterator[tuple[bytes, bytes]]:
        held, start = self._held, 0
        try:
            while len(held) - start >= _HEADER.size:
                kind, length = _HEADER.unpack_from(held, start)
                if (kind != MESSAGE and kind not in STREAMS) or length > LARGEST:
                    raise BrokenWire(f"not a frame: kind {kind!r}, {length} bytes")
                end = start + _HEADER.size + length
                if end > len(held):
                    break
                payload = bytes(held[start + _HEADER.size : end])
                start = end
                yield kind, payload
        finally:
            del held[:start]
