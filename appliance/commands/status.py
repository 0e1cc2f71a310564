"""`hisar status`: how the running box stands."""

from pathlib import Path

import click

from appliance.commands.door import base_url_file, find_base_url, open_door
from appliance.commands.show import print_json, print_table
from appliance.environment import read_environment
from appliance.errors import HisarError, MachineError, UsageError
from appliance.explain import explain
from appliance.standing import Standing, ask_standing


@click.command()
@click.option("--key-file", type=click.Path(path_type=Path), help="A file that holds an API key.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def status(ctx: click.Context, key_file: Path | None, as_json: bool) -> None:
    """Show whether the box is ready, its models and its requests. Exit code 1: not ready."""
    standing = find_standing(key_file)
    if as_json:
        print_json(standing)
    else:
        _show(standing)
    if not standing.ready:
        ctx.exit(1)


def find_standing(key_file: Path | None = None) -> Standing:
    """How this home's box stands; not running where none answers."""
    try:
        with open_door(key_file) as client:
            return ask_standing(client)
    except MachineError:
        return _not_running()
    except UsageError:
        # A home that was never started has no key yet.
        if key_file is not None:
            raise
        return _not_running()


def find_states() -> dict[str, str]:
    """What the running box of this home has in memory, or cannot load, by name of the model."""
    if not base_url_file(read_environment().home).exists():
        return {}
    try:
        standing = find_standing()
    except HisarError:  # it is on its way up or down
        return {}
    loaded = {model.name: "ready" for model in standing.loaded_models}
    unready = {m.name: f"{m.state} {m.reason}".strip() for m in standing.unready_models}
    return loaded | unready


def _not_running() -> Standing:
    return Standing(running=False, base_url=find_base_url(read_environment().home))


def _show(standing: Standing) -> None:
    if not standing.running:
        click.echo(f"not running: no box answers at {standing.base_url}")
        return
    word = "ready" if standing.ready else "not ready: " + ", ".join(standing.reasons)
    ended = ", ".join(f"{count} {outcome}" for outcome, count in standing.requests.items())
    click.echo(f"{word}, at {standing.base_url}/v1")
    click.echo(f"requests  {standing.num_in_flight} in flight; ended: {ended or 'none'}")
    click.echo(f"tokens    {standing.prompt_tokens} read, {standing.generated_tokens} generated")
    print_table(
        ("MODEL", "RUNNING", "WAITING", "KV", "CACHE HITS"),
        [
            (model.name, str(model.num_running), str(model.num_waiting),
             f"{model.kv_usage:.0%}", f"{model.prefix_cache_hit_rate:.0%}")
            for model in standing.loaded_models
        ],
    )  # fmt: skip
    for model in standing.unready_models:
        click.echo(f"{model.name} is {model.state}" + _why(model.reason))


def _why(code: str) -> str:
    return f", {code}: {explain(code)}" if code else ""
