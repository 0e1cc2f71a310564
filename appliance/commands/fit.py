"""`hisar fit`: whether a model would fit into memory, and by how much."""

import click
import msgspec
from msgspec import Struct

from appliance.catalogue import Library, ModelSpec
from appliance.commands.options import COUNT
from appliance.commands.show import print_json
from appliance.config import EngineConfig
from appliance.config_file import load
from appliance.devices import take_inventory
from appliance.engine_choice import choose_runner
from appliance.environment import read_environment
from appliance.errors import ConfigError
from appliance.footprint import measure, share_for_prefixes
from appliance.sources.fetching import megabytes
from appliance.weights_check import check_weights


class Fit(Struct, frozen=True, kw_only=True):
    """What would happen. `spare_bytes` is negative where so much is missing.

    Of them, up to `prefix_bytes` keep prefixes beyond the slots.
    """

    model: str
    context_tokens: int
    num_slots: int
    weights_bytes: int
    kv_bytes: int
    worker_bytes: int
    total_bytes: int
    free_bytes: int
    spare_bytes: int
    fits: bool
    prefix_bytes: int = 0


@click.command()
@click.argument("model")
@click.option(
    "--ctx",
    "context_tokens",
    type=COUNT,
    help="Tokens of one sequence, prompt and answer. Default: as configured, or the model's.",
)
@click.option(
    "--parallel",
    "num_slots",
    type=COUNT,
    help="Sequences computed together. Default: as configured, or 1.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def fit(
    ctx: click.Context,
    model: str,
    context_tokens: int | None,
    num_slots: int | None,
    as_json: bool,
) -> None:
    """Say what a model of the library takes in memory, and what is free. Exit code 1: too much."""
    home = read_environment().home
    config = load(home.config)
    library = Library(home.models)
    spec = _with_facts(library, library.get(config.aliases.get(model, model)))
    inventory = take_inventory()
    engine = config.engine
    found = judge(
        spec,
        engine,
        context_tokens=context_tokens or engine.context_tokens,
        num_slots=num_slots or engine.num_slots,
        available_bytes=inventory.memory.available_bytes,
        has_gpu=bool(inventory.gpus),
    )
    if as_json:
        print_json(found)
    else:
        _show(found)
    if not found.fits:
        ctx.exit(1)


def judge(
    spec: ModelSpec,
    engine: EngineConfig,
    *,
    context_tokens: int,
    num_slots: int,
    available_bytes: int,
    has_gpu: bool = False,
) -> Fit:
    """The arithmetic of the engine host for a box in which no other model is in memory.

    Raises ConfigError `engine.context_too_long`.
    """
    if spec.trained_tokens and context_tokens > spec.trained_tokens:
        raise ConfigError(
            "engine.context_too_long",
            f"a context of {context_tokens} tokens is longer than the model was trained for",
            hint=f"it was trained for {spec.trained_tokens}",
        )
    need = measure(
        spec,
        runner=choose_runner(spec, engine),
        has_gpu=has_gpu,
        context_tokens=context_tokens,
        num_slots=num_slots,
    )
    free_bytes = min(available_bytes, engine.memory_bytes or available_bytes)
    spare_bytes = free_bytes - need.total_bytes
    return Fit(
        model=spec.name,
        context_tokens=need.context_tokens,
        num_slots=need.num_slots,
        weights_bytes=need.weights_bytes,
        kv_bytes=need.kv_bytes,
        worker_bytes=need.worker_bytes,
        total_bytes=need.total_bytes,
        free_bytes=free_bytes,
        spare_bytes=spare_bytes,
        fits=spare_bytes >= 0,
        prefix_bytes=share_for_prefixes(need, spare_bytes, engine.prefix_memory_share),
    )


def _with_facts(library: Library, spec: ModelSpec) -> ModelSpec:
    """The model with what its file says, where it came in before that was noted."""
    if not spec.files or (spec.kv_bytes_per_token and spec.num_weights):
        return spec
    facts = check_weights(library.path_of(spec))
    return msgspec.structs.replace(
        spec,
        trained_tokens=facts.context_length,
        kv_bytes_per_token=facts.kv_bytes_per_token,
        num_weights=facts.num_weights,
    )


def _show(found: Fit) -> None:
    click.echo(f"{found.model}: {found.num_slots} x {found.context_tokens} tokens")
    for name, num_bytes in (
        ("weights", found.weights_bytes),
        ("keys and values", found.kv_bytes),
        ("process", found.worker_bytes),
        ("together", found.total_bytes),
        ("free", found.free_bytes),
    ):
        click.echo(f"{name:16} {megabytes(num_bytes):>14}")
    if found.fits:
        prefixes = f"{megabytes(found.prefix_bytes)} of them for prefixes"
        click.echo(f"it fits: {megabytes(found.spare_bytes)} are left, {prefixes}")
    else:
        click.echo(f"it does not fit: {megabytes(-found.spare_bytes)} are missing")
