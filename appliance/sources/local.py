"""Models that are already on this machine: a GGUF file, or a folder as Hugging Face lays it out.

Nothing is copied that need not be: a clone of the extents where the file system can, else a
second name for the same file, else a copy.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from appliance.catalogue import ModelFile
from appliance.errors import CatalogueError
from appliance.sources.fetching import Fetched, Fetching, described, sync
from appliance.sources.weights import Selection, select

# ioctl of Linux that shares the extents of one file with another; linux/fs.h.
_FICLONE: Final = 0x40049409
_CHUNK_BYTES: Final = 1024 * 1024
# More than any model's folder holds; a home folder or a whole disk has more.
_MAX_FILES: Final = 10_000


def fetch(reference: str, fetching: Fetching) -> Fetched:
    """Bring in the GGUF file or the folder at the path `reference`.

    Raises CatalogueError `model.source_invalid`, `model.source_not_found`, `model.source_refused`
    or `model.source_ambiguous`.
    """
    if not reference:
        raise CatalogueError("model.source_invalid", "the path is empty")
    path = Path(os.path.expanduser(reference))  # noqa: PTH111 as it is for a user nobody knows
    try:
        folder, chosen = _choose(path)
    except OSError as error:
        raise CatalogueError("model.source_not_found", f"{path}: {error.strerror}") from error
    files = tuple(_bring(folder / name, fetching.folder / name, fetching) for name in chosen.paths)
    return Fetched(files=files, main_file=chosen.main_file, runner=chosen.runner)


def _choose(path: Path) -> tuple[Path, Selection]:
    if path.is_dir():
        return path, select(_files_below(path), origin=str(path))
    path.stat()
    beside = [item.name for item in path.parent.iterdir()]
    return path.parent, select(beside, origin=str(path.parent), wanted=path.name)


def _files_below(folder: Path) -> Iterator[str]:
    found = (item for item in folder.rglob("*") if item.is_file())
    for number, item in enumerate(islice(found, _MAX_FILES + 1)):
        if number == _MAX_FILES:
            raise CatalogueError(
                "model.source_ambiguous",
                f"{folder} holds more than {_MAX_FILES} files",
                hint="name the file, or the folder that holds the model alone",
            )
        yield item.relative_to(folder).as_posix()


def _bring(source: Path, target: Path, fetching: Fetching) -> ModelFile:
    _require_readable_file(source)
    source = source.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    if not (_cloned(source, target) or _linked(source, target)):
        fetching.reserve(source.stat().st_size)
        _copy(source, target, fetching)
        sync(target)
    return described(target, fetching.folder)


def _require_readable_file(path: Path) -> None:
    """A pipe could be read for ever, and so could some devices."""
    if not path.is_file():
        raise CatalogueError("model.source_invalid", f"{path} is neither a file nor a folder")
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError as error:
        raise CatalogueError(
            "model.source_invalid", f"{path!r} is not UTF-8 text", hint="rename it"
        ) from error
    try:
        path.open("rb").close()
    except OSError as error:
        raise CatalogueError("model.source_refused", f"{path}: {error.strerror}") from error


def _cloned(source: Path, target: Path) -> bool:
    with source.open("rb") as old, target.open("wb") as new:
        try:
            fcntl.ioctl(new, _FICLONE, old.fileno())
        except OSError:
            cloned = False
        else:
            cloned = True
    if not cloned:
        target.unlink()
    return cloned


def _linked(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP}:
            return False
        raise
    return True


def _copy(source: Path, target: Path, fetching: Fetching) -> None:
    left = source.stat().st_size
    fetching.progress.start(source.name, left, 0)
    with source.open("rb") as old, target.open("wb") as new:
        while chunk := old.read(min(left, _CHUNK_BYTES)):
            new.write(chunk)
            left -= len(chunk)
            fetching.progress.advance(len(chunk))
    fetching.progress.finish()
