"""Who owns a notebook: workers that beat, and takeovers by epoch.

Liveness is one row a worker, never one a notebook. `notebook.owner` and `epoch` change only here, one notebook a
transaction. Ownership is a right to write, checked by every step; it is not what keeps programs running.

A live sandbox can be joined on its own machine alone (`notebook.place`). So workers elsewhere leave its notebook alone
as long as that machine shows a sign of life, and `PRECEDENCE_SECONDS` longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.store.pools import Db

ALIVE_SECONDS = 15
BEAT_SECONDS = 5.0
PRECEDENCE_SECONDS = 60
REMEMBERED_HOURS = 24  # a worker that nobody saw for so long is forgotten


@dataclass(frozen=True, slots=True)
class Claim:
    """A taken notebook: the epoch under which its steps count now, and its head."""

    epoch: int
    head: int
    previous: str | None  # the owner before, null when it was released in order


async def beat(pool: Db, worker_id: str, host: str) -> bool:
    """Says that the worker lives. False when others could take it for dead meanwhile, and at its first time."""
    still: bool = await pool.fetchval(
        f"""
        WITH old AS (SELECT until > now() AS lived FROM worker WHERE id = $1)
        INSERT INTO worker AS w (id, host, until) VALUES ($1, $2, now() + interval '{ALIVE_SECONDS} s')
        ON CONFLICT (id) DO UPDATE SET until = EXCLUDED.until
        RETURNING coalesce((SELECT lived FROM old), false)
        """,
        worker_id,
        host,
    )
    return still


async def bury(pool: Db, worker_ids: Sequence[str]) -> None:
    """Says of workers that they are dead. The row stays a while: it tells when their machine was seen last."""
    await pool.execute("UPDATE worker SET until = now() WHERE id = ANY($1::text[]) AND until > now()", list(worker_ids))
    await pool.execute(f"DELETE FROM worker WHERE until < now() - interval '{REMEMBERED_HOURS} h'")


async def living(pool: Db, host: str) -> list[str]:
    """Workers of `host` whose time has not run out."""
    return [row["id"] for row in await pool.fetch("SELECT id FROM worker WHERE host = $1 AND until > now()", host)]


def within_reach(host: str) -> str:
    """SQL: whether the machine `host`, an expression, can join the sandbox of notebook `n`, or nobody else can."""
    return f"""(n.place IS NULL OR n.place = {host} OR NOT EXISTS (
        SELECT 1 FROM worker there WHERE there.host = n.place
          AND there.until > now() - interval '{PRECEDENCE_SECONDS} s'))"""


_WITHIN_REACH = within_reach("(SELECT w.host FROM worker w WHERE w.id = $1)")


async def claim(pool: Db, notebook_id: str, worker_id: str) -> Claim | None:
    """Takes the notebook: null when it does not exist, a living worker has it, or its sandbox lives elsewhere."""
    row = await pool.fetchrow(
        f"""
        WITH old AS (
            SELECT id, owner FROM notebook n WHERE id = $2 FOR NO KEY UPDATE
        )
        UPDATE notebook n SET owner = $1, epoch = n.epoch + 1 FROM old
        WHERE n.id = old.id AND (
            n.owner = $1
            OR (n.owner IS NULL OR NOT EXISTS (SELECT 1 FROM worker w WHERE w.id = n.owner AND w.until > now()))
            AND {_WITHIN_REACH}
        )
        RETURNING n.epoch, n.head, old.owner
        """,
        worker_id,
        notebook_id,
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
  AND {_WITHIN_REACH}
LIMIT 1000
"""


async def wanted(pool: Db, worker_id: str) -> list[str]:
    """Notebooks that need an engine, have none, and may be taken by this worker."""
    return [row["id"] for row in await pool.fetch(WANTED, worker_id)]


async def elsewhere(pool: Db, notebook_ids: Sequence[str], host: str) -> dict[str, int]:
    """Those of the notebooks that another machine has, or had since, with their epochs: what still runs for them on
    `host` was told as lost, and may be ended."""
    rows = await pool.fetch(
        """
        SELECT n.id, n.epoch FROM notebook n LEFT JOIN worker w ON w.id = n.owner
        WHERE n.id = ANY($1::text[]) AND (w.host <> $2 OR n.owner IS NULL AND n.place IS DISTINCT FROM $2)
        """,
        list(notebook_ids),
        host,
    )
    return {row["id"]: row["epoch"] for row in rows}


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
