"""How a model comes to run in its best format on this machine, and how it goes back.

The copies are made and measured in a folder out of sight. Only then does the best one move into
the model's folder, under a name of its own, and the manifest is replaced in one step: whenever
this ends early, the model is as it was. The original always stays.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import structs

from appliance.catalogue import Library, ModelFile, ModelSpec
from appliance.errors import CatalogueError, UsageError
from appliance.optimise_choice import MAX_LOSS, choose_format
from appliance.optimise_measuring import measure
from appliance.optimise_records import Effort, Optimisation, Profile
from appliance.pull import alone
from appliance.sources.fetching import digest_of


def optimise(
    library: Library,
    name: str,
    *,
    profile: Profile,
    max_loss: float = MAX_LOSS,
    effort: Effort,
    tell: Callable[[str], None],
) -> ModelSpec:
    """Measure the model's formats and let its name stand for the best one.

    Raises CatalogueError, MachineError and EngineError; then the model is as it was.
    """
    library.get(name)
    with alone(library, name):
        spec = library.get(name)
        original = _original(spec)
        with _workshop(library, name) as folder:
            outcome = measure(library.folder(name) / original, folder, effort, tell)
            chosen = choose_format(outcome.results, profile, max_loss)
            note = Optimisation(
                format=chosen.format,
                profile=profile,
                max_loss=max_loss,
                original_file=original,
                measured_at=int(time.time()),
                results=outcome.results,
                left_out=outcome.left_out,
                is_requantised=outcome.is_requantised,
            )
            copy = None if chosen.is_original else folder / chosen.file
            return _use(library, spec, note, copy)


def restore(library: Library, name: str) -> ModelSpec:
    """Let the name stand for the original again, and delete the copy and the figures.

    Raises UsageError `usage.not_optimised`.
    """
    library.get(name)
    with alone(library, name):
        spec = library.get(name)
        if spec.optimisation is None:
            raise UsageError(
                "usage.not_optimised",
                f"{name} was never optimised: it runs as it came",
                hint=f"hisar models optimise {name}",
            )
        restored = _as_it_came(spec)
        library.replace(restored)
        return restored


def _original(spec: ModelSpec) -> str:
    """The file it came with. Raises CatalogueError `model.not_optimisable`."""
    if spec.runner != "llamacpp":
        raise CatalogueError(
            "model.not_optimisable",
            f"{spec.name} runs on the engine {spec.runner!r}: only GGUF files have other formats",
        )
    return spec.optimisation.original_file if spec.optimisation else spec.main_file


def _as_it_came(spec: ModelSpec) -> ModelSpec:
    """The model without the copy and the figures."""
    if spec.optimisation is None:
        return spec
    original = spec.optimisation.original_file
    files = spec.files
    if spec.main_file != original:
        files = tuple(file for file in files if file.path != spec.main_file)
    return structs.replace(spec, files=files, main_file=original, optimisation=None)


def _use(library: Library, spec: ModelSpec, note: Optimisation, copy: Path | None) -> ModelSpec:
    """Put the copy, or the original where there is none, in the model's place."""
    new = structs.replace(_as_it_came(spec), optimisation=note)
    if copy is not None:
        file = _move_in(library.folder(spec.name), copy)
        new = structs.replace(new, files=(*new.files, file), main_file=file.path)
    library.replace(new)
    return new


def _move_in(folder: Path, copy: Path) -> ModelFile:
    """A name that holds the digest cannot take the place of a file that is in use."""
    sha256 = digest_of(copy)
    path = folder / f"{copy.stem}.{sha256[:12]}.gguf"
    with copy.open("rb") as file:  # on disk before the manifest names it
        os.fsync(file.fileno())
    copy.rename(path)
    return ModelFile(path=path.name, size_bytes=path.stat().st_size, sha256=sha256)


@contextmanager
def _workshop(library: Library, name: str) -> Iterator[Path]:
    """An empty folder out of sight, gone afterwards; what a killed run left in it goes first."""
    folder = library.workshop(name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
