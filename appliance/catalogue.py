"""Which models exist on this box: what a model is, and the library on disk that holds them.

    models/<folder>/manifest.json     the ModelSpec, written last: a folder without one is no model
    models/<folder>/<files>
    models/.pulls/<folder>/           what an unfinished pull has fetched so far
    models/.optimise/<folder>/        where copies in other formats are made and measured
    models/.locks/<folder>            held while a model is being changed

A model appears and disappears by one rename, so a reader never meets half of one.
"""

import difflib
import os
import shutil
import unicodedata
import uuid
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec import Struct

from appliance.errors import CatalogueError
from appliance.optimise_records import Optimisation

MANIFEST: Final = "manifest.json"
_MAX_FOLDER_BYTES: Final = 200


class ModelFile(Struct, frozen=True, kw_only=True):
    """One file of a model, relative to the model's folder."""

    path: str
    size_bytes: int
    sha256: str


class ModelSpec(Struct, frozen=True, kw_only=True):
    """A model in the library. `main_file` is what the runner opens; empty for weightless runners.

    `context_tokens` 0 means: as the model's own file says. `trained_tokens` is the context that the
    file names, `kv_bytes_per_token` what a token of a running sequence takes, `num_weights` how
    many numbers its tensors have; 0: not known.
    `optimisation` says why `main_file` is, or is not, the file that the model came with.
    """

    name: str
    runner: str
    files: tuple[ModelFile, ...] = ()
    main_file: str = ""
    source: str = ""
    licence: str = ""
    context_tokens: int = 0
    created_at: int = 0
    trained_tokens: int = 0
    kv_bytes_per_token: int = 0
    optimisation: Optimisation | None = None
    num_weights: int = 0

    @property
    def size_bytes(self) -> int:
        """What the model takes on disk."""
        return sum(file.size_bytes for file in self.files)

    @property
    def weights_bytes(self) -> int:
        """What a runner opens: all files, but only one of the original and its copy."""
        if self.optimisation is None or self.main_file == self.optimisation.original_file:
            return self.size_bytes
        original = self.optimisation.original_file
        return sum(file.size_bytes for file in self.files if file.path != original)


class BrokenModel(Struct, frozen=True, kw_only=True):
    """A folder of the library whose manifest cannot be used."""

    folder: Path
    reason: str


class Library:
    """The models on disk under one folder, a folder and a `manifest.json` each."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def list(self) -> tuple[ModelSpec, ...]:
        """Every usable model, by name. One broken manifest does not hide the others."""
        found = (item for item in self._scan() if isinstance(item, ModelSpec))
        return tuple(sorted(found, key=lambda spec: spec.name))

    def broken(self) -> tuple[BrokenModel, ...]:
        """Every folder whose manifest is missing or cannot be read."""
        return tuple(item for item in self._scan() if isinstance(item, BrokenModel))

    def get(self, name: str) -> ModelSpec:
        """The model of that exact name.

        Raises CatalogueError `model.not_found` or `model.manifest_broken`.
        """
        try:
            folder = self.folder(name)
        except CatalogueError:
            raise self._not_found(name) from None
        if not folder.is_dir():
            raise self._not_found(name)
        found = _read(folder)
        if isinstance(found, BrokenModel):
            raise CatalogueError(
                "model.manifest_broken",
                f"the model {name!r} in {folder} cannot be used: {found.reason}",
                hint=f"remove it with `hisar models rm {name}` and fetch it again",
            )
        return found

    def path_of(self, spec: ModelSpec) -> Path:
        """The absolute path of the file a runner opens (the model's folder where there is none)."""
        return self.folder(spec.name).absolute() / spec.main_file

    def folder(self, name: str) -> Path:
        """Where a model of that name lies, or would lie."""
        return self.root / folder_name(name)

    def staging(self, name: str) -> Path:
        """Where the files of a model are gathered before it is added; kept between tries."""
        return self.root / ".pulls" / folder_name(name)

    def workshop(self, name: str) -> Path:
        """Where copies of a model are made and measured; nothing in it lasts."""
        return self.root / ".optimise" / folder_name(name)

    def lock(self, name: str) -> Path:
        """The file to hold while a model is being changed."""
        return self.root / ".locks" / folder_name(name)

    def add(self, spec: ModelSpec) -> None:
        """Turn the staging folder into the model, in one step, in the place of an older one."""
        staged = self.staging(spec.name)
        staged.mkdir(parents=True, exist_ok=True)
        _write(spec, staged / MANIFEST)
        self._move_away(self.folder(spec.name))
        staged.rename(self.folder(spec.name))

    def replace(self, spec: ModelSpec) -> None:
        """Let a model that is here be another selection of the files that lie in its folder.

        One rename; then the files that the new manifest does not name are deleted.
        """
        folder = self.folder(spec.name)
        new = folder / f"{MANIFEST}.new"
        _write(spec, new)
        new.replace(folder / MANIFEST)
        wanted = {folder / MANIFEST, *(folder / file.path for file in spec.files)}
        for path in folder.rglob("*"):
            if path.is_file() and path not in wanted:
                path.unlink()

    def remove(self, name: str) -> None:
        """Delete a model and what an unfinished pull of it left. Raises `model.not_found`."""
        places = (self.folder(name), self.staging(name), self.workshop(name))
        moved = [self._move_away(place) for place in places]
        if not any(moved):
            raise self._not_found(name)

    def _move_away(self, folder: Path) -> bool:
        """Take a folder out of sight by one rename, then delete it. False: there was none."""
        away = self.root / f".removed-{uuid.uuid4().hex}"
        try:
            folder.rename(away)
        except FileNotFoundError:
            return False
        shutil.rmtree(away, ignore_errors=True)
        return True

    def _scan(self) -> Iterator[ModelSpec | BrokenModel]:
        if not self.root.is_dir():
            return
        for folder in self.root.iterdir():
            if folder.is_dir() and not folder.name.startswith("."):
                yield _read(folder)

    def _not_found(self, name: str) -> CatalogueError:
        names = [spec.name for spec in self.list()]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "`hisar models list` shows what is here"
        return CatalogueError("model.not_found", f"there is no model {name!r} here", hint=hint)


def _write(spec: ModelSpec, path: Path) -> None:
    with path.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(spec), indent=2))
        file.flush()
        os.fsync(file.fileno())


