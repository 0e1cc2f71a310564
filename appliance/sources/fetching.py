"""What every source is given and gives back, and the check of disk space they all make."""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct

from appliance.catalogue import ModelFile
from appliance.errors import MachineError
from appliance.progress import Progress, Silent

# Room left to the rest of the machine: database, logs, the next start.
HEADROOM_BYTES: Final = 64 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024


def free_bytes(folder: Path) -> int:
    """Bytes that may still be written below `folder`."""
    return shutil.disk_usage(folder).free


class Fetching(Struct, frozen=True, kw_only=True):
    """One order to a source: bring these files into `folder`, resuming what lies there already.

    `expected` holds the files that are pinned, by path; empty where nothing is.
    """

    folder: Path
    progress: Progress = Silent()
    expected: tuple[ModelFile, ...] = ()
    free_bytes: Callable[[Path], int] = free_bytes

    def reserve(self, num_bytes: int) -> None:
        """Make sure of the space before the first byte. Raises MachineError `machine.disk_full`."""
        free = self.free_bytes(self.folder)
        if free < num_bytes + HEADROOM_BYTES:
            raise MachineError(
                "machine.disk_full",
                f"{self.folder} needs {megabytes(num_bytes + HEADROOM_BYTES)} more,"
                f" {megabytes(free)} are free",
                hint="free some space, or move the box's state with HISAR_HOME",
            )


class Fetched(Struct, frozen=True, kw_only=True):
    """What a source has brought: the files in `Fetching.folder`, and how they are to be run."""

    files: tuple[ModelFile, ...] = ()
    main_file: str = ""
    runner: str = "llamacpp"
    licence: str = ""


Source: TypeAlias = Callable[[str, Fetching], Fetched]


def megabytes(num_bytes: int) -> str:
    """A size for a human: `98.4 MB`."""
    return f"{num_bytes / 1e6:.1f} MB"


def digest_of(path: Path) -> str:
    """The sha256 of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def described(path: Path, folder: Path) -> ModelFile:
    """Size and digest of a file that is complete, its path relative to `folder`."""
    relative = path.relative_to(folder).as_posix()
    return ModelFile(path=relative, size_bytes=path.stat().st_size, sha256=digest_of(path))


def sync(path: Path) -> None:
    """Make a file's bytes durable."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
