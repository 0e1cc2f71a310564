"""How the database is reached: the embedded SQLite file, or PostgreSQL by URL."""

import os
from pathlib import Path
from typing import Any, Final

import sqlalchemy
from sqlalchemy import URL, Engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from appliance.errors import StoreError
from appliance.home import Home

# A writer waits this long for another one; a connection attempt takes no longer.
_PATIENCE_S: Final = 5
_NUM_CONNECTIONS: Final = 4
_PRAGMAS: Final = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    f"PRAGMA busy_timeout={_PATIENCE_S * 1000}",
    "PRAGMA foreign_keys=ON",
)
_DRIVERS: Final = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg"}
_WRITER_DRIVERS: Final = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg"}


def create_engine(url: str, home: Home) -> AsyncEngine:
    """An engine for `url`, or for the database in the home folder where `url` is empty.

    Nothing is connected yet, but the embedded file is made, readable by its owner alone. Raises
    StoreError `store.bad_url`, `store.no_driver`, OSError.
    """
    where = _parsed(url) if url else URL.create(_DRIVERS["sqlite"], database=str(home.database))
    is_sqlite = where.get_backend_name() == "sqlite"
    if is_sqlite and where.database:
        _make_private(Path(where.database))
    try:
        engine = create_async_engine(
            where,
            # Values may be names of people or keys' hashes: never in an error's text.
            hide_parameters=True,
            pool_size=_NUM_CONNECTIONS,
            max_overflow=0,
            pool_timeout=_PATIENCE_S,
            pool_pre_ping=not is_sqlite,
            connect_args={} if is_sqlite else {"connect_timeout": _PATIENCE_S},
        )
    except ModuleNotFoundError as error:
        raise StoreError(
            "store.no_driver",
            f"the driver for {where.drivername} is not installed",
            hint="install the box with its `server` extra",
        ) from error
    if is_sqlite:
        event.listen(engine.sync_engine, "connect", _set_pragmas)
    return engine


def create_writer(engine: AsyncEngine) -> Engine:
    """A blocking engine of one connection to the same database, for a thread of its own."""
    is_sqlite = engine.dialect.name == "sqlite"
    writer = sqlalchemy.create_engine(
        engine.url.set(drivername=_WRITER_DRIVERS[engine.dialect.name]),
        hide_parameters=True,
        pool_size=1,
        max_overflow=0,
        pool_timeout=_PATIENCE_S,
        pool_pre_ping=not is_sqlite,
        connect_args={} if is_sqlite else {"connect_timeout": _PATIENCE_S},
    )
    if is_sqlite:
        event.listen(writer, "connect", _set_pragmas)
    return writer


def name_of(engine: AsyncEngine) -> str:
    """The database's address, without a password."""
    return engine.url.render_as_string(hide_password=True)


def _parsed(url: str) -> URL:
    try:
        where = make_url(url)
        backend = where.get_backend_name()
    except (ArgumentError, ValueError):
        where, backend = None, ""
    if where is None or backend not in _DRIVERS or (backend == "sqlite" and not where.database):
        raise StoreError(
            "store.bad_url",
            "store.url names no database that the box can use",
            hint="postgresql+psycopg://user:password@host/name, or leave it empty",
        )
    return where.set(drivername=_DRIVERS[backend])


def _make_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _set_pragmas(connection: DBAPIConnection, _record: Any) -> None:  # noqa: ANN401 SQLAlchemy's
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(pragma)
    cursor.close()
