"""Whether the models that a configuration names are there: what only the library can tell."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from appliance.catalogue import Library
from appliance.config import Config
from appliance.config_file import Fault
from appliance.known_models import KNOWN_MODELS
from appliance.nearest import nearest
from appliance.toml_lines import line_of

_PRELOAD: Final = ("engine", "preload")


def missing_preloads(config: Config, library: Library, file: Path) -> Iterator[Fault]:
    """Models to preload that are neither here nor known by name: with them no box starts."""
    names = sorted({spec.name for spec in library.list()} | set(KNOWN_MODELS))
    for number, name in enumerate(config.engine.preload):
        if config.aliases.get(name, name) not in names:
            guess = nearest(name, names)
            yield Fault(
                code="config.unknown_model",
                path=".".join(_PRELOAD),
                line=_line(file),
                problem=f"there is no model {name!r} here (item {number})",
                hint=f"did you mean {guess!r}?" if guess else "fetch it: `hisar models pull`",
            )


def alias_warnings(config: Config, library: Library) -> Iterator[str]:
    """Aliases that lead nowhere, or stand before a model of the same name."""
    names = {spec.name for spec in library.list()}
    for alias, model in config.aliases.items():
        if alias in names:
            yield f"aliases.{alias}: it hides the model of that name"
        if model not in names:
            yield f"aliases.{alias}: there is no model {model!r} here; `hisar models pull`"


def _line(file: Path) -> int:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError:
        return 0
    return line_of(text, _PRELOAD)
