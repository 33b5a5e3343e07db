"""Where each member was last, and what happened since: for who comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.frames import Frame

if TYPE_CHECKING:
    from engine.store.pools import Db

TOLD = 5000  # frames that are read of an absence, the newest


@dataclass(frozen=True, slots=True)
class Left:
    """When a member last looked at a notebook, in seconds ago, and the last frame they saw."""

    seq: int
    seconds: float


async def left(pool: Db, notebook_id: str, member: str) -> Left | None:
    """Where `member` was last; null for who was never here."""
    row = await pool.fetchrow(
        """
        SELECT seq, extract(epoch FROM now() - at)::float8 AS seconds FROM visit WHERE notebook_id = $1 AND member = $2
        """,
        notebook_id,
        member,
    )
    return None if row is None else Left(row["seq"], row["seconds"])


async def keep(pool: Db, visits: Sequence[tuple[str, str, int]]) -> None:
    """Keeps that members looked just now: (notebook, member, last frame seen). In one order: two never lock."""
    rows = sorted(visits)
    await pool.execute(
        """
        INSERT INTO visit (notebook_id, member, seq)
        SELECT v.notebook, v.member, v.seq FROM unnest($1::text[], $2::text[], $3::bigint[]) AS v(notebook, member, seq)
        WHERE EXISTS (SELECT 1 FROM notebook WHERE id = v.notebook)
        ON CONFLICT (notebook_id, member) DO UPDATE SET seq = greatest(visit.seq, EXCLUDED.seq), at = now()
        """,
        [notebook for notebook, _, _ in rows],
        [member for _, member, _ in rows],
        [seq for _, _, seq in rows],
    )


# A long absence may have seen a hundred thousand outputs: the index has only what is told, and long bodies stay unread.
SINCE = """
SELECT seq, at, kind, cell_id, run_id, by, command_id,
       CASE WHEN kind IN ('run', 'session') THEN body ELSE '{}'::json END AS body
FROM frame WHERE notebook_id = $1 AND seq > $2
  AND kind IN ('run', 'cell', 'session', 'comment', 'verdict', 'delivered')
ORDER BY seq DESC LIMIT $3
"""


async def since(pool: Db, notebook_id: str, seq: int, limit: int = TOLD) -> list[Frame]:
    """What is told of the frames after `seq`, in order, the newest `limit`; with bodies of runs and sessions only."""
    return [Frame(*row) for row in reversed(await pool.fetch(SINCE, notebook_id, seq, limit))]
