"""The data folder: the one place on disk that belongs to this Nightbook, and its version.

Everything below it is private (0700). The version changes only when an older Nightbook could no longer use the
folder; a folder of a newer version is refused, never touched.
"""

import contextlib
import os
import tempfile
from pathlib import Path

VERSION = 1


class DataError(Exception):
    """The data folder cannot be used. The message is one line: the folder, what is wrong, and the way out."""


def prepare_data(data: Path) -> None:
    """Make the folder `data` (0700) if it is missing and check that it can be used.

    Safe to call from several processes at once. Raises DataError when it cannot be written or is of a newer version.
    """
    version = data / "version"
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = version.read_text() if version.exists() else None
        if text is None:
            write_private(version, f"{VERSION}\n")
        else:
            with tempfile.TemporaryFile(dir=data):
                pass  # only to learn that the folder can be written
    except OSError as error:
        raise DataError(
            f"The data folder {data} cannot be used ({error.strerror}): make it writable, "
            "or set NIGHTBOOK_DATA to another folder."
        ) from None
    if text is None:
        return
    if not text.strip().isdecimal():
        raise DataError(f"{version} holds no version number: set NIGHTBOOK_DATA to a folder that Nightbook made.")
    if int(text) > VERSION:
        raise DataError(
            f"The data folder {data} is of version {int(text)}, this Nightbook knows {VERSION}: "
            "update Nightbook, or set NIGHTBOOK_DATA to another folder."
        )


def write_private(path: Path, text: str) -> str:
    """Make `path` (0600) with `text` in one step unless it exists already; return what it holds then."""
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(fd, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(name, path)  # unlike a rename, this never replaces what another process wrote first
    finally:
        os.unlink(name)
    return path.read_text()
