"""A real Keycloak for the tests: brought here once, started once a run.

`python -m tests.keycloak_server` brings it: with Maven, or from the folder that KEYCLOAK_HOME
names. It is built there and then, and the database of its first start is kept, so that each later
one begins with a copy and takes 13 s instead of 28. Where there is no Java, or nothing to fetch it
with, the tests are left out, and this says so.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Final

import httpx

from tests.walk.running_box import free_port

VERSION: Final = "26.7.3"
ARTIFACT: Final = f"org.keycloak:keycloak-quarkus-dist:{VERSION}:tar.gz"
SHA256: Final = "77657f30b7e90d70f727712ce1c967f430fd6a5e9f458d32d8c6df0635345f47"
FOLDER: Final = Path("~/.cache/hisar/keycloak").expanduser()
PATH: Final = FOLDER / VERSION
ADMIN: Final = "admin"
PASSWORD: Final = "keycloak-of-the-tests"

_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_BUILT_WITH: Final = ("--db=dev-file", "--health-enabled=true")
_JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1"
_DATABASE: Final = "keycloakdb.mv.db"
# As in the address that Keycloak has for this kind of database.
_DATABASE_OPTIONS: Final = "NON_KEYWORDS=VALUE;DB_CLOSE_ON_EXIT=FALSE;DB_CLOSE_DELAY=0"
_PATIENCE_S: Final = 180.0


class NotHereError(Exception):
    """Keycloak cannot be had on this machine; says why."""


class KeycloakServer:
    """A server on a loopback port, with a database in `folder`; stopped and started at will."""

    def __init__(self, home: Path, folder: Path) -> None:
        self._home = home
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, unless it runs, and wait until it answers."""
        if self._process is not None:
            return
        command = (
            *(str(self._home / "bin" / "kc.sh"), "start", "--optimized", "--http-enabled=true"),
            *("--hostname-strict=false", "--cache=local"),
            *("--http-host=127.0.0.1", f"--http-port={self.port}"),
            f"--http-management-port={free_port()}",
            f"--db-url=jdbc:h2:file:{self._folder / 'keycloakdb'};{_DATABASE_OPTIONS}",
        )
        with (self._folder / "keycloak.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env=_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + _PATIENCE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise NotHereError(f"Keycloak did not start: {self.log()[-2000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop it; its database stays."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def log(self) -> str:
        """What it has said so far."""
        return (self._folder / "keycloak.log").read_text(errors="replace")

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/realms/master", timeout=5, trust_env=False).is_success
        except httpx.TransportError:
            return False


def is_here() -> bool:
    """Whether it is on disk, built; it is moved there only when it is whole."""
    return PATH.is_dir() and shutil.which("java") is not None


def open_server(folder: Path) -> KeycloakServer:
    """A server that is not started yet, with the database of a fresh one in `folder`."""
    shutil.copy(PATH / _DATABASE, folder)
    return KeycloakServer(PATH, folder)


def main() -> None:
    """Bring it unless it is here."""
    if is_here():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=FOLDER) as name:
            _bring(Path(name))
    except (NotHereError, OSError) as error:
        sys.stderr.write(f"the tests that need Keycloak are left out: {error}\n")


def _bring(folder: Path) -> None:
    if shutil.which("java") is None:
        raise NotHereError("there is no Java (Debian: default-jre-headless)")
    own = os.environ.get("KEYCLOAK_HOME", "")
    home = folder / "keycloak"
    if own:
        shutil.copytree(own, home)
    else:
        _unpack(_download(folder), folder).rename(home)
    sys.stderr.write("hisar: building Keycloak for the tests; this takes a minute, once\n")
    _run("kc.sh build", str(home / "bin" / "kc.sh"), "build", *_BUILT_WITH)
    fresh = folder / "fresh"
    fresh.mkdir()
    server = KeycloakServer(home, fresh)
    server.start()
    server.stop()
    shutil.move(fresh / _DATABASE, home / _DATABASE)
    shutil.rmtree(home / "data", ignore_errors=True)
    home.rename(PATH)


def _download(folder: Path) -> Path:
    if shutil.which("mvn") is None:
        raise NotHereError("there is no Maven (Debian: maven), and KEYCLOAK_HOME is not set")
    sys.stderr.write("hisar: fetching Keycloak for the tests (180 MB)\n")
    _run(
        *("mvn", "mvn", "-B", "-q", f"-Dmaven.repo.local={folder / 'maven'}", _PLUGIN),
        *(f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={folder}"),
    )
    (archive,) = folder.glob("keycloak-*.tar.gz")
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SHA256:
        raise NotHereError(f"{archive.name} is not the file it was")
    return archive


def _unpack(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / f"keycloak-{VERSION}"


def _run(what: str, *command: str) -> None:
    done = subprocess.run(
        command, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode:
        said = (done.stdout + done.stderr).decode(errors="replace").strip()
        raise NotHereError(f"{what} failed: {said[-500:]}")


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "JAVA_OPTS_APPEND": _JAVA_OPTIONS,
        "KC_BOOTSTRAP_ADMIN_USERNAME": ADMIN,
        "KC_BOOTSTRAP_ADMIN_PASSWORD": PASSWORD,
    }


if __name__ == "__main__":
    main()
