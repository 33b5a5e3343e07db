"""The group-commit writer: what many engines want to commit at the same moment becomes one statement.

One statement is one round trip and one transaction: it locks the notebook rows in id order, hands out numbers where the
epoch and the head still match, inserts the frames, marks commands, and sends the hint. A notebook that another engine
took over falls out of the batch by the UPDATE's own condition; the rest commits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import asyncpg

from engine.frames import Draft, encode

log = logging.getLogger(__name__)

SECOND_STEPS = 40  # so many waiting are worth a second statement beside the one that is being committed
BATCH_STEPS = 500
BATCH_BYTES = 8 * 1024 * 1024
RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)
HINT_NOTEBOOKS = 150  # ids and heads of so many fit a hint of 7,000 bytes; beyond, the hint is "*"


class FencedStep(Exception):
    """Another engine owns the notebook: this one must stop without another word."""


class BadStep(Exception):
    """The database refuses the content of this step. Nothing of it was stored."""


@dataclass(frozen=True, slots=True)
class Projection:
    """What lists show of a notebook, whether it needs an engine (`awake`), whether people would call it changed, and on
    which machine its sandbox lives (null: it has none)."""

    title: str
    state: str
    waiting: int
    cells: int
    archived: bool
    awake: bool
    changed: bool
    place: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A row that a step writes beside its frames. Writing the same row twice is writing it once.

    | table | fields | what happens |
    | --- | --- | --- |
    | `ask` | id, cell_id, run_id, call_id, digest, body, due_seconds, parked | a question, open so many seconds |
    | `ask_changed` | id, and any of told, used, parked, due_seconds | what became of it, but for the verdict |
    | `effect` | run_id, call_id, tool, digest, class | reserved; with `result`: settled at once, nothing was done |
    | `effect_settled` | run_id, call_id, result | settled, once |
    | `reply` | run_id, round, body | a finished reply; 0: how the run began; -n: how round n began, the newest counts |
    | `usage` | run_id, round, attempt, model, input, output, cached, written, cost | what an attempt at a reply used |
    | `timer` | id, due_seconds; null: no timer | the engine is wanted in so many seconds |
    | `file` | path, version, sha256, bytes, mime, by, run_id, call_id | one version of a file |
    """

    table: str
    fields: dict[str, Any]


@dataclass(slots=True)
class Step:
    """What an engine commits at once. `base` is the head it decided on: the frames become base+1, base+2, …"""

    notebook_id: str
    epoch: int
    base: int
    drafts: Sequence[Draft]
    consumed: Sequence[str] = ()
    erase: Sequence[str] = ()
    projection: Projection | None = None
    rows: Sequence[Row] = ()
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(len(draft.body) for draft in self.drafts)


