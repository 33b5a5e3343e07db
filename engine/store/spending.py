"""What models used, and which one the team chose. Days are UTC, on the database's clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.store.pools import Db

TODAY = """
SELECT coalesce(sum(input + output), 0)::bigint AS tokens, sum(cost) AS cost FROM usage
WHERE at >= date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
"""


@dataclass(frozen=True, slots=True)
class Day:
    """What all turns of a day used; dollars where prices are known."""

    tokens: int
    cost: float | None


async def today(pool: Db) -> Day:
    """What was used since midnight."""
    row = (await pool.fetch(TODAY))[0]
    return Day(row["tokens"], row["cost"])


async def team_model(pool: Db) -> str | None:
    """The model that the team chose; null when it did not."""
    rows = await pool.fetch("SELECT value FROM choice WHERE name = 'model'")
    return rows[0]["value"] if rows else None


async def choose_model(pool: Db, name: str | None) -> None:
    """Has the team choose a model; null takes the choice back."""
    if name is None:
        await pool.fetch("DELETE FROM choice WHERE name = 'model'")
    else:
        await pool.fetch(
            "INSERT INTO choice (name, value) VALUES ('model', $1) ON CONFLICT (name) DO UPDATE SET value = $1", name
        )
