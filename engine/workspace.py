"""A notebook's folder, handled from outside while programs inside may do anything to it.

Every path is walked from a descriptor of the folder, name by name, and no link is followed at any step: what a program
renames or replaces meanwhile can make an access fail, but never lead it elsewhere. Only plain files are opened. A file
is written aside and renamed, so that whoever reads it sees the old or the new, whole, after a crash too.

All functions here block; the engine calls them in worker threads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PATH_BYTES = 1024  # of a path, in UTF-8
NAME_BYTES = 255
LEVELS = 64
OWN_FOLDER = ".nightbook"  # the shim's, for whole outputs
PART = (".nightbook-", ".part")  # how the name of a file that is being written begins and ends

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ASIDE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class WorkspaceError(Exception):
    """The path cannot be used, or what is there is not what was expected; the message names it and says why."""


class Missing(WorkspaceError):
    """There is nothing at the path."""


def shown(path: str) -> str:
    """A path for people and models: on one line, whatever is in it."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in path)


def split(path: str) -> list[str]:
    """The names of a path inside the folder. Raises `WorkspaceError` for one that leads out or is out of bounds.

    `.` and repeated slashes are dropped; the folder itself is `[]`.
    """
    if path.startswith("/"):
        raise WorkspaceError(f"{shown(path)[:200]}: only paths inside the notebook's folder, without a leading slash")
    if "\0" in path:
        raise WorkspaceError("a path cannot hold a NUL character")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise WorkspaceError("a path must be text that UTF-8 can hold") from None
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise WorkspaceError(f"{shown(path)[:200]}: a path cannot go up with '..'; it starts in the notebook's folder")
    if size > PATH_BYTES or any(len(name.encode()) > NAME_BYTES for name in names):
        raise WorkspaceError(f"{shown(path)[:100]}…: a path holds at most {PATH_BYTES} bytes, a name {NAME_BYTES}")
    if len(names) > LEVELS:
        raise WorkspaceError(f"{shown(path)[:100]}…: at most {LEVELS} folders deep")
    return names


def plain(path: str) -> str:
    """The one spelling of a path to a file inside the folder, as it is stored. Raises `WorkspaceError`."""
    names = split(path)
    if not names:
        raise WorkspaceError(f"{shown(path) or 'an empty path'}: that is the folder itself, not a file")
    return "/".join(names)


def open_root(folder: Path) -> int:
    """A descriptor of the notebook's folder. Raises `OSError`."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


@contextlib.contextmanager
def inside(root: int, names: list[str], *, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder that `names` lead to, for a while. `make`: folders that are missing are made.

    Raises `Missing` and `WorkspaceError`.
    """
    at = os.open(".", _FOLDER, dir_fd=root)
    try:
        for depth, name in enumerate(names):
            try:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o755, dir_fd=at)
                inner = os.open(name, _FOLDER, dir_fd=at)
            except OSError as error:
                raise _explained(error, "/".join(names[: depth + 1]), folder=True) from None
            os.close(at)
            at = inner
        yield at
    finally:
        os.close(at)


def _explained(error: OSError, path: str, *, folder: bool = False) -> WorkspaceError:
    path = shown(path)
    match error.errno:
        case errno.ENOENT:
            return Missing(f"there is no {'folder' if folder else 'file'} {path}")
        case errno.ELOOP | errno.EMLINK:
            return WorkspaceError(f"{path} is a link; links are not followed, name the file itself")
        case errno.ENOTDIR:
            return WorkspaceError(f"{path} is not a folder (or a link, and links are not followed)")
        case errno.EISDIR:
            return WorkspaceError(f"{path} is a folder, not a file")
        case errno.ENXIO | errno.ENODEV:
            return WorkspaceError(f"{path} is not a plain file")
    return WorkspaceError(f"{path}: {os.strerror(error.errno or errno.EIO).lower()}")


def _about(at: int, name: str, path: str) -> os.stat_result:
    """What a plain file is. Raises `Missing`, or `WorkspaceError` for anything else than a plain file."""
    try:
        about = os.stat(name, dir_fd=at, follow_symlinks=False)
    except OSError as error:
        raise _explained(error, path) from None
    _expect_plain(about, path)
    return about


def _expect_plain(about: os.stat_result, path: str) -> None:
    mode = about.st_mode
    if stat.S_ISREG(mode):
        return
    if stat.S_ISLNK(mode):
        raise _explained(OSError(errno.ELOOP, ""), path)
    if stat.S_ISDIR(mode):
        raise _explained(OSError(errno.EISDIR, ""), path)
    raise WorkspaceError(f"{shown(path)} is not a plain file")


@dataclass(frozen=True, slots=True)
class Content:
    """A file as it was read: its bytes, mode, and what tells whether it changed."""

    data: bytes
    mode: int
    mark: tuple[int, ...]


def mark_of(about: os.stat_result) -> tuple[int, ...]:
    """What tells whether a file changed, as far as its system says."""
    return (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)


