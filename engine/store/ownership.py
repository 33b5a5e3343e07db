"""Who owns a notebook: workers that beat, and takeovers by epoch.

Liveness is one row a worker, never one a notebook. `notebook.owner` and `epoch` change only here, one notebook a
transaction. Ownership is a right to write, checked by every step; it is not what keeps programs running.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.store.pools import Db

ALIVE_SECONDS = 15
BEAT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Claim:
    """A taken notebook: the epoch under which its steps count now, and its head."""

    epoch: int
    head: int
    previous: str | None  # the owner before, null when it was released in order


async def beat(pool: Db, worker_id: str, host: str) -> bool:
    """Says that the worker lives. False when others had taken it for dead meanwhile."""
    still: bool = await pool.fetchval(
        f"""
        INSERT INTO worker AS w (id, host, until) VALUES ($1, $2, now() + interval '{ALIVE_SECONDS} s')
        ON CONFLICT (id) DO UPDATE SET until = EXCLUDED.until
        RETURNING (xmax <> 0)
        """,
        worker_id,
        host,
    )
    return still


async def bury(pool: Db, worker_ids: Sequence[str]) -> None:
    """Forgets workers that are known to be dead."""
    await pool.execute("DELETE FROM worker WHERE id = ANY($1::text[])", list(worker_ids))


async def living(pool: Db, host: str) -> list[str]:
    """Workers of `host` whose time has not run out."""
    return [row["id"] for row in await pool.fetch("SELECT id FROM worker WHERE host = $1 AND until > now()", host)]


async def claim(pool: Db, notebook_id: str, worker_id: str) -> Claim | None:
    """Takes the notebook: null when it does not exist or a living worker has it."""
    row = await pool.fetchrow(
        """
        WITH old AS (
            SELECT id, owner FROM notebook n WHERE id = $1 FOR NO KEY UPDATE
        )
        UPDATE notebook n SET owner = $2, epoch = n.epoch + 1 FROM old
        WHERE n.id = old.id AND (
            n.owner IS NULL OR n.owner = $2
            OR NOT EXISTS (SELECT 1 FROM worker w WHERE w.id = n.owner AND w.until > now())
        )
        RETURNING n.epoch, n.head, old.owner
        """,
        notebook_id,
        worker_id,
    )
    return None if row is None else Claim(row["epoch"], row["head"], row["owner"])


async def release(pool: Db, notebook_id: str, epoch: int, only_idle: bool) -> bool:
    """Gives the notebook back. With `only_idle` not while a command waits for it."""
    row = await pool.fetchrow(
        """
        UPDATE notebook n SET owner = NULL WHERE id = $1 AND epoch = $2
          AND NOT ($3 AND EXISTS (SELECT 1 FROM command c WHERE c.notebook_id = n.id AND NOT c.consumed))
        RETURNING id
        """,
        notebook_id,
        epoch,
        only_idle,
    )
    return row is not None


_NEEDS = """(n.awake OR EXISTS (SELECT 1 FROM command c WHERE c.notebook_id = n.id AND NOT c.consumed)
       OR EXISTS (SELECT 1 FROM timer t WHERE t.notebook_id = n.id AND t.due_at <= now())
       OR EXISTS (SELECT 1 FROM ask a WHERE a.notebook_id = n.id AND NOT a.told
                  AND (a.verdict IS NOT NULL OR a.due_at <= now())))"""

WANTED = f"""
SELECT n.id FROM notebook n
WHERE {_NEEDS}
  AND (n.owner IS NULL OR NOT EXISTS (SELECT 1 FROM worker w WHERE w.id = n.owner AND w.until > now()))
LIMIT 1000
"""


async def wanted(pool: Db) -> list[str]:
    """Notebooks that need an engine and have none."""
    return [row["id"] for row in await pool.fetch(WANTED)]


OWNED_WITH_NEWS = """
SELECT n.id FROM notebook n
WHERE n.owner = $1 AND (
    EXISTS (SELECT 1 FROM command c WHERE c.notebook_id = n.id AND NOT c.consumed)
    OR EXISTS (SELECT 1 FROM ask a WHERE a.notebook_id = n.id AND NOT a.told AND a.verdict IS NOT NULL)
)
"""


async def owned_with_news(pool: Db, worker_id: str) -> list[str]:
    """Notebooks of this worker with commands not yet taken, or verdicts not yet told: what a lost hint would say."""
    return [row["id"] for row in await pool.fetch(OWNED_WITH_NEWS, worker_id)]


ORPHANS = f"""
SELECT n.id FROM notebook n WHERE n.owner = $1 AND NOT n.id = ANY($2::text[]) AND {_NEEDS}
"""


async def orphans(pool: Db, worker_id: str, known: Sequence[str]) -> list[str]:
    """Notebooks that need an engine and that this worker owns without having one: the answer to its claim was lost, or
    its engine could not give the notebook back."""
    return [row["id"] for row in await pool.fetch(ORPHANS, worker_id, list(known))]
