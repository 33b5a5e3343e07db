"""What agent turns keep: questions to people, effects, replies of models, due times, and files by version."""

from alembic import op

revision = "0002"
down_revision = "0001"

TABLES = """
CREATE TABLE ask (
    notebook_id varchar(32) NOT NULL REFERENCES notebook (id),
    id varchar(64) PRIMARY KEY,
    cell_id text NOT NULL,
    run_id text NOT NULL,
    call_id text NOT NULL,
    digest text NOT NULL,
    body json NOT NULL,
    asked_at timestamptz NOT NULL DEFAULT now(),
    due_at timestamptz NOT NULL,
    parked boolean NOT NULL DEFAULT false,
    verdict text,
    reason text,
    scope text,
    message text,
    by text,
    decided_at timestamptz,
    told boolean NOT NULL DEFAULT false,
    used_at timestamptz
);
CREATE INDEX ask_open ON ask (due_at) WHERE verdict IS NULL;
CREATE INDEX ask_untold ON ask (notebook_id) WHERE NOT told;
CREATE INDEX ask_run ON ask (notebook_id, run_id);

CREATE TABLE effect (
    notebook_id varchar(32) NOT NULL REFERENCES notebook (id),
    run_id text NOT NULL,
    call_id text NOT NULL,
    tool text NOT NULL,
    digest text NOT NULL,
    class text NOT NULL,
    reserved_at timestamptz NOT NULL DEFAULT now(),
    settled_at timestamptz,
    result json,
    PRIMARY KEY (notebook_id, run_id, call_id)
);

CREATE TABLE reply (
    notebook_id varchar(32) NOT NULL REFERENCES notebook (id),
    run_id text NOT NULL,
    round integer NOT NULL,
    body json NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (notebook_id, run_id, round)
);

CREATE TABLE timer (
    notebook_id varchar(32) NOT NULL REFERENCES notebook (id),
    id varchar(64) NOT NULL,
    due_at timestamptz NOT NULL,
    PRIMARY KEY (notebook_id, id)
);
CREATE INDEX timer_due ON timer (due_at);

CREATE TABLE file (
    notebook_id varchar(32) NOT NULL REFERENCES notebook (id),
    path text NOT NULL,
    version integer NOT NULL,
    sha256 varchar(64),
    bytes bigint NOT NULL DEFAULT 0,
    mime text,
    by text,
    run_id text,
    call_id text,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (notebook_id, path, version)
);
"""


def upgrade() -> None:
    for statement in TABLES.split(";"):
        if statement.strip():
            op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE file, timer, reply, effect, ask")