# What few steps write. As JSON, so that a statement has few parameters; each row belongs to a notebook that moved.
ROWS = """, rows AS (
    SELECT r.id AS notebook_id, r.t, r.body AS b FROM unnest($25::text[], $26::text[], $27::jsonb[]) AS r(id, t, body)
    JOIN moved m ON m.id = r.id
), asked AS (
    INSERT INTO ask (notebook_id, id, cell_id, run_id, call_id, digest, body, due_at, parked)
    SELECT notebook_id, b->>'id', b->>'cell_id', b->>'run_id', b->>'call_id', b->>'digest', (b->'body')::json,
           now() + (b->>'due_seconds')::float8 * interval '1 s', coalesce((b->>'parked')::bool, false)
    FROM rows WHERE t = 'ask' ON CONFLICT DO NOTHING RETURNING pg_notify('nightbook_asks', notebook_id)
), ask_changed AS (
    UPDATE ask a SET
        told = a.told OR coalesce((r.b->>'told')::bool, false),
        used_at = CASE WHEN (r.b->>'used')::bool THEN coalesce(a.used_at, now()) ELSE a.used_at END,
        parked = coalesce((r.b->>'parked')::bool, a.parked),
        due_at = CASE WHEN a.verdict IS NULL AND r.b ? 'due_seconds'
                      THEN now() + (r.b->>'due_seconds')::float8 * interval '1 s' ELSE a.due_at END
    FROM rows r WHERE r.t = 'ask_changed' AND a.id = r.b->>'id' AND a.notebook_id = r.notebook_id
), reserved AS (
    INSERT INTO effect (notebook_id, run_id, call_id, tool, digest, class, settled_at, result)
    SELECT notebook_id, b->>'run_id', b->>'call_id', b->>'tool', b->>'digest', b->>'class',
           CASE WHEN b ? 'result' THEN now() END, (b->'result')::json
    FROM rows WHERE t = 'effect' ON CONFLICT DO NOTHING
), settled AS (
    UPDATE effect e SET settled_at = now(), result = (r.b->'result')::json
    FROM rows r WHERE r.t = 'effect_settled' AND e.notebook_id = r.notebook_id AND e.run_id = r.b->>'run_id'
      AND e.call_id = r.b->>'call_id' AND e.settled_at IS NULL
), replied AS (
    INSERT INTO reply (notebook_id, run_id, round, body)
    SELECT notebook_id, b->>'run_id', (b->>'round')::int, (b->'body')::json
    FROM rows WHERE t = 'reply'
    ON CONFLICT (notebook_id, run_id, round) DO UPDATE SET body = EXCLUDED.body WHERE EXCLUDED.round < 0
), spent AS (
    INSERT INTO usage (notebook_id, run_id, round, attempt, model, input, output, cached, written, cost)
    SELECT notebook_id, b->>'run_id', (b->>'round')::int, (b->>'attempt')::int, b->>'model', (b->>'input')::bigint,
           (b->>'output')::bigint, (b->>'cached')::bigint, (b->>'written')::bigint, (b->>'cost')::float8
    FROM rows WHERE t = 'usage' ON CONFLICT DO NOTHING
), timed AS (
    INSERT INTO timer (notebook_id, id, due_at)
    SELECT notebook_id, b->>'id', now() + (b->>'due_seconds')::float8 * interval '1 s'
    FROM rows WHERE t = 'timer' AND b->>'due_seconds' IS NOT NULL
    ON CONFLICT (notebook_id, id) DO UPDATE SET due_at = EXCLUDED.due_at
), untimed AS (
    DELETE FROM timer x USING rows r
    WHERE r.t = 'timer' AND r.b->>'due_seconds' IS NULL AND x.notebook_id = r.notebook_id AND x.id = r.b->>'id'
), filed AS (
    INSERT INTO file (notebook_id, path, version, sha256, bytes, mime, by, run_id, call_id)
    SELECT notebook_id, b->>'path', (b->>'version')::int, b->>'sha256', coalesce((b->>'bytes')::bigint, 0), b->>'mime',
           b->>'by', b->>'run_id', b->>'call_id'
    FROM rows WHERE t = 'file' ON CONFLICT DO NOTHING
)"""

_STEP = """
WITH wanted AS (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::int[],
                         $8::int[], $9::bool[], $10::bool[], $11::bool[], $12::text[])
             AS w(id, epoch, base, k, title, state, waiting, cells, archived, awake, changed, place)
), locked AS (
    SELECT id FROM notebook WHERE id = ANY($1::text[]) ORDER BY id FOR NO KEY UPDATE
), moved AS (
    UPDATE notebook n SET
        head = n.head + w.k,
        title = coalesce(w.title, n.title),
        state = coalesce(w.state, n.state),
        waiting = coalesce(w.waiting, n.waiting),
        cells = coalesce(w.cells, n.cells),
        archived = coalesce(w.archived, n.archived),
        awake = coalesce(w.awake, n.awake),
        place = CASE WHEN w.awake IS NULL THEN n.place ELSE w.place END,
        changed_at = CASE WHEN w.changed THEN now() ELSE n.changed_at END
    FROM wanted w JOIN locked USING (id)
    WHERE n.id = w.id AND n.epoch = w.epoch AND n.head = w.base
    RETURNING n.id, w.base, n.head
), written AS (
    INSERT INTO frame (notebook_id, seq, at, kind, cell_id, run_id, by, command_id, body)
    SELECT f.id, m.base + f.i, now(), f.kind, f.cell_id, f.run_id, f.by, f.command_id, f.body::json
    FROM unnest($13::text[], $14::int[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[])
             AS f(id, i, kind, cell_id, run_id, by, command_id, body)
    JOIN moved m ON m.id = f.id
), used AS (
    UPDATE command c SET
        consumed = true,
        body = CASE WHEN u.erase THEN NULL ELSE c.body END,
        digest = CASE WHEN u.erase THEN NULL ELSE c.digest END
    FROM unnest($21::text[], $22::text[], $23::bool[]) AS u(id, command_id, erase) JOIN moved m ON m.id = u.id
    WHERE c.notebook_id = u.id AND c.id = u.command_id
), hint AS (
    SELECT CASE WHEN count(*) > $24::int THEN '*' ELSE string_agg(id || ':' || head, ' ') END AS payload FROM moved
)%s
SELECT m.id, now() AS at, (SELECT pg_notify('nightbook_frames', payload) FROM hint WHERE payload IS NOT NULL)
FROM moved m
"""
STEP = _STEP % ""
STEP_WITH_ROWS = _STEP % ROWS


