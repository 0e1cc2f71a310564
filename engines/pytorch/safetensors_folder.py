"""The tensors of a Hugging Face folder: one safetensors file, or several and their index."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError, safe_open
from torch import Tensor

from appliance.errors import CatalogueError
from engines.pytorch.hf_config import read_json

_INDEX: Final = "model.safetensors.index.json"
_SINGLE: Final = "model.safetensors"
# Files that run code when they are opened.
_PICKLES: Final = ("*.bin", "*.pt", "*.pth", "*.ckpt")

# Models that also see keep what concerns their text apart, in one of two ways.
_PREFIX: Final = re.compile(r"^(?:model\.)?(?:language_model\.)?(?:model\.)?")
_RENAMED: Final = (
    (re.compile(r"\.block_sparse_moe\.experts\.(\d+)\.w1\."), r".mlp.experts.\1.gate_proj."),
    (re.compile(r"\.block_sparse_moe\.experts\.(\d+)\.w2\."), r".mlp.experts.\1.down_proj."),
    (re.compile(r"\.block_sparse_moe\.experts\.(\d+)\.w3\."), r".mlp.experts.\1.up_proj."),
    (re.compile(r"\.block_sparse_moe\.gate\."), ".mlp.gate."),
)
# What models see with; and angles that old checkpoints hold.
_IGNORED: Final = re.compile(
    r"(?:^|\.)(?:vision_tower|multi_modal_projector)\.|\.rotary_emb\.inv_freq$"
)


class SafetensorsFolder:
    """Opens every file once. `shapes` by the names of `engines.pytorch.weights`."""

    def __init__(self, folder: Path) -> None:
        self.label = _INDEX if (folder / _INDEX).is_file() else _SINGLE
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._places: dict[str, tuple[Any, str, str]] = {}
        for path, names in _files(folder).items():
            self._open(path, names)

    def _open(self, path: Path, expected: frozenset[str]) -> None:
        try:
            opened: Any = safe_open(path, framework="pt")
        except (SafetensorError, OSError) as error:
            raise _broken(path, str(error)) from None
        stored_names = set(opened.keys())
        if missing := expected - stored_names:
            message = f"{path.name} has no tensor {min(missing)}, which {_INDEX} says is in it"
            raise CatalogueError("model.tensor_missing", message)
        for stored in stored_names:
            if not _IGNORED.search(stored):
                name = _rename(stored)
                self.shapes[name] = tuple(opened.get_slice(stored).get_shape())
                self._places[name] = opened, path.name, stored

    def file_of(self, name: str) -> str:
        """For messages: the file and the tensor's name in it."""
        _, file, stored = self._places[name]
        return f"{file}: the tensor {stored}"

    def read(self, name: str, part: tuple[slice, ...]) -> Tensor:
        """A part of a tensor; only its bytes are read."""
        opened, file, stored = self._places[name]
        try:
            whole = not part
            found: Tensor = opened.get_tensor(stored) if whole else opened.get_slice(stored)[part]
        except (SafetensorError, OSError) as error:
            raise _broken(Path(file), str(error)) from None
        return found


def _rename(stored: str) -> str:
    name = _PREFIX.sub("", stored)
    for pattern, renamed in _RENAMED:
        name = pattern.sub(renamed, name)
    return name


def _files(folder: Path) -> Mapping[Path, frozenset[str]]:
    """The files, and the tensors that must be in each.

    Raises CatalogueError `model.part_missing`, `model.pickle_refused` or `model.config_invalid`.
    """
    if (folder / _INDEX).is_file():
        return _indexed(folder)
    found = (
        [folder / _SINGLE] if (folder / _SINGLE).is_file() else sorted(folder.glob("*.safetensors"))
    )
    if found:
        return dict.fromkeys(found, frozenset())
    pickles = [path.name for pattern in _PICKLES for path in folder.glob(pattern)]
    if pickles:
        raise CatalogueError(
            "model.pickle_refused",
            f"{min(pickles)} is a pickle, which can run any code when it is opened",
            hint="take the model as safetensors",
        )
    raise CatalogueError("model.part_missing", f"{folder.name} has no {_SINGLE} and no {_INDEX}")


def _indexed(folder: Path) -> Mapping[Path, frozenset[str]]:
    places = read_json(folder / _INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise CatalogueError("model.config_invalid", f"{_INDEX}: weight_map is missing")
    names: dict[Path, set[str]] = {}
    for name, file in places.items():
        if not isinstance(file, str) or Path(file).name != file:
            message = f"{_INDEX}: {name} is in no file of this folder"
            raise CatalogueError("model.config_invalid", message)
        names.setdefault(folder / file, set()).add(name)
    for path in names:
        if not path.is_file():
            message = f"{path.name}, one of {len(names)} parts of the model, is missing"
            raise CatalogueError("model.part_missing", message, hint="fetch the model again")
    return {path: frozenset(found) for path, found in names.items()}


def _broken(path: Path, what: str) -> CatalogueError:
    message = f"{path.name} cannot be read: {what}"
    return CatalogueError("model.file_broken", message, hint="fetch the model again")
