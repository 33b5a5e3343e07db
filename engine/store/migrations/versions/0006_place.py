"""Where a notebook's sandbox lives."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.execute("ALTER TABLE notebook ADD COLUMN place text")
