"""The durable copy of a notebook's folder: content-addressed, versioned, in PostgreSQL.

The folder is what programs see; what survives is here. A tool's file is committed, its bytes first, before it is put
into the folder and before the call is settled. What programs write is found by a walk at the end of each run, and every
`KEEP_SECONDS` while one goes on; only what changed is read. Everything is bounded, and what is not kept is named.
"""

from __future__ import annotations

import logging
import mimetypes
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import trio

from engine import workspace
from engine.diff import unified
from engine.filling import FILE_BYTES, FileStore, Filling, Host, batches, current, digest, is_live
from engine.frames import Draft, draft
from engine.store.steps import Row

__all__ = ["FILE_BYTES", "KEEP_SECONDS", "Cause", "ChangedMeanwhile", "Files", "Placed", "digest", "is_live", "mime_of"]

log = logging.getLogger(__name__)

KEEP_SECONDS = 60.0
MIDWAY_BYTES = 256 * 1024 * 1024  # kept while runs go on, until one ends
KEEP_BYTES = 1024 * 1024 * 1024  # kept at once, at the end of a run
COMPARED_BYTES = 512 * 1024  # of texts whose changed lines are counted


class ChangedMeanwhile(Exception):
    """The file is not what it was when it was read, or asked about."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Who or what made a version: a member, a run of a cell, a call of a turn."""

    by: str | None = None
    cell_id: str | None = None
    run_id: str | None = None
    call_id: str | None = None
    command_id: str | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """A file that is about to be put in its place; `drafts` and `rows` make its version, none when nothing changed."""

    path: str
    version: int
    drafts: Sequence[Draft]
    rows: Sequence[Row]


def mime_of(path: str, data: bytes) -> str:
    """What a file probably is, by its name, else by its beginning."""
    guess, encoding = mimetypes.guess_type(path, strict=False)
    if guess is not None and encoding is None:
        return guess
    if b"\0" in data[:8192]:
        return "application/octet-stream"
    try:
        data[:8192].decode()
    except UnicodeDecodeError as error:
        return "application/octet-stream" if error.start < len(data[:8192]) - 4 else "text/plain"
    return "text/plain"


