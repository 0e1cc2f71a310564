"""How an older database becomes one of this version, and a newer one is refused."""

from pathlib import Path
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from appliance.errors import StoreError
from appliance.store.connect import name_of

# The newest revision under migrations/versions.
HEAD: Final = "0001"
_MIGRATIONS: Final = Path(__file__).parent / "migrations"
# Any number, the same in every process of ours: who migrates holds it.
_LOCK_NUMBER: Final = 4_815_162


async def migrate(engine: AsyncEngine) -> None:
    """Bring the database to this version; quick where it already is (Alembic is not loaded).

    Of several processes one migrates and the others wait. Raises StoreError `store.newer_schema`.
    """
    async with engine.connect() as connection:
        if await connection.run_sync(_revision) == HEAD:
            return
    async with engine.begin() as connection:
        await connection.run_sync(_take_lock)
        current = await connection.run_sync(_revision)
        if current != HEAD:
            await connection.run_sync(_upgrade, current, name_of(engine))


def _revision(connection: Connection) -> str:
    """The revision the database is at; empty for a new one."""
    try:
        with connection.begin_nested():
            row = connection.execute(text("SELECT version_num FROM alembic_version")).first()
    except DBAPIError as error:
        if error.connection_invalidated or not _tells_of_no_table(error):
            raise
        return ""
    return str(row[0]) if row else ""


def _tells_of_no_table(error: DBAPIError) -> bool:
    said = str(error.orig)
    return "alembic_version" in said and ("no such table" in said or "does not exist" in said)


def _take_lock(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        # A savepoint may have begun a reading transaction; writing must be claimed at once.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK_NUMBER})"))


def _upgrade(connection: Connection, current: str, database: str) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if current and current not in known:
        raise StoreError(
            "store.newer_schema",
            f"the database was last used by a newer version of the box: {database}",
            hint="install that version again, or restore a backup from before the upgrade",
        )
    command.upgrade(config, HEAD)
