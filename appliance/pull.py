"""How a model gets into the library: fetched, checked to the byte, then added in one step.

A pull that ends early, even by `kill -9`, leaves its files in the library's staging folder; the
next pull of that name goes on from there. A name that is in use stays with its model, unless that
is fetched again from where it came from, is broken, or is to be replaced.
"""

import errno
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from appliance.catalogue import Library, ModelFile, ModelSpec, checked_name
from appliance.errors import CatalogueError, HisarError, MachineError
from appliance.known_models import KNOWN_MODELS
from appliance.locks import HeldElsewhereError, hold
from appliance.progress import Progress, Silent
from appliance.sources.download import without_secrets
from appliance.sources.fetching import Fetched, Fetching, digest_of, free_bytes
from appliance.sources.registry import fetch, is_remote
from appliance.weights_check import WeightsFacts, check_weights

_DISK_IS_FULL: Final = {errno.ENOSPC, errno.EDQUOT}
_MAY_NOT_WRITE: Final = {errno.EACCES, errno.EPERM, errno.EROFS}


class Order(Struct, frozen=True, kw_only=True):
    """What to fetch, under which name. `sha256` pins a source that is one file.

    `replaces`: another model of that name may go for it.
    """

    name: str
    source: str
    licence: str = ""
    expected: tuple[ModelFile, ...] = ()
    sha256: str = ""
    replaces: bool = False


def order_known(name: str) -> Order:
    """The order for a model the box knows by name. Raises CatalogueError `model.unknown`."""
    known = KNOWN_MODELS.get(name)
    if known is None:
        raise CatalogueError(
            "model.unknown",
            f"the box knows no model {name!r} by name",
            hint="known are: " + ", ".join(KNOWN_MODELS) + "; anything else needs a source:"
            " `hisar models pull hf:org/name`",
        )
    return Order(name=known.name, source=known.source, licence=known.licence, expected=known.files)


def pull(
    library: Library,
    order: Order,
    progress: Progress | None = None,
    free_space: Callable[[Path], int] = free_bytes,
) -> ModelSpec:
    """Fetch, check and add the model.

    A model that is here already as it is pinned is left alone.
    Raises CatalogueError and MachineError, with nothing added.
    """
    name = checked_name(order.name)
    with alone(library, name):
        if here := _already_here(library, name, order.expected):
            return here
        _require_free(library, name, order)
        with _staging(library, name, order.source) as folder:
            fetched = fetch(
                order.source,
                Fetching(
                    folder=folder,
                    progress=progress or Silent(),
                    expected=order.expected,
                    free_bytes=free_space,
                ),
            )
            _check_digests(order, fetched, folder)
            facts = _check_weights(fetched, folder)
            spec = _spec(name, order, fetched, facts)
            _sweep(folder, spec)
            library.add(spec)
    return spec


def verify(library: Library, spec: ModelSpec, *, in_full: bool) -> None:
    """Compare the files on disk with the manifest: sizes, and `in_full` every byte.

    Raises CatalogueError `model.file_broken`.
    """
    folder = library.folder(spec.name)
    for file in spec.files:
        path = folder / file.path
        if not path.is_file():
            raise _broken(path, "it is missing", spec)
        if path.stat().st_size != file.size_bytes:
            raise _broken(path, f"it is not {file.size_bytes} bytes long", spec)
        if in_full and digest_of(path) != file.sha256:
            raise _broken(path, "its sha256 is not the one in the manifest", spec)


def _already_here(library: Library, name: str, expected: tuple[ModelFile, ...]) -> ModelSpec | None:
    """The model, if it is in the library whole and to the byte what is expected."""
    try:
        spec = library.get(name)
        verify(library, spec, in_full=True)
    except CatalogueError:
        return None
    return spec if expected and set(expected) <= set(spec.files) else None


