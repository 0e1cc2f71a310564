"""A store is made, upgraded, shared between processes, or refused for a told reason."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from appliance.errors import StoreError
from appliance.home import Home
from appliance.identity import Tenant
from appliance.store.migrate import HEAD
from appliance.store.store import Store, open_store
from appliance.store.tables import metadata


async def test_a_migrated_database_has_exactly_the_declared_tables(store: Store) -> None:
    def differences(connection: Connection) -> list[object]:
        return list(compare_metadata(MigrationContext.configure(connection), metadata))

    async with store._engine.connect() as connection:
        assert await connection.run_sync(differences) == []


def test_the_newest_migration_is_the_version_that_is_expected() -> None:
    scripts = Path(sys.modules[open_store.__module__].__file__ or "").parent / "migrations"
    assert ScriptDirectory(str(scripts)).get_current_head() == HEAD


async def test_what_was_kept_is_there_when_opened_again(url: str, home: Home) -> None:
    for _ in range(2):
        store = await open_store(url, home)
        await store.tenants.ensure(Tenant(id="bank", name="Banka"))
        await store.close()
    store = await open_store(url, home)
    assert len(await store.tenants.list()) == 1
    await store.close()


async def test_processes_that_open_a_new_database_together_all_succeed(
    url: str, home: Home
) -> None:
    stores = await asyncio.gather(*(open_store(url, home) for _ in range(4)))
    for store in stores:
        assert await store.tenants.list() == ()
        await store.close()


async def test_a_database_of_a_newer_version_is_refused(url: str, home: Home) -> None:
    store = await open_store(url, home)
    async with store._engine.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    await store.close()
    with pytest.raises(StoreError) as caught:
        await open_store(url, home)
    assert caught.value.code == "store.newer_schema"


async def test_the_embedded_database_is_durable_and_private(home: Home) -> None:
    store = await open_store("", home)
    async with store._engine.connect() as connection:
        settings = [
            (await connection.execute(text(f"PRAGMA {name}"))).scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]
    await store.close()
    assert settings == ["wal", 2, 1]
    assert home.database.stat().st_mode & 0o777 == 0o600
    assert home.root.stat().st_mode & 0o077 == 0


_OPEN_ONCE = """
import asyncio, pathlib, sys
from appliance.home import Home
from appliance.store.store import open_store

async def open_once():
    store = await open_store("", Home(root=pathlib.Path(sys.argv[1])))
    await store.close()

asyncio.run(open_once())
print("alembic" in sys.modules)
"""


def test_opening_a_database_of_this_version_does_not_load_alembic(home: Home) -> None:
    told = [
        subprocess.run(
            [sys.executable, "-c", _OPEN_ONCE, str(home.root)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ).stdout.strip()
        for _ in range(2)
    ]
    assert told == ["True", "False"]


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("mysql://u:s3cret@h/d", "store.bad_url"),
        ("s3cret", "store.bad_url"),
        ("sqlite://", "store.bad_url"),
        ("postgresql://u:s3cret@127.0.0.1:1/d", "store.unreachable"),
        ("postgresql+asyncpg://u:s3cret@/d?host=/nowhere", "store.unreachable"),
    ],
)
async def test_a_url_that_cannot_be_used_is_told_without_its_password(
    url: str, code: str, home: Home
) -> None:
    with pytest.raises(StoreError) as caught:
        await open_store(url, home)
    assert caught.value.code == code
    assert "s3cret" not in str(caught.value)


async def test_a_file_that_is_no_database_is_told(home: Home) -> None:
    home.root.mkdir(parents=True)
    home.database.write_bytes(b"not a database " * 1000)
    with pytest.raises(StoreError) as caught:
        await open_store("", home)
    assert caught.value.code == "store.damaged"


async def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError) as caught:
        await open_store("", Home(root=tmp_path / "file"))
    assert caught.value.code == "store.unreachable"


async def test_a_full_disk_is_told(home: Home) -> None:
    store = await open_store("", home)
    async with store._engine.begin() as connection:
        pages = (await connection.execute(text("PRAGMA page_count"))).scalar()
        await connection.execute(text(f"PRAGMA max_page_count = {pages}"))
    with pytest.raises(StoreError) as caught:
        for number in range(1000):
            await store.tenants.ensure(Tenant(id=f"{number}" * 100, name="x" * 1000))
    await store.close()
    assert caught.value.code == "store.disk_full"


async def test_a_database_that_cannot_be_written_is_told(home: Home) -> None:
    store = await open_store("", home)
    async with store._engine.connect() as connection:
        await connection.execute(text("PRAGMA query_only = 1"))
    with pytest.raises(StoreError) as caught:
        await store.tenants.ensure(Tenant(id="x", name="x"))
    await store.close()
    assert caught.value.code == "store.read_only"


async def test_callers_who_leave_in_the_middle_take_no_connection_with_them(store: Store) -> None:
    for num_steps in range(40):
        tasks = [asyncio.create_task(store.keys.get("unknown")) for _ in range(3)]
        for _ in range(num_steps):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert await asyncio.gather(*(store.keys.get("unknown") for _ in range(8))) == [None] * 8


@pytest.mark.postgres
async def test_connections_that_the_server_cut_are_made_anew(postgres_url: str, home: Home) -> None:
    store = await open_store(postgres_url, home)
    await asyncio.gather(*(store.tenants.list() for _ in range(4)))
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    async with store._engine.connect() as connection:
        await connection.execute(text(f"{cut} AND usename = current_user"))
    assert await store.tenants.list() == ()
    await store.close()
