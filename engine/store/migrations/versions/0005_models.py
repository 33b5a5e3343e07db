"""What replies use, and what the team chose."""

from alembic import op

revision = "0005"
down_revision = "0004"

TABLES = """
CREATE TABLE usage (
    notebook_id varchar(32) NOT NULL REFERENCES notebook (id),
    run_id text NOT NULL,
    round integer NOT NULL,
    attempt integer NOT NULL,
    model text NOT NULL,
    input bigint NOT NULL,
    output bigint NOT NULL,
    cached bigint NOT NULL,
    written bigint NOT NULL,
    cost double precision,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (notebook_id, run_id, round, attempt)
);
CREATE INDEX usage_at ON usage (at);

CREATE TABLE choice (
    name text PRIMARY KEY,
    value text NOT NULL
);
"""


def upgrade() -> None:
    for statement in TABLES.split(";\n"):
        if statement.strip():
            op.execute(statement)
