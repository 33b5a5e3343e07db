"""Asks as rows: the one place where an ask is decided, by whoever comes first, on the database's clock.

`verdict IS NULL` in each UPDATE makes the first verdict the only one. A person's counts before `due_at` only, and the
time runs out only from then on, so that the two never meet. The journal tells afterwards (`told`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.store.pools import Db

INBOX = "inbox"  # the place of presence of whoever sees all asks

# Hints for the notebook's engine, which tells the verdict, and for the pages that count asks.
_HINTS = "pg_notify('nightbook_commands', notebook_id), pg_notify('nightbook_asks', notebook_id)"


@dataclass(frozen=True, slots=True)
class Ask:
    """An ask as it stands. Seconds: `age` since it was asked, `left` until it is due, `since` it was decided."""

    notebook_id: str
    id: str
    cell_id: str
    run_id: str
    call_id: str
    digest: str
    body: dict[str, Any]
    asked_at: datetime
    due_at: datetime
    parked: bool
    verdict: str | None
    reason: str | None
    scope: str | None
    message: str | None
    by: str | None
    decided_at: datetime | None
    told: bool
    used: bool
    age: float
    left: float
    since: float | None

    @property
    def open(self) -> bool:
        """Nobody and nothing has decided it."""
        return self.verdict is None


@dataclass(frozen=True, slots=True)
class AskRow:
    """An open ask and the title of its notebook, as lists show it."""

    ask: Ask
    title: str


PARK_SECONDS = 24 * 3600.0
LISTED = 500

_COLUMNS = """
notebook_id, id, cell_id, run_id, call_id, digest, body, asked_at, due_at, parked, verdict, reason, scope, message, by,
decided_at, told, used_at IS NOT NULL AS used, extract(epoch FROM now() - asked_at)::float8 AS age,
extract(epoch FROM due_at - now())::float8 AS left, extract(epoch FROM now() - decided_at)::float8 AS since
"""

UNTOLD = f"SELECT {_COLUMNS} FROM ask WHERE notebook_id = $1 AND NOT told ORDER BY asked_at, id"

OF_RUNS = f"SELECT {_COLUMNS} FROM ask WHERE notebook_id = $1 AND run_id = ANY($2::text[]) ORDER BY asked_at, id"

FIND = f"SELECT {_COLUMNS} FROM ask WHERE id = $1"

DECIDE = f"""
WITH decided AS (
    UPDATE ask SET verdict = $2, reason = 'person', scope = $3, message = $4, by = $5, decided_at = now()
    WHERE id = $1 AND verdict IS NULL AND due_at > now()
    RETURNING {_COLUMNS}
)
SELECT *, {_HINTS} FROM decided
"""

PARK = f"""
WITH parked AS (
    UPDATE ask SET parked = true, due_at = now() + $2::float8 * interval '1 s'
    WHERE id = $1 AND verdict IS NULL AND due_at > now() AND NOT parked
    RETURNING {_COLUMNS}
)
SELECT *, {_HINTS} FROM parked
"""

# What people can still answer, the most urgent first.
OPEN = f"""
SELECT a.*, n.title FROM (
    SELECT {_COLUMNS} FROM ask WHERE verdict IS NULL AND due_at > now() ORDER BY due_at, id LIMIT $1
) AS a JOIN notebook n ON n.id = a.notebook_id ORDER BY a.due_at, a.id
"""

COUNT = "SELECT count(*) FROM ask WHERE verdict IS NULL AND due_at > now()"

# By silence: only once it is due, only while nobody is there, only what was not decided.
TIME_OUT = """
UPDATE ask SET verdict = 'deny', reason = 'timeout', decided_at = now()
WHERE notebook_id = $1 AND id = ANY($2::text[]) AND verdict IS NULL AND due_at <= now()
RETURNING pg_notify('nightbook_asks', notebook_id)
"""

PRESENT = f"""
SELECT EXISTS (SELECT 1 FROM presence
               WHERE place = ANY(ARRAY[$1, '{INBOX}']::text[]) AND can_decide AND until > now())
"""

GIVE_UP = f"""
UPDATE ask SET verdict = 'deny', reason = 'no_operator', decided_at = now()
WHERE notebook_id = $1 AND id = ANY($2::text[]) AND verdict IS NULL AND due_at > now() AND NOT ({PRESENT.strip()[7:]})
RETURNING pg_notify('nightbook_asks', notebook_id)
"""

WITHDRAW = """
UPDATE ask SET verdict = 'deny', reason = $3, decided_at = now()
WHERE notebook_id = $1 AND id = ANY($2::text[]) AND verdict IS NULL
RETURNING pg_notify('nightbook_asks', notebook_id)
"""


def _ask(row: Any) -> Ask:
    values = [row[name] for name in Ask.__dataclass_fields__]
    values[6] = json.loads(values[6])
    return Ask(*values)


async def untold(pool: Db, notebook_id: str) -> list[Ask]:
    """Asks of a notebook that are open, or whose verdict is in no frame yet; oldest first."""
    return [_ask(row) for row in await pool.fetch(UNTOLD, notebook_id)]


async def of_runs(pool: Db, notebook_id: str, run_ids: Sequence[str]) -> list[Ask]:
    """All asks of these runs, oldest first."""
    return [_ask(row) for row in await pool.fetch(OF_RUNS, notebook_id, list(run_ids))]


async def find(pool: Db, ask_id: str) -> Ask | None:
    """The ask of this id."""
    row = await pool.fetchrow(FIND, ask_id)
    return None if row is None else _ask(row)


async def decide(pool: Db, ask_id: str, verdict: str, scope: str | None, message: str | None, by: str) -> Ask | None:
    """A person's verdict. Null when it does not count: decided before, out of time, or no such ask."""
    row = await pool.fetchrow(DECIDE, ask_id, verdict, scope, message, by)
    return None if row is None else _ask(row)


async def park(pool: Db, ask_id: str) -> Ask | None:
    """Gives an open ask a day. Null when it is parked already, decided, out of time, or not there."""
    row = await pool.fetchrow(PARK, ask_id, PARK_SECONDS)
    return None if row is None else _ask(row)


async def all_open(pool: Db, limit: int = LISTED) -> list[AskRow]:
    """What people can still answer, in all notebooks; the most urgent first."""
    return [AskRow(_ask(row), row["title"]) for row in await pool.fetch(OPEN, limit)]


async def count_open(pool: Db) -> int:
    """How many asks people can still answer."""
    count: int = await pool.fetchval(COUNT)
    return count


async def present(pool: Db, notebook_id: str) -> bool:
    """Whether somebody who may decide looks at the notebook or at the inbox now.

    A channel of notification that reaches such a person will count here, too.
    """
    there: bool = await pool.fetchval(PRESENT, notebook_id)
    return there


async def time_out(pool: Db, notebook_id: str, ask_ids: Sequence[str]) -> None:
    """Denies those of the asks that are due."""
    await pool.execute(TIME_OUT, notebook_id, list(ask_ids))


async def give_up(pool: Db, notebook_id: str, ask_ids: Sequence[str]) -> None:
    """Denies the asks for want of an operator, unless one came at this moment."""
    await pool.execute(GIVE_UP, notebook_id, list(ask_ids))


async def withdraw(pool: Db, notebook_id: str, ask_ids: Sequence[str], reason: str) -> None:
    """Denies the asks because nobody needs their answer any more: `cancelled`, or `changed`."""
    await pool.execute(WITHDRAW, notebook_id, list(ask_ids), reason)
