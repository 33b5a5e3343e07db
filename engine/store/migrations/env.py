"""What alembic runs: the caller passes an open connection in the config's attributes."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=context.config.attributes.get("metadata"))
with context.begin_transaction():
    context.run_migrations()
