"""A notebook's folder, brought up to what the durable copy says before anybody looks at it.

An empty folder is filled. One that an engine on another machine has overtaken meanwhile gets what changed there. And
what a crash left between the commit of a file and its place in the folder is put there. Beside the folder, where no
program can reach them, lie three marks: `ID.epoch`, the last engine that used it; `ID.filling`, a filling that is not
over; `ID.placing`, the file that is about to be put.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import trio

from engine import workspace
from engine.frames import Draft
from engine.notebook import Notebook
from engine.store.steps import Row

log = logging.getLogger(__name__)

FILE_BYTES = 64 * 1024 * 1024  # of one file that is kept
BATCH_FILES = 200
BATCH_BYTES = 8 * 1024 * 1024


class Host(Protocol):
    """The engine, as files need it."""

    @property
    def notebook(self) -> Notebook:
        """As it stands now."""

    async def write(self, drafts: Sequence[Draft], rows: Sequence[Row] = ()) -> None:
        """Commits one step."""


class FileStore(Protocol):
    """Where bytes are kept."""

    async def keep_files(self, notebook_id: str, items: Sequence[bytes]) -> list[str]: ...

    async def file_contents(self, notebook_id: str, names: Sequence[str]) -> dict[str, bytes]: ...

    async def file_digests(self, notebook_id: str, paths: Sequence[str]) -> dict[str, set[str]]: ...

    async def last_versions(self, notebook_id: str, paths: Sequence[str]) -> dict[str, int]: ...


def is_live(file: dict[str, Any]) -> bool:
    """Whether a file, as the fold has it, has a newest version with bytes."""
    return file.get("sha256") is not None and not file.get("deleted")


def digest(data: bytes) -> str:
    """The name of bytes in the store."""
    return hashlib.sha256(data).hexdigest()


def batches(paths: Iterable[str], size: Callable[[str], int]) -> Iterator[list[str]]:
    """Paths in batches of at most `BATCH_FILES` files and, but for a single one, `BATCH_BYTES` bytes."""
    batch: list[str] = []
    total = 0
    for path in paths:
        if batch and (len(batch) >= BATCH_FILES or total + size(path) > BATCH_BYTES):
            yield batch
            batch, total = [], 0
        batch.append(path)
        total += size(path)
    if batch:
        yield batch


class Filling:
    """Brings one folder up to date. Its methods are called under the lock of `Files`, one at a time."""

    def __init__(self, notebook_id: str, folder: Path, host: Host, store: FileStore) -> None:
        self._id = notebook_id
        self._folder = folder
        self._host = host
        self._store = store
        self._epoch: int | None = None
        self._stale = False
        self._filled = False
        self._recovered = False

    async def woke(self, before: int, epoch: int) -> bool:
        """As `Files.woke`: a folder that the engine of `before` did not use is overtaken."""
        self._epoch = epoch
        self._stale = await trio.to_thread.run_sync(_overtaken, self._folder, before, epoch)
        return self._stale

    def in_use(self) -> None:
        """As `Files.in_use`."""
        self._filled = True

    async def ready(self, *, anew: bool = False) -> None:
        """Sees to it that the folder is there and up to date. `anew`: looks although it was so before."""
        if anew or not self._filled or not self._folder.is_dir():
            await self._fill()
            self._filled = True
        if not self._recovered:
            await self._recover()
            self._recovered = True
        if self._stale:
            await self._refresh()
            self._stale = False
        if self._epoch is not None:
            await trio.to_thread.run_sync(_stamp, self._folder, self._epoch)
            self._epoch = None

    async def mean(self, path: str, name: str) -> None:
        """Puts on record that the file is about to be put, should the process die now."""
        await trio.to_thread.run_sync(_mean, self._folder, path, name)

    def done(self) -> None:
        """It was put, or will not be."""
        _meaning(self._folder).unlink(missing_ok=True)

    async def _fill(self) -> None:
        live = {path: file["sha256"] for path, file in self._host.notebook.files.items() if is_live(file)}
        sizes = {path: self._host.notebook.files[path].get("bytes") or 0 for path in live}
        if not await trio.to_thread.run_sync(_begin_filling, self._folder, bool(live)):
            return
        log.info("notebook %s: filling its folder with %d files", self._id, len(live))
        root = await trio.to_thread.run_sync(workspace.open_root, self._folder)
        try:
            for batch in batches(live, sizes.__getitem__):
                found = await self._store.file_contents(self._id, [live[path] for path in batch])
                files = [(path, found[live[path]]) for path in batch if live[path] in found]
                await trio.to_thread.run_sync(_write_missing, root, files)
        finally:
            os.close(root)
        await trio.to_thread.run_sync(_end_filling, self._folder)

    async def _recover(self) -> None:
        """A crash between the commit of a file and its place in the folder left it beside: it is put there now.

        Else the next walk would find the old one, and take it for what programs want.
        """
        meant = await trio.to_thread.run_sync(_meant, self._folder)
        if meant is None:
            return
        path, name = meant
        known = self._host.notebook.files.get(path)
        data = None
        if known is not None and is_live(known) and known["sha256"] == name:
            data = (await self._store.file_contents(self._id, [name])).get(name)
        root = await trio.to_thread.run_sync(workspace.open_root, self._folder)
        try:
            await trio.to_thread.run_sync(_put_again, root, path, data)
        finally:
            os.close(root)
        await trio.to_thread.run_sync(_meaning(self._folder).unlink, True)

    async def _refresh(self) -> None:
        """What an engine elsewhere changed is changed here. Content that nobody ever kept is left alone: the next walk
        makes it a version."""
        known = {path: file for path, file in self._host.notebook.files.items() if file.get("version")}
        log.info("notebook %s: another machine used it meanwhile; looking at %d files", self._id, len(known))
        root = await trio.to_thread.run_sync(workspace.open_root, self._folder)
        try:
            for batch in batches(known, lambda path: known[path].get("bytes") or 0):
                wanted = {path: known[path]["sha256"] if is_live(known[path]) else None for path in batch}
                kept = await self._store.file_digests(self._id, batch)
                late = await trio.to_thread.run_sync(_late, root, wanted, kept)
                found = await self._store.file_contents(self._id, [name for name in late.values() if name])
                await trio.to_thread.run_sync(_replace, root, late, found)
        finally:
            os.close(root)


# In worker threads


def current(root: int, path: str) -> bytes | None:
    """The file as it is in the folder; null when there is none. Raises `WorkspaceError`. Blocks."""
    try:
        return workspace.read(root, path, FILE_BYTES).data
    except workspace.Missing:
        return None


def _filling(folder: Path) -> Path:
    """The mark that a folder is being filled. It stands beside the folder, where no program can reach it."""
    return folder.with_name(f"{folder.name}.filling")


def _begin_filling(folder: Path, files: bool) -> bool:
    """Makes the folder. Whether it is to be filled: it is empty, or filling it was broken off."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not files:
        return False
    if _filling(folder).exists():
        return True
    with os.scandir(folder) as found:
        if any(entry.name != workspace.OWN_FOLDER for entry in found):
            return False
    _filling(folder).touch()
    return True


