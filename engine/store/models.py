"""The tables. Migrations make them; a test holds the two against each other.

Queries are plain SQL on asyncpg in this folder: an object mapper on the hot path would cost more than the query.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    text,
)
from sqlmodel import Field, SQLModel


def _time(default: bool = True) -> Column[datetime]:
    return Column(DateTime(timezone=True), nullable=False, server_default=text("now()") if default else None)


class Notebook(SQLModel, table=True):
    """One row a notebook: who owns it, how far its journal goes, and what lists show of it.

    `awake`: it needs an engine though nobody asks (a run is not over, or its sandbox is up). `place`: the machine where
    its sandbox is up, by `engine.machine`; null when none is. No index on anything that a step writes, and room on the
    page (fillfactor), so that a step is a heap-only update.
    """

    __tablename__ = "notebook"
    __table_args__ = ({"postgresql_with": {"fillfactor": "70"}},)
    id: str = Field(sa_column=Column(String(32), primary_key=True))
    title: str = Field(sa_column=Column(Text, nullable=False))
    head: int = Field(sa_column=Column(BigInteger, nullable=False, server_default="0"))
    epoch: int = Field(sa_column=Column(BigInteger, nullable=False, server_default="0"))
    owner: str | None = Field(default=None, sa_column=Column(Text))
    place: str | None = Field(default=None, sa_column=Column(Text))
    awake: bool = Field(sa_column=Column(Boolean, nullable=False, server_default=text("false")))
    state: str = Field(sa_column=Column(Text, nullable=False, server_default="idle"))
    waiting: int = Field(sa_column=Column(Integer, nullable=False, server_default="0"))
    cells: int = Field(sa_column=Column(Integer, nullable=False, server_default="0"))
    archived: bool = Field(sa_column=Column(Boolean, nullable=False, server_default=text("false")))
    created_at: datetime = Field(sa_column=_time())
    changed_at: datetime = Field(sa_column=_time())


class Frame(SQLModel, table=True):
    """The journal. Append-only; `seq` counts from 1 in a notebook, without gaps.

    Without a foreign key: rows are only inserted by joining the notebook row that gave them their numbers.
    """

    __tablename__ = "frame"
    __table_args__ = (
        Index(
            "frame_told",
            "notebook_id",
            "seq",
            postgresql_where=text("kind IN ('run', 'cell', 'session', 'comment', 'verdict', 'delivered')"),
        ),
    )
    notebook_id: str = Field(sa_column=Column(String(32), primary_key=True))
    seq: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    at: datetime = Field(sa_column=_time(default=False))
    kind: str = Field(sa_column=Column(Text, nullable=False))
    cell_id: str | None = Field(default=None, sa_column=Column(Text))
    run_id: str | None = Field(default=None, sa_column=Column(Text))
    by: str | None = Field(default=None, sa_column=Column(Text))
    command_id: str | None = Field(default=None, sa_column=Column(Text))
    body: str = Field(sa_column=Column(JSON, nullable=False))


class Command(SQLModel, table=True):
    """What members asked for. `ord` gives the order; `digest` tells a repeated id from a reused one.

    The body and digest of a password are erased when it has been delivered.
    """

    __tablename__ = "command"
    __table_args__ = (Index("command_waiting", "notebook_id", "ord", postgresql_where=text("NOT consumed")),)
    notebook_id: str = Field(sa_column=Column(String(32), ForeignKey("notebook.id"), primary_key=True))
    id: str = Field(sa_column=Column(String(64), primary_key=True))
    ord: int = Field(sa_column=Column(BigInteger, Identity(always=True), nullable=False))
    by: str = Field(sa_column=Column(Text, nullable=False))
    body: str | None = Field(default=None, sa_column=Column(JSON))
    digest: bytes | None = Field(default=None, sa_column=Column(LargeBinary))
    consumed: bool = Field(sa_column=Column(Boolean, nullable=False, server_default=text("false")))
    at: datetime = Field(sa_column=_time())


class Snapshot(SQLModel, table=True):
    """A fold kept at `seq`, zlib-compressed JSON of format `version`: only to save reading, never the truth."""

    __tablename__ = "snapshot"
    notebook_id: str = Field(sa_column=Column(String(32), ForeignKey("notebook.id"), primary_key=True))
    seq: int = Field(sa_column=Column(BigInteger, nullable=False))
    version: int = Field(sa_column=Column(Integer, nullable=False))
    body: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class Blob(SQLModel, table=True):
    """Bytes too large for a frame, by what they are; `notebook_id` says whose right opens them."""

    __tablename__ = "blob"
    notebook_id: str = Field(sa_column=Column(String(32), ForeignKey("notebook.id"), primary_key=True))
    sha256: str = Field(sa_column=Column(String(64), primary_key=True))
    mime: str = Field(sa_column=Column(Text, nullable=False))
    encoding: str | None = Field(default=None, sa_column=Column(Text))
    data: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    at: datetime = Field(sa_column=_time())


class Worker(SQLModel, table=True):
    """A worker process and until when it counts as alive (database clock)."""

    __tablename__ = "worker"
    id: str = Field(sa_column=Column(String(64), primary_key=True))
    host: str = Field(sa_column=Column(Text, nullable=False))
    until: datetime = Field(sa_column=_time(default=False))


class Presence(SQLModel, table=True):
    """Who looks at what, from which web process, until when (database clock)."""

    __tablename__ = "presence"
    web: str = Field(sa_column=Column(String(64), primary_key=True))
    place: str = Field(sa_column=Column(String(32), primary_key=True))
    member: str = Field(sa_column=Column(String(64), primary_key=True))
    can_decide: bool = Field(sa_column=Column(Boolean, nullable=False))
    until: datetime = Field(sa_column=_time(default=False))


class Ask(SQLModel, table=True):
    """A tool call that waits for a person. The first verdict stands; `told`: the journal says so, too.

    `body` is what people are shown (the body of the `ask` frame); `digest` covers what exactly would be done.
    `used_at`: an approval is used once.
    """

    __tablename__ = "ask"
    __table_args__ = (
        Index("ask_open", "due_at", postgresql_where=text("verdict IS NULL")),
        Index("ask_untold", "notebook_id", postgresql_where=text("NOT told")),
        Index("ask_run", "notebook_id", "run_id"),
    )
    notebook_id: str = Field(sa_column=Column(String(32), ForeignKey("notebook.id"), nullable=False))
    id: str = Field(sa_column=Column(String(64), primary_key=True))
    cell_id: str = Field(sa_column=Column(Text, nullable=False))
    run_id: str = Field(sa_column=Column(Text, nullable=False))
    call_id: str = Field(sa_column=Column(Text, nullable=False))
    digest: str = Field(sa_column=Column(Text, nullable=False))
    body: str = Field(sa_column=Column(JSON, nullable=False))
    asked_at: datetime = Field(sa_column=_time())
    due_at: datetime = Field(sa_column=_time(default=False))
    parked: bool = Field(sa_column=Column(Boolean, nullable=False, server_default=text("false")))
    verdict: str | None = Field(default=None, sa_column=Column(Text))
    reason: str | None = Field(default=None, sa_column=Column(Text))
    scope: str | None = Field(default=None, sa_column=Column(Text))
    message: str | None = Field(default=None, sa_column=Column(Text))
    by: str | None = Field(default=None, sa_column=Column(Text))
    decided_at: datetime | None = Field(default=None, sa_column=Column(DateTime(timezone=True)))
    told: bool = Field(sa_column=Column(Boolean, nullable=False, server_default=text("false")))
    used_at: datetime | None = Field(default=None, sa_column=Column(DateTime(timezone=True)))


class Effect(SQLModel, table=True):
    """A side effect of a tool call: reserved before it starts, settled with its result. `class`: pure, keyed, once."""

    __tablename__ = "effect"
    notebook_id: str = Field(sa_column=Column(String(32), ForeignKey("notebook.id"), primary_key=True))
    run_id: str = Field(sa_column=Column(Text, primary_key=True))
    call_id: str = Field(sa_column=Column(Text, primary_key=True))
    tool: str = Field(sa_column=Column(Text, nullable=False))
    digest: str = Field(sa_column=Column(Text, nullable=False))
    effect_class: str = Field(sa_column=Column("class", Text, nullable=False))
    reserved_at: datetime = Field(sa_column=_time())
    settled_at: datetime | None = Field(default=None, sa_column=Column(DateTime(timezone=True)))
    result: str | None = Field(default=None, sa_column=Column(JSON))


class Reply(SQLModel, table=True):
    """A finished reply of a model, as its protocol needs it for the next round. A finished reply is asked for once."""

    __tablename__ = "reply"
    notebook_id: str = Field(sa_column=Column(String(32), ForeignKey("notebook.id"), primary_key=True))
    run_id: str = Field(sa_column=Column(Text, primary_key=True))
    round: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=False))
    body: str = Field(sa_column=Column(JSON, nullable=False))
    at: datetime = Field(sa_column=_time())


class Timer(SQLModel, table=True):
    """A notebook that needs its engine at `due_at` (database clock), though nobody asks."""

    __tablename__ = "timer"
    __table_args__ = (Index("timer_due", "due_at"),)
    notebook_id: str = Field(sa_column=Column(String(32), ForeignKey("notebook.id"), primary_key=True))
    id: str = Field(sa_column=Column(String(64), primary_key=True))
    due_at: datetime = Field(sa_column=_time(default=False))


class File(SQLModel, table=True):
    """One version of a file of a notebook. Its bytes are the blob `sha256` of the notebook; null: deleted then."""

    __tablename__ = "file"
    notebook_id: str = Field(sa_column=Column(String(32), ForeignKey("notebook.id"), primary_key=True))
    path: str = Field(sa_column=Column(Text, primary_key=True))
    version: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=False))
    sha256: str | None = Field(default=None, sa_column=Column(String(64)))
    bytes: int = Field(sa_column=Column(BigInteger, nullable=False, server_default="0"))
    mime: str | None = Field(default=None, sa_column=Column(Text))
    by: str | None = Field(default=None, sa_column=Column(Text))
    run_id: str | None = Field(default=None, sa_column=Column(Text))
    call_id: str | None = Field(default=None, sa_column=Column(Text))
    at: datetime = Field(sa_column=_time())


class Visit(SQLModel, table=True):
    """How far a member has seen a notebook, and when they last looked at it (database clock)."""

    __tablename__ = "visit"
    notebook_id: str = Field(sa_column=Column(String(32), ForeignKey("notebook.id"), primary_key=True))
    member: str = Field(sa_column=Column(String(64), primary_key=True))
    seq: int = Field(sa_column=Column(BigInteger, nullable=False))
    at: datetime = Field(sa_column=_time())


class Question(SQLModel, table=True):
    """What a page asks a kernel, for seconds: completion or docs. Not logged: a crash may lose it."""

    __tablename__ = "question"
    __table_args__ = (Index("question_waiting", "notebook_id", postgresql_where=text("NOT taken")),)
    id: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(always=True), primary_key=True))
    notebook_id: str = Field(sa_column=Column(String(32), ForeignKey("notebook.id"), nullable=False))
    kind: str = Field(sa_column=Column(Text, nullable=False))
    body: str = Field(sa_column=Column(JSON, nullable=False))
    taken: bool = Field(sa_column=Column(Boolean, nullable=False, server_default=text("false")))
    answer: str | None = Field(default=None, sa_column=Column(JSON))
    at: datetime = Field(sa_column=_time())


class Caret(SQLModel, table=True):
    """Where the person at a page types, until when (database clock). Not logged, like `question`."""

    __tablename__ = "caret"
    __table_args__ = (Index("caret_notebook", "notebook_id"),)
    page: str = Field(sa_column=Column(String(64), primary_key=True))
    web: str = Field(sa_column=Column(String(64), nullable=False))
    notebook_id: str = Field(sa_column=Column(String(32), nullable=False))
    member: str = Field(sa_column=Column(Text, nullable=False))
    cell_id: str = Field(sa_column=Column(Text, nullable=False))
    at: int | None = Field(default=None, sa_column=Column(BigInteger))
    until: datetime = Field(sa_column=_time(default=False))


class Usage(SQLModel, table=True):
    """What one attempt at a reply of a model used: tokens, and dollars where a price is known."""

    __tablename__ = "usage"
    __table_args__ = (Index("usage_at", "at"),)
    notebook_id: str = Field(sa_column=Column(String(32), ForeignKey("notebook.id"), primary_key=True))
    run_id: str = Field(sa_column=Column(Text, primary_key=True))
    round: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=False))
    attempt: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=False))
    model: str = Field(sa_column=Column(Text, nullable=False))
    input: int = Field(sa_column=Column(BigInteger, nullable=False))
    output: int = Field(sa_column=Column(BigInteger, nullable=False))
    cached: int = Field(sa_column=Column(BigInteger, nullable=False))
    written: int = Field(sa_column=Column(BigInteger, nullable=False))
    cost: float | None = Field(default=None, sa_column=Column(Double))
    at: datetime = Field(sa_column=_time())


class Choice(SQLModel, table=True):
    """What the team decided on a page: `model`, which replies where a notebook does not choose."""

    __tablename__ = "choice"
    name: str = Field(sa_column=Column(Text, primary_key=True))
    value: str = Field(sa_column=Column(Text, nullable=False))
