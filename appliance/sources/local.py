"""Models that are already on this machine: a GGUF file, or a folder as Hugging Face lays it out.

Nothing is copied that need not be: a clone of the extents where the file system can, else a
second name for the same file, else a copy.
"""

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

from appliance.catalogue import ModelFile
from appliance.errors import CatalogueError
from appliance.sources.fetching import Fetched, Fetching, described, sync
from appliance.sources.weights import Selection, select

# ioctl of Linux that shares the extents of one file with another; linux/fs.h.
_FICLONE: Final = 0x40049409
_CHUNK_BYTES: Final = 1024 * 1024


def fetch(reference: str, fetching: Fetching) -> Fetched:
    """Bring in the GGUF file or the folder at the path `reference`."""
    path = Path(reference).expanduser()
    try:
        folder, chosen = _choose(path)
    except OSError as error:
        raise CatalogueError("model.source_not_found", f"{path}: {error.strerror}") from error
    files = tuple(_bring(folder / name, fetching.folder / name, fetching) for name in chosen.paths)
    return Fetched(files=files, main_file=chosen.main_file, runner=chosen.runner)


def _choose(path: Path) -> tuple[Path, Selection]:
    if path.is_dir():
        found = (item for item in path.rglob("*") if item.is_file())
        return path, select((item.relative_to(path).as_posix() for item in found), origin=str(path))
    path.stat()
    beside = [item.name for item in path.parent.iterdir()]
    return path.parent, select(beside, origin=str(path.parent), wanted=path.name)


def _bring(source: Path, target: Path, fetching: Fetching) -> ModelFile:
    source = source.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    if not (_cloned(source, target) or _linked(source, target)):
        fetching.reserve(source.stat().st_size)
        _copy(source, target, fetching)
        sync(target)
    return described(target, fetching.folder)


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
    fetching.progress.start(source.name, source.stat().st_size, 0)
    with source.open("rb") as old, target.open("wb") as new:
        while chunk := old.read(_CHUNK_BYTES):
            new.write(chunk)
            fetching.progress.advance(len(chunk))
    fetching.progress.finish()
