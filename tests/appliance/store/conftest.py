"""Databases for the tests: a fresh SQLite file, and a schema of its own on a real PostgreSQL."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from appliance.home import Home
from appliance.store.store import Store, open_store


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server of the tests' own, on a Unix socket, gone when they are over."""
    programs = _programs()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed (Debian: postgresql)")
    user = _unprivileged_user()
    if user is None:
        pytest.skip("PostgreSQL does not run as root and there is no user `postgres`")
    # Not under pytest's folder: its path is too long for a socket, and closed to other users.
    folder = Path(tempfile.mkdtemp(prefix="hisar-pg-"))
    try:
        shutil.chown(folder, user)
        yield from _server(programs, folder, user)
    finally:
        shutil.rmtree(folder)


def _server(programs: Path, folder: Path, user: str) -> Iterator[str]:
    def run(program: str, *arguments: str) -> None:
        # Output to a file: a pipe would be kept open by the server.
        with (folder / f"{program}.log").open("a") as log:
            subprocess.run(
                [programs / program, *arguments],
                check=True,
                user=user if os.getuid() == 0 else None,
                cwd=folder,
                stdout=log,
                stderr=log,
            )

    data = folder / "data"
    run(
        "initdb", "--pgdata", str(data), "--auth=trust", "--username=box", "--no-sync", "-E", "UTF8"
    )
    options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
    run("pg_ctl", "start", "--wait", "--pgdata", str(data), "--options", options)
    try:
        yield f"postgresql+psycopg://box@/postgres?host={folder}"
    finally:
        run("pg_ctl", "stop", "--wait", "--mode=immediate", "--pgdata", str(data))


def _programs() -> Path | None:
    """The folder of the newest server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version)
    on_path = shutil.which("initdb")
    if found:
        return found[-1].parent
    return Path(on_path).resolve().parent if on_path else None


def _version(initdb: Path) -> int:
    name = initdb.parent.parent.name
    return int(name) if name.isdigit() else 0


def _unprivileged_user() -> str | None:
    if os.getuid() != 0:
        return pwd.getpwuid(os.getuid()).pw_name
    return "postgres" if any(entry.pw_name == "postgres" for entry in pwd.getpwall()) else None


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(root=tmp_path / "ev ğüş %20?")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest) -> str:
    """The configured URL of an empty database: first the embedded one, then PostgreSQL."""
    if request.param == "sqlite":
        return ""
    server: str = request.getfixturevalue("postgres_url")
    name = f"test_{uuid4().hex}"
    with psycopg.connect(server.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture
async def store(url: str, home: Home) -> AsyncIterator[Store]:
    """An open, empty store, on each kind of database."""
    store = await open_store(url, home)
    yield store
    await store.close()
