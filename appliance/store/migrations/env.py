"""Run by Alembic: applies the revisions on the connection that `appliance.store.migrate` gives."""

from alembic import context

from appliance.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
