"""The tensors of a Hugging Face folder, out of its safetensors files."""

import re
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError, safe_open
from torch import Tensor

from appliance.errors import CatalogueError
from engines.pytorch.safetensors_files import INDEX, SINGLE, find_files

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
        self.label = INDEX if (folder / INDEX).is_file() else SINGLE
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._places: dict[str, tuple[Any, str, str]] = {}
        for path, names in find_files(folder).items():
            self._open(path, names)

    def _open(self, path: Path, expected: frozenset[str]) -> None:
        try:
            opened: Any = safe_open(path, framework="pt")
        except (SafetensorError, OSError) as error:
            raise _broken(path, str(error)) from None
        stored_names = set(opened.keys())
        if missing := expected - stored_names:
            message = f"{path.name} has no tensor {min(missing)}, which {INDEX} says is in it"
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


def _broken(path: Path, what: str) -> CatalogueError:
    message = f"{path.name} cannot be read: {what}"
    return CatalogueError("model.file_broken", message, hint="fetch the model again")