class Files:
    """The files of one notebook, for its engine. One at a time makes versions, so their numbers follow each other."""

    def __init__(self, notebook_id: str, folder: Path, host: Host, store: FileStore) -> None:
        self._id = notebook_id
        self._folder = folder
        self._host = host
        self._store = store
        self._placing = trio.Lock()
        self._keeping = trio.Lock()
        self._marks: dict[str, tuple[int, ...]] = {}  # path -> what tells that it has not changed since it was kept
        self._midway = 0
        self._filling = Filling(notebook_id, folder, host, store)

    # The folder

    async def woke(self, before: int, epoch: int) -> bool:
        """The engine woke, as the one of `epoch`; the last one before it had the epoch `before`, here or elsewhere.

        Returns whether that was elsewhere, as far as the folder can tell.
        """
        return await self._filling.woke(before, epoch)

    async def root(self) -> int:
        """A descriptor of the folder, which is made, and brought up to date first. The caller closes it."""
        async with self._placing:
            await self._filling.ready()
            return await trio.to_thread.run_sync(workspace.open_root, self._folder)

    async def fill(self) -> None:
        """Makes the folder, and fills it when it is empty: to be called before a sandbox starts in it."""
        async with self._placing:
            await self._filling.ready(anew=True)

    def in_use(self) -> None:
        """A sandbox lives in the folder: what is missing there, programs took away."""
        self._filling.in_use()

    # One file

    @asynccontextmanager
    async def placing(
        self, path: str, data: bytes, cause: Cause, *, mode: int | None = None, over: str | None = None
    ) -> AsyncIterator[Placed]:
        """Puts a file: staged on entering, then the caller commits `drafts` and `rows`, put into the folder on leaving.

        `over`: the digest that must be there now, "" for no file, null for any. Raises `ChangedMeanwhile`,
        `workspace.WorkspaceError`. When the caller's commit fails, the folder is as it was.
        """
        path = workspace.plain(path)
        if len(data) > FILE_BYTES:
            raise workspace.WorkspaceError(
                f"{workspace.shown(path)} would have {len(data)} bytes; at most {FILE_BYTES} are kept"
            )
        root = await self.root()
        try:
            async with self._placing:
                before = await trio.to_thread.run_sync(current, root, path)
                if over is not None and over != ("" if before is None else digest(before)):
                    raise ChangedMeanwhile(f"{workspace.shown(path)} changed meanwhile: read it again")
                staged = await trio.to_thread.run_sync(workspace.stage, root, path, data, mode)
                try:
                    placed = await self._version(path, data, before, cause)
                    await self._filling.mean(path, digest(data))
                    yield placed
                    with trio.CancelScope(shield=True):
                        await trio.to_thread.run_sync(staged.put)
                except trio.Cancelled:
                    raise  # perhaps committed: what was meant stays on record
                except BaseException:
                    self._filling.done()
                    raise
                else:
                    self._filling.done()
                finally:
                    staged.drop()
        finally:
            os.close(root)

    async def put(
        self, path: str, data: bytes, cause: Cause, *, mode: int | None = None, over: str | None = None
    ) -> Placed:
        """`placing`, committed in a step of its own."""
        async with self.placing(path, data, cause, mode=mode, over=over) as placed:
            if placed.drafts:
                await self._host.write(placed.drafts, placed.rows)
        return placed

    async def made_by(self, path: str, call_id: str) -> int | None:
        """The version of the file that this call made, if that is its newest; null otherwise."""
        os.close(await self.root())  # what a crash left beside the folder is put there first
        known = self._host.notebook.files.get(workspace.plain(path))
        if known is None or known.get("call") != call_id or not is_live(known):
            return None
        version: int = known["version"]
        return version

    async def _version(self, path: str, data: bytes, before: bytes | None, cause: Cause) -> Placed:
        [name] = await self._store.keep_files(self._id, [data])
        known = self._host.notebook.files.get(path)
        if known is not None and is_live(known) and known["sha256"] == name and not known.get("skipped"):
            again: list[Draft] = []
            if cause.command_id is not None:  # whoever asked is to see an answer
                again = [_drafted(path, known["version"], name, data, cause, None, None)[0]]
            return Placed(path, known["version"], again, ())
        number = (await self._last_versions([path]))[path] + 1
        added, removed = _counted(path, before, data)
        made = _drafted(path, number, name, data, cause, added, removed)
        return Placed(path, number, [made[0]], [made[1]])

    async def _last_versions(self, paths: Sequence[str]) -> dict[str, int]:
        """The last version of each path, 0 for a new one. What the fold forgot, the rows know."""
        known = self._host.notebook.files
        last = {path: known[path].get("version") or 0 for path in paths if path in known}
        if unknown := [path for path in paths if not last.get(path)]:
            last |= dict.fromkeys(unknown, 0) | await self._store.last_versions(self._id, unknown)
        return last

    # What programs made

    async def keep(self, cause: Cause, *, ends: bool) -> None:
        """Keeps what changed in the folder since the last time. `ends`: a run just ended, so bounds start anew.

        Raises nothing about what is in the folder: what cannot be kept is named in a frame, once.
        """
        async with self._keeping:
            if not await trio.to_thread.run_sync(self._folder.is_dir):
                return
            root = await self.root()
            try:
                found = await trio.to_thread.run_sync(workspace.walk, root)
                await self._keep(root, found, cause, ends)
            except (OSError, workspace.WorkspaceError) as error:
                log.warning("notebook %s: its folder cannot be read: %s", self._id, error)
            finally:
                os.close(root)
            if ends:
                self._midway = 0

    async def keep_one(self, path: str, cause: Cause) -> bool:
        """Keeps one file as it is now; false when it is not there, or cannot be kept. Raises `WorkspaceError`."""
        path = workspace.plain(path)
        root = await self.root()
        try:
            return await self._keep_batch(root, [path], cause) == 1
        finally:
            os.close(root)

    async def _keep(self, root: int, found: workspace.Walk, cause: Cause, ends: bool) -> None:
        skipped = dict(found.skipped)
        if not found.whole:
            skipped["."] = f"more than {workspace.WALK_FILES} files: the rest is not kept"
        room = KEEP_BYTES if ends else MIDWAY_BYTES - self._midway
        changed: dict[str, int] = {}
        for entry in found.files:
            if self._marks.get(entry.path) == entry.mark:
                continue
            if entry.size > FILE_BYTES:
                skipped[entry.path] = f"larger than {FILE_BYTES // 2**20} MiB"
            elif entry.size > room:
                if ends:
                    skipped[entry.path] = f"more than {KEEP_BYTES // 2**20} MiB changed at once; kept next time"
            else:
                room -= entry.size
                changed[entry.path] = entry.size
        seen = {entry.path for entry in found.files}
        for path in self._marks.keys() - seen:
            del self._marks[path]
        for batch in batches(changed, changed.__getitem__):
            await self._keep_batch(root, batch, cause)
        if not ends:
            self._midway += sum(changed.values())
        await self._tell_gone(root, [path for path in self._host.notebook.files if path not in seen], skipped, cause)
        await self._tell_skipped(skipped, cause)

    async def _keep_batch(self, root: int, batch: Sequence[str], cause: Cause) -> int:
        """Keeps those that are still there; returns how many."""
        async with self._placing:
            read = await trio.to_thread.run_sync(_read_all, root, batch)
            names = await self._store.keep_files(self._id, [content.data for content in read.values()])
            known = self._host.notebook.files
            fresh = {
                path: name
                for path, name in zip(read, names, strict=True)
                if not (path in known and is_live(known[path]) and known[path]["sha256"] == name)
                or known[path].get("skipped")
            }
            last = await self._last_versions(list(fresh))
            made = [
                _drafted(path, last[path] + 1, name, read[path].data, cause, None, None) for path, name in fresh.items()
            ]
            if made:
                await self._host.write([item for item, _ in made], [row for _, row in made])
            for path, content in read.items():
                self._marks[path] = content.mark
            return len(read)

    async def _tell_gone(self, root: int, paths: list[str], skipped: dict[str, str], cause: Cause) -> None:
        """Files that are there no more: a version without bytes."""
        known = self._host.notebook.files
        paths = [path for path in paths if path not in skipped and not known[path].get("deleted")]
        for batch in batches(paths, lambda _: 0):
            async with self._placing:
                gone = await trio.to_thread.run_sync(_gone, root, batch)
                last = await self._last_versions(gone)
                drafts, rows = [], []
                for path in gone:
                    number = last[path] + 1 if is_live(self._host.notebook.files[path]) else None
                    drafts.append(
                        draft(
                            "file", path=path, version=number, deleted=True,
                            by=cause.by, cell_id=cause.cell_id, run_id=cause.run_id,
                        )
                    )  # fmt: skip
                    if number is not None:
                        rows.append(_row(path, number, None, 0, None, cause))
                if drafts:
                    await self._host.write(drafts, rows)

    async def _tell_skipped(self, skipped: dict[str, str], cause: Cause) -> None:
        known = self._host.notebook.files
        fresh = [path for path, reason in skipped.items() if known.get(path, {}).get("skipped") != reason]
        for batch in batches(fresh[: workspace.SKIPPED], lambda _: 0):
            await self._host.write(
                [
                    draft(
                        "file", path=path, skipped=skipped[path],
                        by=cause.by, cell_id=cause.cell_id, run_id=cause.run_id,
                    )
                    for path in batch
                ]
            )  # fmt: skip


