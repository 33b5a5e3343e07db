"""How much a server may send: between two of our requests only so much, and no message above a size."""

from __future__ import annotations

MESSAGE_BYTES = 8 * 1024 * 1024  # of one: a picture of 5 MiB in base64 fits
FLOOD_BYTES = 16 * 1024 * 1024
FLOOD_MESSAGES = 5_000


class Flooded(Exception):
    """It sends more than anybody asked for; the message says how much."""


class Flow:
    """Counts what comes since the last request of ours."""

    def __init__(self, flood_bytes: int = FLOOD_BYTES, flood_messages: int = FLOOD_MESSAGES) -> None:
        self._flood_bytes = flood_bytes
        self._flood_messages = flood_messages
        self._bytes = 0
        self._messages = 0

    def asked(self) -> None:
        """A request goes out."""
        self._bytes = self._messages = 0

    def came(self, size: int) -> None:
        """`size` bytes came. Raises `Flooded`."""
        self._bytes += size
        if self._bytes > self._flood_bytes:
            raise Flooded(f"it sent more than {self._flood_bytes // 2**20} MiB for one request")

    def message(self) -> None:
        """A message came. Raises `Flooded`."""
        self._messages += 1
        if self._messages > self._flood_messages:
            raise Flooded(f"it sent more than {self._flood_messages} messages for one request")