def _require_free(library: Library, name: str, order: Order) -> None:
    """Raises CatalogueError `model.exists` for a name that another, whole model has."""
    try:
        here = library.get(name)
        verify(library, here, in_full=False)
    except CatalogueError:
        return
    is_the_same = is_remote(here.source) and here.source == _without_secrets(order.source)
    if not (order.replaces or is_the_same):
        raise CatalogueError(
            "model.exists",
            f"there is a model {name!r} here already, from {here.source}",
            hint="choose another name with --name, or put this one in its place with --replace",
        )


@contextmanager
def _staging(library: Library, name: str, source: str) -> Iterator[Path]:
    """The folder to gather a model in. After a failure only what is worth keeping stays in it."""
    folder = library.staging(name)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    except BaseException:
        if not (is_remote(source) and any(path.is_file() for path in folder.rglob("*"))):
            shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def alone(library: Library, name: str) -> Iterator[None]:
    """Keep others that would change this model out, and say plainly what the disk refuses."""
    try:
        with hold(library.lock(name)):
            yield
    except HeldElsewhereError as held:
        raise CatalogueError(
            "model.busy",
            f"the model {name!r} is being fetched or optimised by process {held.pid}",
            hint="wait until it is done",
        ) from held
    except OSError as error:
        raise _disk_error(error, library.root) from error


def _disk_error(error: OSError, root: Path) -> HisarError:
    where = f"{error.filename or root}: {error.strerror or error}"
    if error.errno in _DISK_IS_FULL:
        hint = "free some space and pull again; what has arrived is kept"
        return MachineError("machine.disk_full", where, hint=hint)
    if error.errno in _MAY_NOT_WRITE:
        hint = "run as the owner of that folder, or move the box's state with HISAR_HOME"
        return MachineError("home.unwritable", where, hint=hint)
    return MachineError("machine.disk_failed", where)


def _check_digests(order: Order, fetched: Fetched, folder: Path) -> None:
    pins = {file.path: file.sha256 for file in order.expected}
    if order.sha256:
        pins[fetched.main_file] = order.sha256.lower()
    got = {file.path: file.sha256 for file in fetched.files}
    for path, sha256 in pins.items():
        if got.get(path) != sha256:
            (folder / path).unlink(missing_ok=True)
            raise CatalogueError(
                "model.digest_mismatch",
                f"{path} is not the expected file: its sha256 is {got.get(path)}, not {sha256}",
                hint="nothing was kept; fetch it again, or ask whoever serves it",
            )


def _check_weights(fetched: Fetched, folder: Path) -> WeightsFacts:
    if not fetched.files:
        return WeightsFacts()
    path = folder / fetched.main_file
    try:
        return check_weights(path)
    except CatalogueError:
        if fetched.main_file:
            path.unlink(missing_ok=True)
        raise


def _spec(name: str, order: Order, fetched: Fetched, facts: WeightsFacts) -> ModelSpec:
    return ModelSpec(
        name=name,
        runner=fetched.runner,
        files=fetched.files,
        main_file=fetched.main_file,
        source=_without_secrets(order.source),
        licence=order.licence or fetched.licence,
        created_at=int(time.time()),
        trained_tokens=facts.context_length,
        kv_bytes_per_token=facts.kv_bytes_per_token,
        num_weights=facts.num_weights,
    )


def _without_secrets(source: str) -> str:
    return without_secrets(source) if source.startswith(("http:", "https:")) else source


def _sweep(folder: Path, spec: ModelSpec) -> None:
    """Take out of the staging folder what is not part of the model."""
    wanted = {folder / file.path for file in spec.files}
    for path in folder.rglob("*"):
        if path.is_file() and path not in wanted:
            path.unlink()


def _broken(path: Path, reason: str, spec: ModelSpec) -> CatalogueError:
    known = KNOWN_MODELS.get(spec.name)
    is_known = known is not None and known.source == spec.source
    again = f"`hisar models pull {spec.name}`" if is_known else f"{spec.source}, with --replace"
    return CatalogueError(
        "model.file_broken", f"{path}: {reason}", hint=f"bring it in again: {again}"
    )
