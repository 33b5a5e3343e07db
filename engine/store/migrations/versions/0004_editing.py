"""What pages ask kernels, and where people type: rows of seconds, in tables that are not logged."""

from alembic import op

revision = "0004"
down_revision = "0003"

TABLES = """
CREATE UNLOGGED TABLE question (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    notebook_id varchar(32) NOT NULL REFERENCES notebook (id),
    kind text NOT NULL,
    body json NOT NULL,
    taken boolean NOT NULL DEFAULT false,
    answer json,
    at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX question_waiting ON question (notebook_id) WHERE NOT taken;

CREATE UNLOGGED TABLE caret (
    page varchar(64) PRIMARY KEY,
    web varchar(64) NOT NULL,
    notebook_id varchar(32) NOT NULL,
    member text NOT NULL,
    cell_id text NOT NULL,
    at bigint,
    until timestamptz NOT NULL
);
CREATE INDEX caret_notebook ON caret (notebook_id);
"""


def upgrade() -> None:
    for statement in TABLES.split(";\n"):
        if statement.strip():
            op.execute(statement)
