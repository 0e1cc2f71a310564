"""Which files of a Hugging Face folder hold its weights: one, or several and their index."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from appliance.errors import CatalogueError
from engines.pytorch.hf_config import read_json

INDEX: Final = "model.safetensors.index.json"
SINGLE: Final = "model.safetensors"
# Files that run code when they are opened.
_PICKLES: Final = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def find_files(folder: Path) -> Mapping[Path, frozenset[str]]:
    """The files, and the tensors that must be in each.

    Raises CatalogueError `model.part_missing`, `model.pickle_refused` or `model.config_invalid`.
    """
    if (folder / INDEX).is_file():
        return _indexed(folder)
    found = (
        [folder / SINGLE] if (folder / SINGLE).is_file() else sorted(folder.glob("*.safetensors"))
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
    raise CatalogueError("model.part_missing", f"{folder.name} has no {SINGLE} and no {INDEX}")


def _indexed(folder: Path) -> Mapping[Path, frozenset[str]]:
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise CatalogueError("model.config_invalid", f"{INDEX}: weight_map is missing")
    names: dict[Path, set[str]] = {}
    for name, file in places.items():
        if not isinstance(file, str) or Path(file).name != file:
            message = f"{INDEX}: {name} is in no file of this folder"
            raise CatalogueError("model.config_invalid", message)
        names.setdefault(folder / file, set()).add(name)
    for path in names:
        if not path.is_file():
            message = f"{path.name}, one of {len(names)} parts of the model, is missing"
            raise CatalogueError("model.part_missing", message, hint="fetch the model again")
    return {path: frozenset(found) for path, found in names.items()}
