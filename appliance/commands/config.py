"""`hisar config`: is the configuration right, and what is in force."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct

from appliance.catalogue import Library
from appliance.commands.show import print_json
from appliance.config import Config
from appliance.config_file import Fault, InvalidConfigError, load
from appliance.config_models import alias_warnings, missing_preloads
from appliance.environment import read_environment

_MASK = "***"


class ConfigReport(Struct, frozen=True, kw_only=True):
    """What a check found."""

    ok: bool
    path: str
    faults: tuple[Fault, ...] = ()
    warnings: tuple[str, ...] = ()


file_option = click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file other than the box's own.",
)


@click.group()
def config() -> None:
    """Check and show the configuration."""


@config.command()
@file_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def check(ctx: click.Context, file: Path | None, as_json: bool) -> None:
    """Read the configuration and tell every fault. Exit code 78: it cannot be used."""
    environment = read_environment()
    path, library = _path(file), Library(environment.home.models)
    warnings = environment.warnings
    try:
        config = _load_whole(path, library)
    except InvalidConfigError as error:
        if not as_json:
            raise
        print_json(ConfigReport(ok=False, path=str(path), faults=error.faults, warnings=warnings))
        ctx.exit(error.exit_code)
    warnings += tuple(alias_warnings(config, library))
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    if as_json:
        print_json(ConfigReport(ok=True, path=str(path), warnings=warnings))
    else:
        state = "is fine" if path.exists() else "does not exist: defaults are used"
        click.echo(f"{path} {state}")


@config.command()
@file_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(file: Path | None, as_json: bool) -> None:
    """The configuration in force, defaults included; a password is masked."""
    in_force = msgspec.to_builtins(_without_password(load(_path(file))))
    if as_json:
        print_json(in_force)
        return
    for line in _toml(in_force, ()):
        click.echo(line)


def _load_whole(path: Path, library: Library) -> Config:
    config = load(path)
    if faults := tuple(missing_preloads(config, library, path)):
        raise InvalidConfigError(path, faults)
    return config


def _path(file: Path | None) -> Path:
    if file is not None and not file.exists():
        raise click.BadParameter(f"{file} does not exist", param_hint="--file")
    return file or read_environment().home.config


def _without_password(config: Config) -> Config:
    scheme, separator, rest = config.store.url.partition("://")
    login, at, place = rest.rpartition("@")
    if not at:
        return config
    masked = f"{scheme}{separator}{login.partition(':')[0]}:{_MASK}@{place}"
    return msgspec.structs.replace(config, store=msgspec.structs.replace(config.store, url=masked))


def _toml(table: dict[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """The table as TOML: plain values first, then the tables inside it."""
    for key, value in table.items():
        if not isinstance(value, dict) and value is not None:
            # A JSON text, number, truth value or list of them is the same in TOML.
            yield f"{_toml_key(key)} = {msgspec.json.encode(value).decode()}"
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield f"\n[{'.'.join(map(_toml_key, (*path, key)))}]"
            yield from _toml(value, (*path, key))


def _toml_key(key: str) -> str:
    is_bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if is_bare else msgspec.json.encode(key).decode()