def _write_missing(root: int, files: Sequence[tuple[str, bytes]]) -> None:
    for path, data in files:
        try:
            if not workspace.exists(root, path):
                workspace.stage(root, path, data, durable=False).put()
        except workspace.WorkspaceError as error:
            log.warning("not filled: %s", error)


def _meaning(folder: Path) -> Path:
    """Which file is about to be put into the folder, beside it."""
    return folder.with_name(f"{folder.name}.placing")


def _mean(folder: Path, path: str, name: str) -> None:
    part = folder.with_name(f"{folder.name}.placing.part")
    with part.open("w") as file:
        json.dump([path, name], file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(_meaning(folder))


def _meant(folder: Path) -> tuple[str, str] | None:
    try:
        path, name = json.loads(_meaning(folder).read_text())
    except FileNotFoundError:
        return None
    return path, name


def _put_again(root: int, path: str, data: bytes | None) -> None:
    workspace.sweep(root, path)
    try:
        if data is not None and current(root, path) != data:
            workspace.stage(root, path, data).put()
    except workspace.WorkspaceError as error:
        log.warning("not put into the folder: %s", error)


def _end_filling(folder: Path) -> None:
    os.sync()
    _filling(folder).unlink(missing_ok=True)


def _marker(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.epoch")


def _stamp(folder: Path, epoch: int) -> None:
    _marker(folder).write_text(str(epoch))


def _overtaken(folder: Path, before: int, epoch: int) -> bool:
    """Whether another machine's engine came between; if not, the folder is this engine's from now on."""
    if not folder.is_dir():
        return False
    with suppress(FileNotFoundError, ValueError):
        if int(_marker(folder).read_text()) != before:
            return True
    _stamp(folder, epoch)
    return False


def _late(root: int, wanted: Mapping[str, str | None], kept: Mapping[str, Set[str]]) -> dict[str, str | None]:
    """The files whose content here is an old version, or that are missing: path to the digest they should have."""
    late: dict[str, str | None] = {}
    for path, name in wanted.items():
        with suppress(workspace.WorkspaceError):
            data = current(root, path)
            here = None if data is None else digest(data)
            if here != name and (here is None or here in kept.get(path, ())):
                late[path] = name
    return late


def _replace(root: int, late: Mapping[str, str | None], found: Mapping[str, bytes]) -> None:
    for path, name in late.items():
        try:
            if name is None:
                workspace.remove(root, path)
            elif name in found:
                workspace.stage(root, path, found[name]).put()
        except workspace.WorkspaceError as error:
            log.warning("not brought up to date: %s", error)
