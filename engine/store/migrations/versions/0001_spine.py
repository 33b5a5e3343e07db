"""Notebooks, their journal, commands, snapshots, blobs, workers and presence."""

from alembic import op

revision = "0001"
down_revision = None

TABLES = """
CREATE TABLE notebook (
    id varchar(32) PRIMARY KEY,
    title text NOT NULL,
    head bigint NOT NULL DEFAULT 0,
    epoch bigint NOT NULL DEFAULT 0,
    owner text,
    awake boolean NOT NULL DEFAULT false,
    state text NOT NULL DEFAULT 'idle',
    waiting integer NOT NULL DEFAULT 0,
    cells integer NOT NULL DEFAULT 0,
    archived boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    changed_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 70);

-- No foreign key: frames are only ever inserted by joining the notebook row that gave them their numbers, and
-- checking each row again would cost a third of a step.
CREATE TABLE frame (
    notebook_id varchar(32) NOT NULL,
    seq bigint NOT NULL,
    at timestamptz NOT NULL,
    kind text NOT NULL,
    cell_id text,
    run_id text,
    by text,
    command_id text,
    body json NOT NULL,
    PRIMARY KEY (notebook_id, seq)
);

CREATE TABLE command (
    notebook_id varchar(32) NOT NULL REFERENCES notebook (id),
    id varchar(64) NOT NULL,
    ord bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    by text NOT NULL,
    body json,
    digest bytea,
    consumed boolean NOT NULL DEFAULT false,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (notebook_id, id)
);
CREATE INDEX command_waiting ON command (notebook_id, ord) WHERE NOT consumed;

CREATE TABLE snapshot (
    notebook_id varchar(32) PRIMARY KEY REFERENCES notebook (id),
    seq bigint NOT NULL,
    version integer NOT NULL,
    body bytea NOT NULL
);

CREATE TABLE blob (
    notebook_id varchar(32) NOT NULL REFERENCES notebook (id),
    sha256 varchar(64) NOT NULL,
    mime text NOT NULL,
    encoding text,
    data bytea NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (notebook_id, sha256)
);

CREATE TABLE worker (
    id varchar(64) PRIMARY KEY,
    host text NOT NULL,
    until timestamptz NOT NULL
);

CREATE TABLE presence (
    web varchar(64) NOT NULL,
    place varchar(32) NOT NULL,
    member varchar(64) NOT NULL,
    can_decide boolean NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (web, place, member)
);
"""


def upgrade() -> None:
    for statement in TABLES.split(";\n"):
        if statement.strip():
            op.execute(statement)
