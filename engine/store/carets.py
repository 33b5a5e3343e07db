"""Where people type, as rows of seconds: told by the page's web process, read by all that show the same notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.store.pools import Db

LIFE_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Caret:
    """`at` counts code points of the cell's source; null: the cell as a whole is chosen."""

    page: str
    notebook_id: str
    member: str
    cell_id: str
    at: int | None


async def show(pool: Db, web: str, carets: Sequence[Caret]) -> None:
    """Says where the pages of a web process are, each for 15 s, and hints at their notebooks."""
    await pool.execute(
        f"""
        WITH shown AS (
            INSERT INTO caret (page, web, notebook_id, member, cell_id, at, until)
            SELECT p.page, $1, p.notebook_id, p.member, p.cell_id, p.at, now() + interval '{LIFE_SECONDS} s'
            FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[])
              AS p(page, notebook_id, member, cell_id, at)
            ON CONFLICT (page) DO UPDATE
              SET cell_id = EXCLUDED.cell_id, at = EXCLUDED.at, until = EXCLUDED.until
            RETURNING notebook_id
        )
        SELECT pg_notify('nightbook_carets', notebook_id) FROM (SELECT DISTINCT notebook_id FROM shown) AS moved
        """,
        web,
        [caret.page for caret in carets],
        [caret.notebook_id for caret in carets],
        [caret.member for caret in carets],
        [caret.cell_id for caret in carets],
        [caret.at for caret in carets],
    )


async def hide(pool: Db, pages: Sequence[str]) -> None:
    """The pages are gone."""
    await pool.execute(
        """
        WITH gone AS (DELETE FROM caret WHERE page = ANY($1::text[]) RETURNING notebook_id)
        SELECT pg_notify('nightbook_carets', notebook_id) FROM (SELECT DISTINCT notebook_id FROM gone) AS moved
        """,
        list(pages),
    )


async def shown(pool: Db, notebook_ids: Sequence[str]) -> dict[str, list[Caret]]:
    """Where people are now, by notebook."""
    rows = await pool.fetch(
        """
        SELECT page, notebook_id, member, cell_id, at FROM caret
        WHERE notebook_id = ANY($1::text[]) AND until > now() ORDER BY page
        """,
        list(notebook_ids),
    )
    found: dict[str, list[Caret]] = {notebook_id: [] for notebook_id in notebook_ids}
    for row in rows:
        found[row["notebook_id"]].append(Caret(*row))
    return found


async def forget(pool: Db) -> None:
    """Removes what web processes that died left."""
    await pool.execute("DELETE FROM caret WHERE until < now() - interval '1 minute'")
