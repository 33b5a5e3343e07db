"""Files by version, and their bytes: the durable copy of what programs and tools made in a notebook's folder.

Rows of `file` are written in steps (`store/steps.py`); here are the bytes, which go first, and what is read back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from engine.store.reading import UnknownNotebook

if TYPE_CHECKING:
    from engine.store.pools import Db

MIME = "application/octet-stream"  # of the bytes as such; what a file is, its row says


async def keep_all(pool: Db, notebook_id: str, items: Sequence[bytes]) -> list[str]:
    """Stores the bytes of files, each once, and returns their digests in the same order."""
    names = [hashlib.sha256(data).hexdigest() for data in items]
    await pool.execute(
        """
        INSERT INTO blob (notebook_id, sha256, mime, data)
        SELECT $1, f.sha256, $2, f.data FROM unnest($3::text[], $4::bytea[]) AS f(sha256, data) ON CONFLICT DO NOTHING
        """,
        notebook_id,
        MIME,
        names,
        list(items),
    )
    return names


async def contents(pool: Db, notebook_id: str, names: Sequence[str]) -> dict[str, bytes]:
    """The bytes of these digests, of those that are there."""
    rows = await pool.fetch(
        "SELECT sha256, data FROM blob WHERE notebook_id = $1 AND sha256 = ANY($2::text[]) AND encoding IS NULL",
        notebook_id,
        list(names),
    )
    return {row["sha256"]: row["data"] for row in rows}


async def last_versions(pool: Db, notebook_id: str, paths: Sequence[str]) -> dict[str, int]:
    """The highest version of each path that ever had one."""
    rows = await pool.fetch(
        """
        SELECT path, max(version) AS version FROM file WHERE notebook_id = $1 AND path = ANY($2::text[]) GROUP BY path
        """,
        notebook_id,
        list(paths),
    )
    return {row["path"]: row["version"] for row in rows}


async def digests(pool: Db, notebook_id: str, paths: Sequence[str]) -> dict[str, set[str]]:
    """What each path ever held, by digest."""
    rows = await pool.fetch(
        """
        SELECT path, array_agg(DISTINCT sha256) AS names FROM file
        WHERE notebook_id = $1 AND path = ANY($2::text[]) AND sha256 IS NOT NULL GROUP BY path
        """,
        notebook_id,
        list(paths),
    )
    return {row["path"]: set(row["names"]) for row in rows}


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One version of a file. `sha256` null: it was deleted then."""

    path: str
    version: int
    sha256: str | None
    bytes: int
    mime: str | None
    by: str | None
    run_id: str | None
    call_id: str | None
    at: datetime


_COLUMNS = "path, version, sha256, bytes, mime, by, run_id, call_id, at"
NEWEST = f"""
SELECT DISTINCT ON (path) {_COLUMNS} FROM file
WHERE notebook_id = $1 AND path > $2 ORDER BY path, version DESC LIMIT $3
"""
HISTORY = f"SELECT {_COLUMNS} FROM file WHERE notebook_id = $1 AND path = $2 ORDER BY version DESC LIMIT $3"
ONE = f"""
SELECT {_COLUMNS} FROM file WHERE notebook_id = $1 AND path = $2 AND ($3::int IS NULL OR version = $3)
ORDER BY version DESC LIMIT 1
"""


async def newest(pool: Db, notebook_id: str, after: str, limit: int) -> list[FileVersion]:
    """The newest version of each file behind path `after`, by path; deleted ones among them."""
    return [_version(row) for row in await pool.fetch(NEWEST, notebook_id, after, limit)]


async def history(pool: Db, notebook_id: str, path: str, limit: int) -> list[FileVersion]:
    """The versions of one file, newest first."""
    return [_version(row) for row in await pool.fetch(HISTORY, notebook_id, path, limit)]


async def version(pool: Db, notebook_id: str, path: str, number: int | None) -> FileVersion | None:
    """One version of a file; `number` null: the newest."""
    row = await pool.fetchrow(ONE, notebook_id, path, number)
    return None if row is None else _version(row)


async def expect_notebook(pool: Db, notebook_id: str) -> None:
    """Raises `UnknownNotebook`."""
    if not await pool.fetchval("SELECT EXISTS (SELECT 1 FROM notebook WHERE id = $1)", notebook_id):
        raise UnknownNotebook(notebook_id)


def _version(row: Any) -> FileVersion:
    return FileVersion(**dict(row))