def arguments(steps: Sequence[Step]) -> list[Any]:
    """The parameters of `STEP`, column by column; of `STEP_WITH_ROWS` when any step has rows."""
    columns: list[list[Any]] = [[] for _ in range(23)]
    rows = [(step.notebook_id, row.table, encode(row.fields)) for step in steps for row in step.rows]
    for step in steps:
        projection = step.projection
        row: tuple[Any, ...] = (step.notebook_id, step.epoch, step.base, len(step.drafts))
        if projection is None:
            row += (None,) * 8
        else:
            row += (
                projection.title,
                projection.state,
                projection.waiting,
                projection.cells,
                projection.archived,
                projection.awake,
                projection.changed,
                projection.place,
            )
        for column, value in zip(columns[:12], row, strict=True):
            column.append(value)
        for number, draft in enumerate(step.drafts, 1):
            fields = (
                step.notebook_id,
                number,
                draft.kind,
                draft.cell_id,
                draft.run_id,
                draft.by,
                draft.command_id,
                draft.body,
            )
            for column, value in zip(columns[12:20], fields, strict=True):
                column.append(value)
        for command_id in step.consumed:
            columns[20].append(step.notebook_id)
            columns[21].append(command_id)
            columns[22].append(command_id in step.erase)
    return [*columns, HINT_NOTEBOOKS, *([list(column) for column in zip(*rows, strict=True)] if rows else ())]


# "Not now": what says nothing about the statement itself, so that the same one is tried again. So is a full disk.
UNREACHABLE = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # it starts, stops or recovers; the statement was cancelled
    asyncpg.InsufficientResourcesError,  # disk, memory, connections
    asyncpg.PostgresSystemError,
    asyncpg.TransactionRollbackError,
    asyncpg.ReadOnlySQLTransactionError,  # a standby that is not promoted yet
)


Done = Callable[["datetime | Exception"], None]


@dataclass(slots=True)
class Pending:
    """A step on its way. `done` is called once, on the writer's loop, with its time or with what went wrong.

    Setting `withdrawn`, from any thread, means that nobody waits for the answer any more. A step that is already being
    committed is not taken back by it.
    """

    step: Step
    done: Done
    withdrawn: bool = False


class Withdrawn(Exception):
    """The step was withdrawn; whether it was stored is not known."""


