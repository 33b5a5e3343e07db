"""Questions to a notebook's kernel as rows: the halves share nothing but the database, and no frame tells of these.

A question lives for seconds. The web half writes one and hints at it; the worker that has the notebook awake takes it,
and writes the answer into the row, which the web half takes out. The table is not logged: a crash may lose it whole.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.frames import encode

if TYPE_CHECKING:
    from engine.store.pools import Db

LIFE_SECONDS = 2  # a question older than this is not worth an answer


@dataclass(frozen=True, slots=True)
class Question:
    """`kind` is complete or inspect; `at` counts code points of `source`."""

    id: int
    kind: str
    source: str
    at: int


async def ask(pool: Db, notebook_id: str, kind: str, source: str, at: int) -> int:
    """Writes a question and hints at it; returns its id."""
    made: int = await pool.fetchval(
        """
        WITH made AS (INSERT INTO question (notebook_id, kind, body) VALUES ($1, $2, $3::json) RETURNING id)
        SELECT made.id FROM made, pg_notify('nightbook_questions', $1)
        """,
        notebook_id,
        kind,
        encode({"source": source, "at": at}),
    )
    return made


async def take(pool: Db, notebook_id: str) -> list[Question]:
    """The questions about a notebook that nobody has taken yet, oldest first. Each is taken once."""
    rows = await pool.fetch(
        f"""
        UPDATE question SET taken = true
        WHERE notebook_id = $1 AND NOT taken AND at > now() - interval '{LIFE_SECONDS} s' RETURNING id, kind, body
        """,
        notebook_id,
    )
    found = []
    for row in rows:
        body = json.loads(row["body"])
        found.append(Question(row["id"], row["kind"], body["source"], body["at"]))
    return sorted(found, key=lambda question: question.id)


async def answer(pool: Db, question_id: int, body: dict[str, Any]) -> None:
    """Writes the answer and hints at it. Nobody may be waiting any more."""
    await pool.execute(
        """
        WITH told AS (UPDATE question SET answer = $2::json WHERE id = $1 RETURNING id)
        SELECT pg_notify('nightbook_answers', told.id::text) FROM told
        """,
        question_id,
        encode(body),
    )


async def take_answer(pool: Db, question_id: int) -> dict[str, Any]:
    """Takes the question out, with its answer; empty when there is none."""
    text = await pool.fetchval("DELETE FROM question WHERE id = $1 RETURNING answer", question_id)
    found: dict[str, Any] = json.loads(text) if text else {}
    return found


async def forget(pool: Db) -> None:
    """Removes what web processes that died left."""
    await pool.execute("DELETE FROM question WHERE at < now() - interval '1 minute'")
