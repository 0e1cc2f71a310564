"""`hisar up`: everything a box needs, in order, then the box in the foreground.

check the configuration, the home, the port      nothing is changed when one of them fails
make the local API key, fetch missing models
start the engine host and the gateway, wait until they are ready, say how to reach them
keep them alive until Ctrl-C or SIGTERM; then the gateway drains first
"""

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, get_args

import click
import msgspec

from appliance.catalogue import Library
from appliance.commands.announcement import Announcement, announce
from appliance.commands.door import base_url_file, base_url_of, host_name_of
from appliance.commands.show import progress
from appliance.config import Config, EngineName
from appliance.config_file import load
from appliance.engine_choice import install_line, is_installed
from appliance.environment import read_environment
from appliance.errors import CatalogueError, EngineError, MachineError
from appliance.home import Home
from appliance.known_models import KNOWN_MODELS
from appliance.locks import HeldElsewhereError, hold
from appliance.machine import require_free_port, require_writable
from appliance.pull import order_known, pull, verify
from appliance.supervisor import GaveUpError, Program, Stop, supervise

# Beyond its own time to drain: flush records, close the database.
_GRACE_S: Final = 5.0
_LAST_LINES: Final = 5


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Port instead of the configured one.")
@click.option("--model", "names", multiple=True, help="Model to load instead of the configured.")
@click.option(
    "--runner",
    type=click.Choice(get_args(EngineName)),
    help="Engine that runs GGUF files instead of the configured one.",
)
@click.option("--json", "as_json", is_flag=True, help="Say that it is ready as a line of JSON.")
def up(port: int | None, names: tuple[str, ...], runner: EngineName | None, as_json: bool) -> None:
    """Start the box in the foreground; Ctrl-C stops it.

    The first start fetches the models that are missing. State is kept in HISAR_HOME.
    """
    home = read_environment().home
    config = _with_options(load(home.config), port, names, runner)
    _require_installed(config.engine.runner)
    require_writable(home.root)
    with _only_one(home):
        require_free_port(config.gateway.host, config.gateway.port)
        _provide_models(Library(home.models), config.engine.preload, quiet=as_json)
        if not _has_key(home, config):
            asyncio.run(_provide_key(home, config))
        with _address(home, config) as base_url:
            announcement = Announcement(
                home=home,
                base_url=base_url,
                host=host_name_of(config.gateway),
                models=config.engine.preload,
                as_json=as_json,
            )
            asyncio.run(_serve(home, config, announcement))


def _with_options(
    config: Config, port: int | None, names: tuple[str, ...], runner: EngineName | None
) -> Config:
    """The configuration with this run's options; models by their own names, not by aliases."""
    replace = msgspec.structs.replace
    if port is not None:
        config = replace(config, gateway=replace(config.gateway, port=port))
    names = names or config.engine.preload
    resolved = tuple(config.aliases.get(name, name) for name in names)
    engine = replace(config.engine, preload=resolved, runner=runner or config.engine.runner)
    return replace(config, engine=engine)


def _require_installed(runner: str) -> None:
    if not is_installed(runner):
        raise MachineError(
            "engine.not_installed",
            f"the libraries of the engine {runner!r} are not installed",
            hint=install_line(runner),
        )


@contextmanager
def _only_one(home: Home) -> Iterator[None]:
    try:
        with hold(home.run / "up.lock"):
            yield
    except HeldElsewhereError as held:
        raise MachineError(
            "home.in_use",
            f"a box is already running from {home.root} (process {held.pid})",
            hint="`hisar status` shows it; HISAR_HOME names another home for a second box",
        ) from held


@contextmanager
def _address(home: Home, config: Config) -> Iterator[str]:
    """The base URL, written down for the other commands as long as the box runs."""
    base_url = base_url_of(config.gateway)
    base_url_file(home).write_text(base_url + "\n", encoding="utf-8")
    try:
        yield base_url
    finally:
        base_url_file(home).unlink(missing_ok=True)


def _provide_models(library: Library, names: tuple[str, ...], *, quiet: bool) -> None:
    """See that every model to be loaded is here and whole; fetch what the box knows by name."""
    with progress(quiet=quiet) as shown:
        for name in names:
            if not _is_here(library, name):
                require_writable(library.root)
                pull(library, order_known(name), shown)


def _is_here(library: Library, name: str) -> bool:
    """Raises CatalogueError for a model that is missing or broken and cannot be fetched by name."""
    try:
        verify(library, library.get(name), in_full=False)
    except CatalogueError:
        if name not in KNOWN_MODELS:
            raise
        return False
    return True


def _has_key(home: Home, config: Config) -> bool:
    """Whether an earlier start has made key and database: then opening it can be left out."""
    return not config.store.url and home.local_key.is_file() and home.database.is_file()


async def _provide_key(home: Home, config: Config) -> None:
    """Make the database and its first API key, the one for this machine's user."""
    from appliance.clock import utc_now
    from appliance.local_key import ensure_local_key
    from appliance.secrets import load_secrets
    from appliance.store.store import open_store

    store = await open_store(config.store.url, home)
    try:
        await ensure_local_key(store, home, load_secrets(home).pepper, utc_now)
    finally:
        await store.close()


async def _serve(home: Home, config: Config, announcement: Announcement) -> None:
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.tell)
    waiting = asyncio.create_task(announce(announcement, _tell))
    try:
        await supervise(_programs(home, config), stop, _tell)
    except GaveUpError as failed:
        _tell(f"error: {_start_error(failed)}")
        raise click.exceptions.Exit(failed.exit_code) from failed
    finally:
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting


def _programs(home: Home, config: Config) -> tuple[Program, Program]:
    """Started in this order, stopped in the other."""
    where = ("--home", str(home.root))
    preload = [part for name in config.engine.preload for part in ("--preload", name)]
    runner = ("--runner", config.engine.runner)
    host = Program(
        name="engines",
        command=(sys.executable, "-m", "engines", *where, *preload, *runner),
        log=home.logs / "engines.log",
        stop_within_s=config.gateway.drain_s + _GRACE_S,
    )
    gateway = Program(
        name="gateway",
        command=(sys.executable, "-m", "gateway", *where, "--port", str(config.gateway.port)),
        log=home.logs / "gateway.log",
        stop_within_s=config.gateway.drain_s + _GRACE_S,
    )
    return host, gateway


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _start_error(failed: GaveUpError) -> EngineError:
    """What the program itself said before it ended."""
    words = failed.said.splitlines()[-_LAST_LINES:]
    return EngineError(
        "box.not_started",
        f"{failed}; it said:\n" + "\n".join(words),
        hint=f"all it said is in {failed.program.log}",
    )
