"""How formats are measured: by a process of the engines, whose lines of JSON are read here."""

import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from appliance.environment import worker_environment
from appliance.errors import CatalogueError, EngineError, HisarError, MachineError
from appliance.optimise_records import Effort, Line, Outcome, Refusal, Step

_MODULE: Final = "engines.llamacpp.optimise"
_ERRORS: Final[dict[str, type[HisarError]]] = {
    "machine": MachineError,
    "model": CatalogueError,
    "engine": EngineError,
}


def measure(path: Path, folder: Path, effort: Effort, tell: Callable[[str], None]) -> Outcome:
    """Copies of a model file in `folder`, measured beside it. The process never outlives the call.

    Raises MachineError, CatalogueError and EngineError, also `engine.measuring_failed`.
    """
    process = subprocess.Popen(
        _command(path, folder, effort),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=worker_environment(),
    )
    with process:
        try:
            assert process.stdout is not None  # noqa: S101 for the type checker: it is a pipe
            outcome = _read(process.stdout, tell)
        finally:
            process.kill()
    if outcome is None:
        raise EngineError(
            "engine.measuring_failed",
            f"the process that measures {path.name} ended early",
            hint="the machine may lack memory; the model is as it was",
        )
    return outcome


def _command(path: Path, folder: Path, effort: Effort) -> list[str]:
    numbers = {
        "--rounds": effort.num_rounds,
        "--tokens": effort.num_tokens,
        "--samples": effort.num_samples,
        "--sequences": effort.max_sequences,
        "--threads": effort.num_threads,
    }
    options = [str(word) for pair in numbers.items() for word in pair]
    names = ["--formats", ",".join(effort.formats)]
    return [sys.executable, "-m", _MODULE, str(path), "--out", str(folder), *options, *names]


def _read(lines: Iterable[bytes], tell: Callable[[str], None]) -> Outcome | None:
    """The outcome; None where the lines end without one. Raises what a refusal says."""
    for text in lines:
        line = msgspec.json.decode(text, type=Line)
        if isinstance(line, Step):
            tell(line.doing)
        elif isinstance(line, Refusal):
            kind = _ERRORS[line.code.partition(".")[0]]
            raise kind(line.code, line.message, hint=line.hint)
        else:
            return line
    return None
