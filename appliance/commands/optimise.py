"""`hisar models optimise`: the format of a model that is the best on this machine."""

import time
from typing import get_args

import click

from appliance.catalogue import Library, ModelSpec
from appliance.commands.options import FiniteRange
from appliance.commands.show import print_json, print_table
from appliance.config_file import load
from appliance.environment import read_environment
from appliance.machine import require_writable
from appliance.optimise import optimise, restore
from appliance.optimise_choice import MAX_LOSS, MAX_QUIET_SPREAD, widest_spread
from appliance.optimise_records import (
    MOST_SEQUENCES,
    Effort,
    FormatResult,
    Optimisation,
    Profile,
    Speed,
)
from appliance.sources.fetching import megabytes


@click.command("optimise")
@click.argument("name")
@click.option(
    "--profile",
    type=click.Choice(get_args(Profile)),
    default="balanced",
    show_default=True,
    help="One sequence alone, many together, or both and the prompt.",
)
@click.option(
    "--max-loss",
    "max_loss_percent",
    type=FiniteRange(0, 50),
    default=MAX_LOSS * 100,
    show_default=True,
    help="Percent that a copy's perplexity may lie above the original's.",
)
@click.option("--restore", "restores", is_flag=True, help="Go back to the file it came with.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def optimise_model(
    name: str, profile: Profile, max_loss_percent: float, restores: bool, as_json: bool
) -> None:
    """Measure a GGUF model in several formats and use the best one.

    Takes minutes, on a machine that should have nothing else to do. The file the model came with
    is kept.
    """
    home = read_environment().home
    engine = load(home.config).engine
    library = Library(home.models)
    require_writable(library.root)
    if restores:
        spec = restore(library, name)
    else:
        spec = optimise(
            library,
            name,
            profile=profile,
            max_loss=max_loss_percent / 100,
            effort=Effort(
                num_threads=engine.num_threads,
                max_sequences=engine.num_slots or MOST_SEQUENCES,
            ),
            tell=_silent if as_json else _to_stderr,
        )
    if as_json:
        print_json({"name": name, "main_file": spec.main_file, "optimisation": spec.optimisation})
    elif spec.optimisation is None:
        click.echo(f"{name} is opened from {spec.main_file} again, as it came")
    else:
        show_figures(spec.optimisation)
        _tell_choice(spec, spec.optimisation)


def show_optimisation(note: Optimisation) -> None:
    """Which format a model runs in, since when, and the figures."""
    day = time.strftime("%Y-%m-%d", time.localtime(note.measured_at))
    click.echo(
        f"{'format':18} {note.format}, chosen for {note.profile} on {day}"
        f" within a loss of {100 * note.max_loss:g} %; it came as {note.original_file}"
    )
    show_figures(note)


def show_figures(note: Optimisation) -> None:
    """What was measured, as a table, with what must be known to read it."""
    counts = sorted(note.results[0].decode)
    header = ("FORMAT", "SIZE", *(f"TOKENS/S x{count}" for count in counts), "PROMPT TOKENS/S",
              "PERPLEXITY", "EQUAL TOKENS")  # fmt: skip
    print_table(header, [_row(result) for result in note.results])
    for left_out in note.left_out:
        click.echo(f"{left_out.format} was left out: {left_out.reason}")
    if (spread := widest_spread(note.results)) > MAX_QUIET_SPREAD:
        click.echo(
            f"The machine was not quiet: rounds differ by up to {spread:.1f} times. Measure again"
            " when nothing else runs."
        )
    if note.is_requantised:
        click.echo("The original is quantised itself: a copy's loss comes on top of its own.")


def _row(result: FormatResult) -> tuple[str, ...]:
    mark = " (original)" if result.is_original else ""
    return (
        result.format + mark,
        megabytes(result.size_bytes),
        *(_speed(result.decode[count]) for count in sorted(result.decode)),
        _speed(result.prompt),
        f"{result.perplexity:.2f}",
        f"{100 * result.equal_tokens:.1f} %",
    )


def _speed(speed: Speed) -> str:
    return f"{speed.median:.0f} ({speed.lowest:.0f}-{speed.highest:.0f})"


def _tell_choice(spec: ModelSpec, note: Optimisation) -> None:
    if spec.main_file == note.original_file:
        click.echo(
            f"{spec.name} stays in its own format, {note.format}: for {note.profile} nothing is"
            f" clearly faster within a loss of {100 * note.max_loss:g} %."
        )
        return
    click.echo(
        f"{spec.name} is now opened as {note.format}, the best for {note.profile} within a loss of"
        f" {100 * note.max_loss:g} %. A running box changes to it when nothing uses it."
    )
    click.echo(
        f"The original is kept; `hisar models optimise {spec.name} --restore` goes back to it."
    )


def _to_stderr(doing: str) -> None:
    click.echo(doing, err=True)


def _silent(doing: str) -> None:
    """Nothing to show."""