def read(root: int, path: str, limit: int) -> Content:
    """A plain file of at most `limit` bytes. Raises `Missing` and `WorkspaceError`."""
    *folders, name = split(path) or ["."]
    with inside(root, folders) as at:
        _about(at, name, path)
        try:
            descriptor = os.open(name, _READ, dir_fd=at)
        except OSError as error:
            raise _explained(error, path) from None
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        about = os.fstat(file.fileno())
        _expect_plain(about, path)  # it may be another one by now
        if about.st_size > limit:
            raise WorkspaceError(f"{shown(path)} has {about.st_size} bytes; at most {limit} can be read here")
        parts: list[bytes] = []
        left = limit + 1  # it may grow meanwhile
        try:
            while left > 0 and (part := file.read(min(left, 1024 * 1024))):
                parts.append(part)
                left -= len(part)
        except OSError as error:
            raise _explained(error, path) from None
        if left <= 0:
            raise WorkspaceError(f"{shown(path)} grew past {limit} bytes while it was read")
        after = os.fstat(file.fileno())
    # A file that changed under the reader carries a mark that none ever has: it will be read again.
    same = mark_of(after) == mark_of(about) and after.st_mtime_ns < time.time_ns() - 1_000_000_000
    return Content(b"".join(parts), stat.S_IMODE(about.st_mode), mark_of(about) if same else ())


def exists(root: int, path: str) -> bool:
    """Whether anything is at the path, a link or a folder too."""
    try:
        *folders, name = split(path) or ["."]
        with inside(root, folders) as at:
            os.stat(name, dir_fd=at, follow_symlinks=False)
    except (OSError, WorkspaceError):
        return False
    return True


def is_plain(root: int, path: str) -> bool:
    """Whether a plain file is at the path."""
    try:
        *folders, name = split(path) or ["."]
        with inside(root, folders) as at:
            _about(at, name, path)
    except WorkspaceError:
        return False
    return True


class Staged:
    """A file written aside, in the folder where it belongs: `put` renames it into its place, `drop` takes it away."""

    def __init__(self, at: int, part: str, name: str, path: str, durable: bool) -> None:
        self._at, self._part, self._name, self._path, self._durable = at, part, name, path, durable

    def put(self) -> None:
        """From now on the path has the new content. Raises `WorkspaceError`."""
        try:
            os.replace(self._part, self._name, src_dir_fd=self._at, dst_dir_fd=self._at)
            if self._durable:
                os.fsync(self._at)
        except OSError as error:
            self._unlink()
            raise _explained(error, self._path) from None
        finally:
            self._close()

    def drop(self) -> None:
        """Nothing happened. Harmless after `put`."""
        if self._at >= 0:
            self._unlink()
            self._close()

    def _unlink(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._part, dir_fd=self._at)

    def _close(self) -> None:
        at, self._at = self._at, -1
        os.close(at)


def stage(root: int, path: str, data: bytes, mode: int | None = None, *, durable: bool = True) -> Staged:
    """Writes `data` aside, to be put at `path`. `mode` null: that of the file it replaces, else 0644.

    `durable`: on the disk before it returns, so that a crash of the machine leaves the old or the new.

    Raises `WorkspaceError`, for a path that holds something else than a plain file too.
    """
    *folders, name = split(plain(path))
    if (folders or [name])[0] == OWN_FOLDER:
        raise WorkspaceError(f"{OWN_FOLDER} is Nightbook's own folder: choose another place")
    with inside(root, folders, make=True) as found:
        with contextlib.suppress(Missing):
            about = _about(found, name, path)
            mode = stat.S_IMODE(about.st_mode) if mode is None else mode
        at = os.dup(found)
    part = f"{PART[0]}{secrets.token_hex(8)}{PART[1]}"
    staged = Staged(at, part, name, path, durable)
    try:
        descriptor = os.open(
            part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=at
        )
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            os.fchmod(file.fileno(), 0o644 if mode is None else mode & 0o777)
            if durable:
                os.fsync(file.fileno())
    except OSError as error:
        staged.drop()
        raise _explained(error, path) from None
    except BaseException:
        staged.drop()
        raise
    return staged


def names_in(root: int, path: str, limit: int) -> tuple[list[tuple[str, str, int]], bool]:
    """What is in a folder: (name, kind, bytes), by name, at most `limit`; and whether that is all.

    `kind` is file, folder, link or other. Raises `Missing` and `WorkspaceError`.
    """
    found: list[tuple[str, str, int]] = []
    with inside(root, split(path)) as at, os.scandir(at) as entries:
        for entry in entries:
            if len(found) >= WALK_ENTRIES:
                break
            if entry.is_symlink():
                kind = "link"
            elif entry.is_dir(follow_symlinks=False):
                kind = "folder"
            else:
                kind = "file" if entry.is_file(follow_symlinks=False) else "other"
            size = 0
            if kind == "file":
                with contextlib.suppress(OSError):
                    size = entry.stat(follow_symlinks=False).st_size
            found.append((entry.name.encode("utf-8", "replace").decode(), kind, size))
    found.sort()
    return found[:limit], len(found) <= limit


