"""Where each member was last in a notebook, and an index on what is worth telling who comes back."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE visit (
            notebook_id varchar(32) NOT NULL REFERENCES notebook (id),
            member varchar(64) NOT NULL,
            seq bigint NOT NULL,
            at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (notebook_id, member)
        )
        """
    )
    op.execute(
        """
        CREATE INDEX frame_told ON frame (notebook_id, seq)
        WHERE kind IN ('run', 'cell', 'session', 'comment', 'verdict', 'delivered')
        """
    )
