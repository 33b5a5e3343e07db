"""What a server answered, as a tool's result: text bounded, pictures and other bytes kept as files of the notebook."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.agent.mcp.listing import flattened, misfit

BLOCKS = 200  # of one answer
BYTES = 5 * 1024 * 1024  # of one picture
SUFFIXES = {
    "image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp", "image/svg+xml": ".svg",
    "audio/wav": ".wav", "audio/mpeg": ".mp3", "application/pdf": ".pdf", "application/json": ".json",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes to be kept as a file of the notebook."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Said:
    """An answer: its text, with a line for each file that stands for bytes in it; `failed`: the server says so."""

    text: str
    files: Sequence[Kept]
    failed: bool


def read(server: str, answer: Mapping[str, Any], result_schema: Mapping[str, Any] | None) -> Said:
    """The answer of `server` (decoded JSON). Raises `ValueError` for one that is not what the server promised."""
    pieces: list[str] = []
    files: list[Kept] = []
    blocks = answer.get("content") or []
    for block in blocks[:BLOCKS]:
        text, kept = _block(server, block)
        pieces.append(text)
        if kept is not None:
            files.append(kept)
    if len(blocks) > BLOCKS:
        pieces.append(f"[{len(blocks) - BLOCKS} more parts of the answer are left out]")
    structured, failed = answer.get("structuredContent"), bool(answer.get("isError"))
    if result_schema is not None and not failed:
        wrong = "it gave none" if structured is None else misfit(result_schema, structured)
        if wrong is not None:
            raise ValueError(f"it promised a result of a certain form, and what it gave is not that: {wrong}")
    if structured is not None and not any(piece.strip() for piece in pieces):
        pieces.append(json.dumps(structured, ensure_ascii=False, indent=1))
    text = "\n".join(pieces)
    return Said(text or ("it gives no reason" if failed else "It is done; there is no answer."), files, failed)


def _block(server: str, block: Mapping[str, Any]) -> tuple[str, Kept | None]:
    match block.get("type"):
        case "text":
            return str(block.get("text", "")), None
        case "image" | "audio" as kind:
            return _bytes(server, kind, block.get("data"), block.get("mimeType"))
        case "resource_link":
            about = flattened(str(block.get("description") or block.get("name") or ""), 200)
            return f"[a resource: {flattened(str(block.get('uri')), 500)}{f', {about}' if about else ''}]", None
        case "resource":
            inner = block.get("resource") or {}
            if "text" in inner:
                return f"[{flattened(str(inner.get('uri')), 500)}]\n{inner['text']}", None
            return _bytes(server, "resource", inner.get("blob"), inner.get("mimeType"))
        case other:
            return f"[a part of the answer of an unknown kind: {flattened(str(other), 60)}]", None


def _bytes(server: str, kind: str, data: Any, mime: Any) -> tuple[str, Kept | None]:
    mime = flattened(str(mime or "application/octet-stream"), 100)
    if not isinstance(data, str) or len(data) > BYTES * 4 // 3 + 4:
        return f"[{kind}, {mime}: more than {BYTES // 2**20} MiB, left out]", None
    try:
        found = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return f"[{kind}, {mime}: what it sent cannot be read]", None
    name = hashlib.sha256(found).hexdigest()[:16]
    path = f"from-{server}/{name}{SUFFIXES.get(mime.partition(';')[0].strip().lower(), '.bin')}"
    return f"[{kind}, {mime}, {len(found)} bytes, kept as the file {path}]", Kept(path, found)
