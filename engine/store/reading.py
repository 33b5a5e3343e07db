"""What anyone may read: frames, snapshots, blobs, the list of notebooks. Reading never needs ownership."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from engine.frames import Frame
from engine.notebook import Notebook, fold
from engine.snapshot import FORMAT, dump, load
from engine.store.ownership import within_reach

if TYPE_CHECKING:
    from engine.store.pools import Db


class UnknownNotebook(Exception):
    """There is no notebook of this id."""

    def __init__(self, notebook_id: str) -> None:
        super().__init__(f"there is no notebook {notebook_id!r}")
        self.notebook_id = notebook_id


@dataclass(frozen=True, slots=True)
class NotebookRow:
    """A line of the list. `changed_seconds`: how long ago it last changed."""

    id: str
    title: str
    state: str
    waiting: int
    cells: int
    archived: bool
    changed_at: datetime
    changed_seconds: float


READ_FRAMES = 5000
READ_BYTES = 4 * 1024 * 1024
FRAME_BYTES = 200  # what a frame weighs besides its body


def _bounded(notebook: str, after: str, rows: str, size: str) -> str:
    """Frames of `notebook` after `after`, in order: at most `rows`, and no more than the one that reaches `size` bytes.

    Bounded in the database, so that a reader never holds more than it asked for.
    """
    return f"""
    SELECT seq, at, kind, cell_id, run_id, by, command_id, body FROM (
        SELECT *, sum(octet_length(body::text) + {FRAME_BYTES}) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) AS total
        FROM (SELECT * FROM frame WHERE notebook_id = {notebook} AND seq > {after} ORDER BY seq LIMIT {rows}) AS next
    ) AS weighed
    WHERE total - octet_length(body::text) - {FRAME_BYTES} < {size} ORDER BY seq
    """


FRAMES = _bounded("$1", "$2", "$3", "$4")

# Each notebook gets its own index range; one round trip serves all that changed.
FRAMES_OF_MANY = f"""
SELECT w.id, f.* FROM unnest($1::text[], $2::bigint[]) AS w(id, after)
CROSS JOIN LATERAL ({_bounded("w.id", "w.after", "$3", "$4")}) AS f
"""

LIST = """
SELECT id, title, state, waiting, cells, archived, changed_at, extract(epoch FROM now() - changed_at)::float8 AS seconds
FROM notebook WHERE archived = $1 ORDER BY changed_at DESC, id LIMIT $2
"""


async def frames(
    pool: Db, notebook_id: str, after: int, limit: int = READ_FRAMES, size: int = READ_BYTES
) -> list[Frame]:
    """Frames after `after`, in order: at most `limit`, about `size` bytes, at least one when there is one."""
    return [Frame(*row) for row in await pool.fetch(FRAMES, notebook_id, after, limit, size)]


RUN_KNOWN = "SELECT EXISTS (SELECT 1 FROM frame WHERE notebook_id = $1 AND kind = 'run' AND run_id = $2)"


async def run_known(pool: Db, notebook_id: str, run_id: str) -> bool:
    """Whether the notebook ever had a run of this id. Reads all its frames: for the few ids that callers make."""
    known: bool = await pool.fetchval(RUN_KNOWN, notebook_id, run_id)
    return known


RUN_STARTED = """
SELECT seq FROM frame
WHERE notebook_id = $1 AND kind = 'run' AND run_id = $2 AND body->>'event' = 'started' ORDER BY seq LIMIT 1
"""


async def output_of_run(pool: Db, notebook_id: str, run_id: str) -> AsyncIterator[str]:
    """All that is stored of what a run printed, piece by piece; what was left out is told in a line of its own."""
    after: int | None = await pool.fetchval(RUN_STARTED, notebook_id, run_id)
    while after is not None:
        found = await frames(pool, notebook_id, after)
        for frame in found:
            if frame.run_id != run_id:
                continue
            if frame.kind == "run" and frame.body.get("event") == "ended":
                return
            if frame.kind == "output":
                if left_out := frame.body.get("left_out"):
                    yield f"\n[{left_out} bytes left out]\n"
                text = frame.body.get("text") or frame.body.get("data", {}).get("text/plain")
                yield text if isinstance(text, str) else ""  # a display too large for a frame is a blob
        after = found[-1].seq if found else None


async def frames_of_many(pool: Db, after: Sequence[tuple[str, int]]) -> dict[str, list[Frame]]:
    """For each (notebook, after): its next frames, as `frames` would give them."""
    found: dict[str, list[Frame]] = {}
    ids, seqs = [key for key, _ in after], [seq for _, seq in after]
    for row in await pool.fetch(FRAMES_OF_MANY, ids, seqs, READ_FRAMES, READ_BYTES):
        found.setdefault(row[0], []).append(Frame(*row[1:]))
    return found


async def head(pool: Db, notebook_id: str) -> int:
    """The last seq. Raises `UnknownNotebook`."""
    value: int | None = await pool.fetchval("SELECT head FROM notebook WHERE id = $1", notebook_id)
    if value is None:
        raise UnknownNotebook(notebook_id)
    return value


async def heads(pool: Db, ids: Sequence[str]) -> dict[str, int]:
    """The last seq of each notebook that exists."""
    rows = await pool.fetch("SELECT id, head FROM notebook WHERE id = ANY($1::text[])", list(ids))
    return {row["id"]: row["head"] for row in rows}


async def engines_away(pool: Db, ids: Sequence[str]) -> set[str]:
    """Those of `ids` that no living worker serves, or could take."""
    rows = await pool.fetch(
        f"""
        SELECT n.id FROM notebook n
        WHERE n.id = ANY($1::text[]) AND NOT EXISTS (
            SELECT 1 FROM worker w WHERE w.until > now()
              AND (w.id = n.owner OR n.owner IS NULL AND {within_reach("w.host")})
        )
        """,
        list(ids),
    )
    return {row["id"] for row in rows}


async def notebooks(pool: Db, archived: bool = False, limit: int = 5000) -> list[NotebookRow]:
    """The list, last changed first."""
    return [
        NotebookRow(
            row["id"],
            row["title"],
            row["state"],
            row["waiting"],
            row["cells"],
            row["archived"],
            row["changed_at"],
            row["seconds"],
        )
        for row in await pool.fetch(LIST, archived, limit)
    ]


async def load_notebook(pool: Db, notebook_id: str) -> Notebook:
    """The folded notebook at its head: snapshot and the frames behind it. Raises `UnknownNotebook`."""
    row = await pool.fetchrow(
        """
        SELECT n.head, s.seq, s.version, s.body FROM notebook n LEFT JOIN snapshot s ON s.notebook_id = n.id
        WHERE n.id = $1
        """,
        notebook_id,
    )
    if row is None:
        raise UnknownNotebook(notebook_id)
    notebook = Notebook(notebook_id)
    if row["body"] is not None and row["version"] == FORMAT:
        notebook = load(json.loads(zlib.decompress(row["body"])))
    while notebook.seq < row["head"]:
        more = await frames(pool, notebook_id, notebook.seq)
        if not more:
            break
        notebook = fold(notebook, more)
    return notebook


async def save_snapshot(pool: Db, notebook: Notebook) -> None:
    """Keeps `notebook` as the snapshot at its seq, unless a newer one is there."""
    body = zlib.compress(json.dumps(dump(notebook), ensure_ascii=False).encode(), 1)
    await pool.execute(
        """
        INSERT INTO snapshot (notebook_id, seq, version, body) VALUES ($1, $2, $3, $4)
        ON CONFLICT (notebook_id) DO UPDATE SET seq = EXCLUDED.seq, version = EXCLUDED.version, body = EXCLUDED.body
        WHERE snapshot.seq < EXCLUDED.seq OR snapshot.version <> EXCLUDED.version
        """,
        notebook.id,
        notebook.seq,
        FORMAT,
        body,
    )


@dataclass(frozen=True, slots=True)
class BlobData:
    """Bytes, what they are, and how they are packed (`gzip` or None)."""

    mime: str
    encoding: str | None
    data: bytes


async def blob(pool: Db, sha256: str) -> BlobData | None:
    """The blob of this digest."""
    row = await pool.fetchrow("SELECT mime, encoding, data FROM blob WHERE sha256 = $1 LIMIT 1", sha256)
    return None if row is None else BlobData(row["mime"], row["encoding"], row["data"])
