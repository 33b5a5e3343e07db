"""From the shim's records to frames: what a program did, in the journal's words.

Pure but for one thing: bytes too large for a frame go to the blob store first, so that the frame can name them.
"""

from __future__ import annotations

import base64
import json
import os
from collections import deque
from pathlib import Path
from typing import Any, Protocol

import trio

from engine import decide, images, workspace
from engine.frames import Draft, clean, draft
from engine.notebook import Notebook, Run, preview

INLINE_BYTES = 32 * 1024  # of a display's values that its frame carries; a page loads the others when they come near
QUEUE_BYTES = 1024 * 1024  # of records that wait for a commit, before the sandbox is not read any more
STEP_BYTES = 512 * 1024  # of records in one step
WHOLE_LIMIT = 96 * 1024 * 1024

Record = dict[str, Any]


class BlobStore(Protocol):
    async def keep_blob(self, notebook_id: str, mime: str, encoding: str | None, data: bytes) -> str: ...


def size_of(record: Record) -> int:
    """Bytes a record roughly weighs."""
    if "text" in record:
        return len(record["text"]) + 100
    if "data" in record:
        return sum(len(value) if isinstance(value, str) else 200 for value in record["data"].values()) + 100
    return 100


class Records:
    """A bounded queue between the reader and the session's loop. `put` waits while it is full."""

    def __init__(self) -> None:
        self._queue: deque[tuple[int, Record]] = deque()
        self._bytes = 0
        self._room = trio.Event()

    def __bool__(self) -> bool:
        return bool(self._queue)

    async def put(self, batch: list[Record]) -> None:
        for record in batch:
            size = size_of(record)
            self._queue.append((size, record))
            self._bytes += size
        while self._bytes > QUEUE_BYTES:
            self._room = trio.Event()
            await self._room.wait()

    def take(self) -> list[Record]:
        """The records for one step."""
        batch: list[Record] = []
        size = 0
        while self._queue and (not batch or size + self._queue[0][0] <= STEP_BYTES):
            weight, record = self._queue.popleft()
            size += weight
            batch.append(record)
        self._bytes -= size
        self._room.set()
        return batch


async def frames_of(
    notebook: Notebook, sandbox_id: str, batch: list[Record], blobs: BlobStore, folder: Path
) -> list[Draft]:
    """The frames of `batch`, in its order. `folder` is the notebook's, where a run's whole output lies."""
    drafts: list[Draft] = []
    current = notebook
    done = notebook.cursor.get(sandbox_id, 0)
    for record in batch:
        if record["n"] <= done:  # told twice by a reconnect
            continue
        src = (sandbox_id, record["n"])
        if record["t"] == "kernel":
            drafts.append(
                draft("session", event="sandbox", kernel=record["state"], reason=record.get("reason"), src=src)
            )
            continue
        run = current.runs.get(record.get("run", ""))
        if run is None:
            continue
        made = await _of_run(notebook, run, record, src, blobs, folder)
        if record["t"] == "ended":
            made += decide.after_end(preview(current, made), run, _status(run, record))
        current = preview(current, made)
        drafts += made
    return drafts


def _status(run: Run, record: Record) -> str:
    """A run that was asked to stop and did not finish by itself was cancelled, however its program took it."""
    status: str = record["status"]
    return "cancelled" if run.state == "cancelling" and status == "error" else status


async def _of_run(
    notebook: Notebook, run: Run, record: Record, src: tuple[str, int], blobs: BlobStore, folder: Path
) -> list[Draft]:
    ids: dict[str, Any] = {"run_id": run.id, "cell_id": run.cell_id}
    match record["t"]:
        case "out":
            return [
                draft(
                    "output",
                    text=record["text"],
                    stream=record["stream"],
                    left_out=record.get("left_out") or None,
                    src=src,
                    **ids,
                )
            ]
        case "data":
            return [
                draft(
                    "output",
                    data=await _bundle(notebook.id, record["data"], blobs),
                    metadata=_metadata(record) or None,
                    result=record.get("result") or None,
                    display=record.get("display"),
                    update=record.get("update") or None,
                    displays_left_out=record.get("left_out") or None,
                    src=src,
                    **ids,
                )
            ]
        case "clear":
            return [draft("output", clear=True, src=src, **ids)]
        case "input":
            return [
                draft(
                    "input",
                    event="asked",
                    input=record["input"],
                    prompt=record.get("prompt", ""),
                    password=bool(record.get("password")),
                    src=src,
                    **ids,
                )
            ]
        case "ended":
            whole = await _whole(notebook.id, record.get("whole"), blobs, folder)
            status = _status(run, record)
            reason = record.get("reason")
            return [
                decide.end(
                    run,
                    status,
                    reason if status != "cancelled" else reason or "stopped",
                    exit=record.get("exit"),
                    ms=record.get("ms"),
                    whole=whole,
                    src=src,
                )
            ]
    return []


async def _bundle(notebook_id: str, data: dict[str, Any], blobs: BlobStore) -> dict[str, Any]:
    """A MIME bundle that fits a frame: a value too large for it becomes {"blob": sha256, "bytes": size}."""
    bundle: dict[str, Any] = {}
    room = INLINE_BYTES
    for mime, value in sorted(clean(data).items(), key=lambda item: len(str(item[1]))):
        text = value if isinstance(value, str) else json.dumps(value)
        size = len(text.encode())
        if size <= room:
            bundle[mime], room = value, room - size
            continue
        content = _bytes(mime, value) or text.encode()
        sha256 = await blobs.keep_blob(notebook_id, mime, None, content)
        bundle[mime] = {"blob": sha256, "bytes": len(content)}
    return bundle


def _bytes(mime: str, value: Any) -> bytes | None:
    """The bytes that an image's value stands for: kernels send them in base64, but SVG as it is."""
    if not mime.startswith("image/") or not isinstance(value, str):
        return None
    if mime == "image/svg+xml":
        return value.encode()
    try:
        return base64.b64decode(value)
    except ValueError:
        return None


def _metadata(record: Record) -> dict[str, Any]:
    """A display's metadata, with what its images say of their size."""
    metadata = dict(record.get("metadata") or {})
    metadata.pop(images.SIZES, None)
    sizes = {}
    for mime, value in record["data"].items():
        if isinstance(value, str) and mime.startswith("image/"):
            content = _bytes(mime, value[:87_400] if mime != "image/svg+xml" else value[:65_536])
            if content is not None and (sides := images.sides(mime, content)) is not None:
                sizes[mime] = sides
    return {**metadata, images.SIZES: sizes} if sizes else metadata


async def _whole(
    notebook_id: str, whole: dict[str, Any] | None, blobs: BlobStore, folder: Path
) -> dict[str, Any] | None:
    """Keeps a run's whole output, which the shim left in a file of the workspace, and names it."""
    if not whole:
        return None
    data = await trio.to_thread.run_sync(_read_file, folder, whole["path"])
    if data is None:
        return None
    sha256 = await blobs.keep_blob(notebook_id, "text/plain; charset=utf-8", "gzip", data)
    return {"sha256": sha256, "bytes": whole["bytes"]}


def _read_file(folder: Path, path: str) -> bytes | None:
    """The bytes of `path` in the workspace; None when it is not a plain file of a size we made."""
    try:
        root = workspace.open_root(folder)
    except OSError:
        return None
    try:
        return workspace.read(root, path, WHOLE_LIMIT).data
    except workspace.WorkspaceError:
        return None
    finally:
        os.close(root)