def checked_name(name: str) -> str:
    """The name in Unicode form NFC. Raises CatalogueError `model.name_invalid`."""
    name = unicodedata.normalize("NFC", name)
    if reason := _name_fault(name):
        raise CatalogueError(
            "model.name_invalid",
            f"{name!r} cannot name a model: {reason}",
            hint="use letters, digits and . _ - + @, parts parted by / or :, as in org/name:tag",
        )
    return name


def folder_name(name: str) -> str:
    """One model name as one folder name: what a file system might mind is percent-encoded.

    `urllib.parse.unquote` is the way back. Raises CatalogueError `model.name_invalid`.
    """
    return _encoded(checked_name(name))


def _encoded(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else quote(c, safe="") for c in name)


def _name_fault(name: str) -> str:
    """What is wrong with a name; empty when nothing is."""
    if any(not (c.isalnum() or c in "._-+@/:" or unicodedata.combining(c)) for c in name):
        return "it holds a character that names may not have"
    parts = name.replace(":", "/").split("/")
    if not all(parts) or any(part[0] in ".-" for part in parts):
        return "a part of it is empty or starts with a dot or a dash"
    if len(_encoded(name).encode()) > _MAX_FOLDER_BYTES:
        return "it is too long"
    return ""


def _read(folder: Path) -> ModelSpec | BrokenModel:
    try:
        spec = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=ModelSpec)
    except FileNotFoundError:
        return BrokenModel(folder=folder, reason=f"{MANIFEST} is missing")
    except (OSError, ValueError) as error:  # msgspec's errors are ValueErrors
        return BrokenModel(folder=folder, reason=f"{MANIFEST}: {error}")
    reason = _spec_fault(spec, folder)
    return BrokenModel(folder=folder, reason=f"{MANIFEST}: {reason}") if reason else spec


def _spec_fault(spec: ModelSpec, folder: Path) -> str:
    if _name_fault(spec.name) or _encoded(spec.name) != folder.name:
        return f"the name {spec.name!r} does not belong to this folder"
    paths = [file.path for file in spec.files]
    if any(not is_inside(path) for path in paths):
        return "a file lies outside the model's folder"
    if spec.main_file and spec.main_file not in paths:
        return f"the main file {spec.main_file!r} is not among the files"
    return ""


def is_inside(path: str) -> bool:
    """Whether a relative path stays inside the folder it is relative to."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\0" not in path