class Writer:
    """Takes steps from engines, from any thread, and commits them together. Runs on the store's loop.

    While the database is away it holds what it has and tries again: engines wait, and through them the programs.
    `away` says so.
    """

    def __init__(self, pool: asyncpg.Pool[Any]) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Pending] = deque()
        self._wake = asyncio.Event()
        self._woken = False
        self._busy = 0
        self.away = False
        self.commits = 0

    def submit(self, pending: Pending) -> None:
        """Takes a step. Callable from any thread; many in a row wake the loop once."""
        self._waiting.append(pending)
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._wake.set)

    async def run(self) -> None:
        """Serves for ever: one statement at a time, and a second beside it while many steps wait.

        The two never touch the same notebook: an engine waits for a step's answer before it makes another.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._serve())
            group.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._woken = False
            while (not self._busy or len(self._waiting) >= SECOND_STEPS) and (batch := self._take()):
                self._busy += 1
                try:
                    await self._batch(batch)
                finally:
                    self._busy -= 1

    def _take(self) -> list[Pending]:
        """The steps for one statement, at most one a notebook: a second one builds on the first one's head."""
        batch: list[Pending] = []
        later: list[Pending] = []
        seen: set[str] = set()
        size = 0
        while self._waiting and len(batch) < BATCH_STEPS and size < BATCH_BYTES:
            pending = self._waiting.popleft()
            if pending.withdrawn:
                pending.done(Withdrawn())
            elif pending.step.notebook_id in seen:
                later.append(pending)
            else:
                seen.add(pending.step.notebook_id)
                size += pending.step.size
                batch.append(pending)
        self._waiting.extendleft(reversed(later))
        return batch

    async def _batch(self, batch: list[Pending]) -> None:
        try:
            rows = await self._execute(batch)
        except asyncpg.PostgresError as error:
            if len(batch) == 1:
                batch[0].done(BadStep(f"{type(error).__name__}: {error}"))
                return
            for pending in batch:  # only the one at fault fails
                await self._batch([pending])
            return
        except Withdrawn as error:
            for pending in batch:
                pending.done(error)
            return
        stored = {row["id"]: row["at"] for row in rows}
        for pending in batch:
            if (at := stored.get(pending.step.notebook_id)) is not None:
                pending.done(at)
            else:
                pending.done(await self._explain(pending))

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        """A connection; whatever keeps us from having one says nothing about the step that it is for."""
        try:
            connection = await self._pool.acquire()
        except asyncpg.PostgresError as error:
            raise ConnectionError(f"{type(error).__name__}: {error}") from error
        try:
            yield connection
        finally:
            await self._pool.release(connection)

    async def _execute(self, batch: Sequence[Pending]) -> Sequence[Any]:
        values = arguments([pending.step for pending in batch])
        statement = STEP_WITH_ROWS if any(pending.step.rows for pending in batch) else STEP
        attempt = 0
        while True:
            try:
                async with self._connection() as connection:
                    rows: Sequence[Any] = await connection.fetch(statement, *values)
                self.commits += 1
                self._here()
                return rows
            except UNREACHABLE as error:
                await self._pause(error, attempt, batch)
                attempt += 1

    async def _explain(self, pending: Pending) -> datetime | Exception:
        """The step did not apply: fenced, or committed already by an attempt whose answer was lost.

        Only the database knows which, so it is asked, on whatever connection, until it answers.
        """
        step, attempt = pending.step, 0
        while True:
            try:
                async with self._connection() as connection:
                    row = await connection.fetchrow(
                        "SELECT epoch, head, now() AS at FROM notebook WHERE id = $1", step.notebook_id
                    )
                break
            except UNREACHABLE as error:
                try:
                    await self._pause(error, attempt, [pending])
                except Withdrawn as withdrawn:
                    return withdrawn
                attempt += 1
        self._here()
        if row is not None and row["epoch"] == step.epoch and row["head"] == step.base + len(step.drafts):
            at: datetime = row["at"]
            return at
        return FencedStep(step.notebook_id)

    async def _pause(self, error: BaseException, attempt: int, batch: Sequence[Pending]) -> None:
        """Before another attempt. Raises `Withdrawn` when nobody waits for it any more."""
        if not self.away:
            log.warning("database away, engines wait: %s: %s", type(error).__name__, error)
        self.away = True
        if all(pending.withdrawn for pending in batch):
            raise Withdrawn from None
        if isinstance(error, asyncpg.DiskFullError):  # people see nothing else of it: reading works
            with contextlib.suppress(*UNREACHABLE):
                await self._pool.execute("SELECT pg_notify('nightbook_full', '')")
        await asyncio.sleep(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])

    def _here(self) -> None:
        if self.away:
            log.warning("the database answers again")
        self.away = False
