"""Commands and new notebooks as rows: the only way in which the web half changes anything."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg

from engine.frames import Draft, clean, encode
from engine.store.reading import UnknownNotebook

if TYPE_CHECKING:
    from engine.store.pools import Db


class IdReused(Exception):
    """The id of a command was used before, for something else."""


@dataclass(frozen=True, slots=True)
class WaitingCommand:
    """A command row that no engine has taken yet, oldest first."""

    id: str
    by: str
    body: dict[str, Any]


def digest(by: str, body: dict[str, Any]) -> bytes:
    """What makes two commands the same: who asks, and every field."""
    text = json.dumps([by, body], sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()


async def ask(pool: Db, notebook_id: str, by: str, command_id: str, body: dict[str, Any]) -> None:
    """Writes a command and hints at it; the same id and body again is the same command.

    Returns after the commit. Raises `UnknownNotebook` or `IdReused`.
    """
    key = digest(by, body)
    try:
        async with pool.acquire() as connection, connection.transaction():
            made = await connection.fetchval(
                """
                INSERT INTO command (notebook_id, id, by, body, digest) VALUES ($1, $2, $3, $4::json, $5)
                ON CONFLICT (notebook_id, id) DO NOTHING RETURNING true
                """,
                notebook_id,
                command_id,
                by,
                encode(body),
                key,
            )
            if made:
                await connection.execute("SELECT pg_notify('nightbook_commands', $1)", notebook_id)
                return
            row = await connection.fetchrow(
                "SELECT digest, by FROM command WHERE notebook_id = $1 AND id = $2", notebook_id, command_id
            )
    except asyncpg.ForeignKeyViolationError:
        raise UnknownNotebook(notebook_id) from None
    # A digest of null was a password's: it is erased, and the same id still means the same command.
    if row is not None and row["digest"] is not None and row["digest"] != key:
        raise IdReused(f"command id {command_id!r} was used before with another body; make a new id")


async def asked_by(pool: Db, notebook_id: str, command_id: str) -> str | None:
    """The member who sent the command of this id; null when nobody did."""
    by: str | None = await pool.fetchval(
        "SELECT by FROM command WHERE notebook_id = $1 AND id = $2", notebook_id, command_id
    )
    return by


class UnknownCell(Exception):
    """There is no cell of this id in the notebook, nor has there ever been one."""

    def __init__(self, notebook_id: str, cell_id: str) -> None:
        super().__init__(f"there is no cell {cell_id!r} in notebook {notebook_id!r}")


CELL_KNOWN = """
SELECT EXISTS (SELECT 1 FROM notebook WHERE id = $1) AS notebook,
       EXISTS (SELECT 1 FROM frame WHERE notebook_id = $1 AND kind = 'cell' AND cell_id = $2)
       OR EXISTS (SELECT 1 FROM command WHERE notebook_id = $1 AND NOT consumed AND body->>'cell_id' = $2
                  AND body->>'kind' = 'add_cell') AS cell
"""


async def expect_cell(pool: Db, notebook_id: str, cell_id: str) -> None:
    """Raises `UnknownNotebook` or `UnknownCell`.

    A cell that was deleted, or is still to be added, counts as known: what a command does to it is the engine's to say.
    """
    row = await pool.fetchrow(CELL_KNOWN, notebook_id, cell_id)
    if row is None or not row["notebook"]:
        raise UnknownNotebook(notebook_id)
    if not row["cell"]:
        raise UnknownCell(notebook_id, cell_id)


async def waiting(pool: Db, notebook_id: str, limit: int = 200) -> list[WaitingCommand]:
    """Commands not yet taken, in the order in which they were asked."""
    rows = await pool.fetch(
        "SELECT id, by, body FROM command WHERE notebook_id = $1 AND NOT consumed ORDER BY ord LIMIT $2",
        notebook_id,
        limit,
    )
    return [WaitingCommand(row["id"], row["by"], json.loads(row["body"])) for row in rows]


async def create(pool: Db, notebook_id: str, title: str, drafts: Sequence[Draft], cells: int) -> int:
    """A new notebook with its first frames; nobody owns it yet. Returns its head."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(
            "INSERT INTO notebook (id, title, head, cells) VALUES ($1, $2, $3, $4)",
            notebook_id,
            clean(title),
            len(drafts),
            cells,
        )
        await connection.executemany(
            """
            INSERT INTO frame (notebook_id, seq, at, kind, cell_id, run_id, by, command_id, body)
            VALUES ($1, $2, now(), $3, $4, $5, $6, $7, $8::json)
            """,
            [
                (notebook_id, seq, item.kind, item.cell_id, item.run_id, item.by, item.command_id, item.body)
                for seq, item in enumerate(drafts, 1)
            ],
        )
        await connection.execute("SELECT pg_notify('nightbook_frames', $1)", f"{notebook_id}:{len(drafts)}")
    return len(drafts)


async def keep_blob(pool: Db, notebook_id: str, mime: str, encoding: str | None, data: bytes) -> str:
    """Stores bytes once and returns their digest."""
    name = hashlib.sha256(data).hexdigest()
    await pool.execute(
        """
        INSERT INTO blob (notebook_id, sha256, mime, encoding, data) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING
        """,
        notebook_id,
        name,
        mime,
        encoding,
        data,
    )
    return name


PRESENCE_SECONDS = 15


async def show_presence(pool: Db, web: str, rows: Sequence[tuple[str, str, bool]]) -> None:
    """Says who looks at what from this web process: (place, member, can decide); valid 15 s."""
    await pool.execute(
        f"""
        WITH gone AS (
            DELETE FROM presence WHERE web = $1
              AND (place, member) NOT IN (SELECT * FROM unnest($2::text[], $3::text[]))
        )
        INSERT INTO presence (web, place, member, can_decide, until)
        SELECT $1, p.place, p.member, p.can_decide, now() + interval '{PRESENCE_SECONDS} s'
        FROM unnest($2::text[], $3::text[], $4::bool[]) AS p(place, member, can_decide)
        ON CONFLICT (web, place, member) DO UPDATE SET can_decide = EXCLUDED.can_decide, until = EXCLUDED.until
        """,
        web,
        [place for place, _, _ in rows],
        [member for _, member, _ in rows],
        [can_decide for _, _, can_decide in rows],
    )


async def present(pool: Db, places: Sequence[str]) -> dict[str, list[tuple[str, bool]]]:
    """Who is at each place now: (member, can decide)."""
    rows = await pool.fetch(
        """
        SELECT place, member, bool_or(can_decide) AS can_decide FROM presence
        WHERE place = ANY($1::text[]) AND until > now() GROUP BY place, member ORDER BY place, member
        """,
        list(places),
    )
    found: dict[str, list[tuple[str, bool]]] = {}
    for row in rows:
        found.setdefault(row["place"], []).append((row["member"], row["can_decide"]))
    return found


async def present_anywhere(pool: Db) -> dict[str, list[str]]:
    """Who is at which place now, for all places with anybody."""
    rows = await pool.fetch(
        """
        SELECT place, array_agg(DISTINCT member ORDER BY member) AS members
        FROM presence WHERE until > now() GROUP BY place
        """
    )
    return {row["place"]: row["members"] for row in rows}


async def forget_presence(pool: Db) -> None:
    """Removes what web processes that died left."""
    await pool.execute("DELETE FROM presence WHERE until < now() - interval '1 minute'")
