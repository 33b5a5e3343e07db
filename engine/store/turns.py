"""What a turn reads to go on: its replies and its effects, and those of the runs that it continues."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.store.pools import Db


@dataclass(frozen=True, slots=True)
class StoredEffect:
    """An effect: reserved, and settled when `result` is there."""

    run_id: str
    call_id: str
    digest: str
    result: dict[str, Any] | None


REPLIES = "SELECT run_id, round, body FROM reply WHERE notebook_id = $1 AND run_id = ANY($2::text[])"
EFFECTS = "SELECT run_id, call_id, digest, result FROM effect WHERE notebook_id = $1 AND run_id = ANY($2::text[])"

PICTURES = """
SELECT sha256, data FROM blob
WHERE notebook_id = $1 AND sha256 = ANY($2::text[]) AND encoding IS NULL AND length(data) <= $3
"""
PICTURE_BYTES = 4 * 1024 * 1024  # a provider takes no more of one picture
BEGINNINGS = """
SELECT sha256, length(data) AS size, CASE WHEN length(data) <= $3 THEN data ELSE substring(data FOR $4) END AS data
FROM blob WHERE notebook_id = $1 AND sha256 = ANY($2::text[]) AND encoding IS NULL
"""
BEGINNING_BYTES = 256 * 1024  # of a file that is larger than a picture may be


@dataclass(frozen=True, slots=True)
class FileBytes:
    """How many bytes a file has, and those of its beginning; all, when it is no larger than a picture may be."""

    size: int
    data: bytes


async def replies(pool: Db, notebook_id: str, run_ids: Sequence[str]) -> dict[tuple[str, int], dict[str, Any]]:
    """The stored replies of `run_ids` by (run, round); round 0 is how a run began, -n what was said before round n."""
    rows = await pool.fetch(REPLIES, notebook_id, list(run_ids))
    return {(row["run_id"], row["round"]): json.loads(row["body"]) for row in rows}


async def effects(pool: Db, notebook_id: str, run_ids: Sequence[str]) -> dict[str, StoredEffect]:
    """The effects of `run_ids` by call."""
    rows = await pool.fetch(EFFECTS, notebook_id, list(run_ids))
    return {
        row["call_id"]: StoredEffect(
            row["run_id"], row["call_id"], row["digest"], None if row["result"] is None else json.loads(row["result"])
        )
        for row in rows
    }


async def pictures(pool: Db, notebook_id: str, wanted: Sequence[str]) -> dict[str, bytes]:
    """The bytes of blobs of the notebook, by sha256; of those that are too large for a model, nothing."""
    rows = await pool.fetch(PICTURES, notebook_id, list(wanted), PICTURE_BYTES)
    return {row["sha256"]: row["data"] for row in rows}


async def beginnings(pool: Db, notebook_id: str, wanted: Sequence[str]) -> dict[str, FileBytes]:
    """The beginnings of files of the notebook, by sha256."""
    rows = await pool.fetch(BEGINNINGS, notebook_id, list(wanted), PICTURE_BYTES, BEGINNING_BYTES)
    return {row["sha256"]: FileBytes(row["size"], row["data"]) for row in rows}