def _drafted(
    path: str, version: int, name: str, data: bytes, cause: Cause, added: int | None, removed: int | None
) -> tuple[Draft, Row]:
    mime = mime_of(path, data)
    made = draft(
        "file", path=path, version=version, bytes=len(data), sha256=name, mime=mime, added=added, removed=removed,
        call=cause.call_id, by=cause.by, cell_id=cause.cell_id, run_id=cause.run_id, command_id=cause.command_id,
    )  # fmt: skip
    return made, _row(path, version, name, len(data), mime, cause)


def _row(path: str, version: int, name: str | None, size: int, mime: str | None, cause: Cause) -> Row:
    return Row(
        "file",
        {
            "path": path, "version": version, "sha256": name, "bytes": size, "mime": mime,
            "by": cause.by, "run_id": cause.run_id, "call_id": cause.call_id,
        },
    )  # fmt: skip


def _counted(path: str, before: bytes | None, after: bytes) -> tuple[int | None, int | None]:
    """Lines added and removed, where both are texts of a size that can be compared."""
    before = before or b""
    if len(before) > COMPARED_BYTES or len(after) > COMPARED_BYTES or b"\0" in before or b"\0" in after:
        return None, None
    try:
        found = unified(path, before.decode(), after.decode())
    except UnicodeDecodeError:
        return None, None
    return found.added, found.removed


# In worker threads


def _read_all(root: int, paths: Sequence[str]) -> dict[str, workspace.Content]:
    """The files that are still there and still plain."""
    found = {}
    for path in paths:
        with suppress(workspace.WorkspaceError):
            found[path] = workspace.read(root, path, FILE_BYTES)
    return found


def _gone(root: int, paths: Sequence[str]) -> list[str]:
    return [path for path in paths if not workspace.is_plain(root, path)]