def remove(root: int, path: str) -> None:
    """Takes a plain file away. One that is gone already: no effect. Raises `WorkspaceError`."""
    *folders, name = split(plain(path))
    with contextlib.suppress(Missing), inside(root, folders) as at:
        _about(at, name, path)
        try:
            os.unlink(name, dir_fd=at)
        except OSError as error:
            raise _explained(error, path) from None


def sweep(root: int, path: str) -> None:
    """Takes away what was written aside, beside `path`, by a process that died."""
    *folders, _ = split(path) or ["."]
    with contextlib.suppress(OSError, WorkspaceError), inside(root, folders) as at:
        for name in os.listdir(at):
            if name.startswith(PART[0]) and name.endswith(PART[1]):
                os.unlink(name, dir_fd=at)


@dataclass(frozen=True, slots=True)
class Entry:
    """A plain file that a walk found."""

    path: str
    size: int
    mark: tuple[int, ...]


@dataclass(slots=True)
class Walk:
    """What a walk found: files in the order of their paths, and what it passed over, path to reason.

    `whole` is false when it stopped at a bound: a file that is not among `files` may be there all the same.
    """

    files: list[Entry] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    whole: bool = True


IGNORED = frozenset(
    (
        ".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".cache", ".mypy_cache", ".pytest_cache",
        ".ruff_cache", ".ipynb_checkpoints", ".ipython", ".npm", ".tox", ".nox", OWN_FOLDER,
    )
)  # fmt: skip
WALK_FILES = 20_000
WALK_ENTRIES = 100_000  # names looked at
WALK_SECONDS = 20.0
SKIPPED = 200  # reasons told by one walk


def walk(root: int, start: str = "") -> Walk:
    """The plain files below `start`, at most `WALK_FILES`; what is passed over (ignored folders, links …) is told.

    Raises `Missing` or `WorkspaceError` when `start` is no folder. What vanishes meanwhile is not told.
    """
    found = Walk()
    names = split(start)
    with inside(root, names) as at:
        _Walker(found).folder(at, "/".join(names), len(names))
    return found


class _Walker:
    def __init__(self, found: Walk) -> None:
        self._found = found
        self._named: set[str] = set()  # each name of an ignored folder is told once, where it was found first
        self._looked = 0
        self._until = time.monotonic() + WALK_SECONDS

    def _skip(self, path: str, reason: str) -> None:
        if len(self._found.skipped) < SKIPPED:
            self._found.skipped[path] = reason

    def _over(self) -> bool:
        if (
            len(self._found.files) >= WALK_FILES
            or self._looked >= WALK_ENTRIES
            or time.monotonic() > self._until
        ):  # fmt: skip
            self._found.whole = False
        return not self._found.whole

    def folder(self, at: int, path: str, depth: int) -> None:
        """Files of a folder first, then its folders, each in the order of their names."""
        folders: list[str] = []
        for name, about in self._entries(at):
            here = f"{path}/{name}" if path else name
            if stat.S_ISDIR(about.st_mode):
                folders.append(name)
            elif not _is_utf8(here):
                self._skip(here.encode("utf-8", "replace").decode(), "its name is not UTF-8 text")
            elif stat.S_ISLNK(about.st_mode):
                self._skip(here, "a link, and links are not kept")
            elif not stat.S_ISREG(about.st_mode):
                self._skip(here, "not a plain file")
            elif len(here.encode()) > PATH_BYTES:
                self._skip(here.encode()[: PATH_BYTES - 3].decode("utf-8", "ignore") + "…", "its path is too long")
            elif self._over():
                return
            else:
                self._found.files.append(Entry(here, about.st_size, mark_of(about)))
        for name in folders:
            here = f"{path}/{name}" if path else name
            if name in IGNORED:
                if name not in self._named and name != OWN_FOLDER:
                    self._named.add(name)
                    self._skip(here, f"{name} folders are not kept")
            elif not _is_utf8(here):
                self._skip(here.encode("utf-8", "replace").decode(), "its name is not UTF-8 text")
            elif depth + 2 > LEVELS or len(here.encode()) > PATH_BYTES - 2:
                self._skip(here.encode()[: PATH_BYTES - 3].decode("utf-8", "ignore"), "nested too deep")
            elif self._over():
                return
            else:
                with contextlib.suppress(OSError):  # gone, or replaced by a link
                    inner = os.open(name, _FOLDER, dir_fd=at)
                    try:
                        self.folder(inner, here, depth + 1)
                    finally:
                        os.close(inner)

    def _entries(self, at: int) -> list[tuple[str, os.stat_result]]:
        entries: list[tuple[str, os.stat_result]] = []
        with contextlib.suppress(OSError), os.scandir(at) as found:
            for entry in found:
                self._looked += 1
                if self._looked > WALK_ENTRIES:
                    self._found.whole = False
                    break
                if entry.name.startswith(PART[0]) and entry.name.endswith(PART[1]):
                    continue
                with contextlib.suppress(OSError):
                    entries.append((entry.name, entry.stat(follow_symlinks=False)))
        return sorted(entries, key=lambda item: item[0])


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
