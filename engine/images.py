"""What an image is and how large, read from its first bytes: pages keep room for it, models are told its type."""

from __future__ import annotations

import re
import struct

SIZES = "nightbook.sizes"  # the key in a display's metadata: {mime: [width, height]} in pixels

_SVG = re.compile(r"<svg\b[^>]{0,4000}>", re.IGNORECASE)
_SIDE = r"""\b{}\s*=\s*["']\s*([0-9.]{{1,9}})\s*(px|pt|)\s*["']"""


PICTURE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")  # that models take


def picture_type(data: bytes) -> str | None:
    """Which of `PICTURE_TYPES` these bytes are, whatever they are called; null for anything else."""
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return "image/png"
    if data[:3] == b"\xff\xd8\xff":
        return "image/jpeg"
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def sides(mime: str, data: bytes) -> tuple[int, int] | None:
    """Width and height in pixels; None when these bytes do not say."""
    try:
        if mime == "image/png" and data[:8] == b"\x89PNG\r\n\x1a\n" and data[12:16] == b"IHDR":
            width, height = struct.unpack(">II", data[16:24])
            return width, height
        if mime == "image/gif" and data[:4] == b"GIF8":
            width, height = struct.unpack("<HH", data[6:10])
            return width, height
        if mime == "image/jpeg" and data[:2] == b"\xff\xd8":
            return _jpeg(data)
        if mime == "image/svg+xml":
            return _svg(data[:65536].decode("utf-8", "replace"))
    except (struct.error, IndexError):
        pass
    return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """From the frame header (SOF0 to SOF15 but for the tables among them)."""
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 1 if marker == 0xFF else 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    return None


def _svg(text: str) -> tuple[int, int] | None:
    tag = _SVG.search(text)
    if tag is None:
        return None
    found = []
    for side in ("width", "height"):
        if (value := re.search(_SIDE.format(side), tag.group())) is None:
            return None
        found.append(round(float(value.group(1)) * (4 / 3 if value.group(2) == "pt" else 1)))
    return (found[0], found[1]) if all(found) else None
