"""What a Hugging Face folder says of its model, told without torch and without reading a weight.

`python -m engines.pytorch.folder_check PATH` prints one line of JSON: the facts, or what is broken.
The weights themselves are checked when the model is loaded.
"""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from appliance.errors import CatalogueError
from engines.pytorch.hf_config import read_hf_config
from engines.pytorch.model_config import ModelConfig
from engines.pytorch.safetensors_files import find_files

# A header lists the tensors of one file: 100,000 of them take less.
_MAX_HEADER_BYTES: Final = 64 * 1024 * 1024
_KV_NUMBER_BYTES: Final = 2
_TOKENIZER: Final = "tokenizer.json"


class FolderFacts(Struct, frozen=True, kw_only=True):
    """The context a model was trained for, and how many numbers its tensors have."""

    context_length: int
    num_weights: int


class Broken(Struct, frozen=True, kw_only=True):
    """What is wrong."""

    what: str


class Verdict(Struct, frozen=True, kw_only=True):
    """The one line of output: exactly one of the first two is set."""

    facts: FolderFacts | None = None
    broken: Broken | None = None
    kv_bytes_per_token: int = 0


def judge(folder: Path) -> Verdict:
    """The verdict on a folder."""
    try:
        config = read_hf_config(folder)
        num_weights = sum(map(_count_weights, find_files(folder)))
        _require_tokenizer(folder)
    except CatalogueError as error:
        return Verdict(broken=Broken(what=error.message))
    return Verdict(
        facts=FolderFacts(context_length=config.context_length, num_weights=num_weights),
        kv_bytes_per_token=_kv_bytes_per_token(config),
    )


def _require_tokenizer(folder: Path) -> None:
    if not (folder / _TOKENIZER).is_file():
        raise CatalogueError("model.tokenizer_broken", f"{folder.name} has no {_TOKENIZER}")


def _kv_bytes_per_token(config: ModelConfig) -> int:
    return 2 * len(config.layers) * config.num_kv_heads * config.head_dim * _KV_NUMBER_BYTES


def _count_weights(path: Path) -> int:
    """The numbers in one file, by its header (the safetensors format: a length, then JSON)."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= _MAX_HEADER_BYTES:
            raise _broken(path, "has no header of safetensors")
        header = file.read(length)
        num_bytes = path.stat().st_size - file.tell()
    num_weights, num_described = _read_header(path, header)
    if num_bytes < num_described:
        raise _broken(path, f"ends early: {num_described - num_bytes} bytes are missing")
    return num_weights


def _read_header(path: Path, header: bytes) -> tuple[int, int]:
    """How many numbers it describes, and how many bytes."""
    try:
        described: dict[str, Any] = json.loads(header)
        tensors = [tensor for name, tensor in described.items() if name != "__metadata__"]
        num_weights = sum(math.prod(tensor["shape"]) for tensor in tensors)
        return num_weights, max((int(tensor["data_offsets"][1]) for tensor in tensors), default=0)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise _broken(path, "has no header of safetensors") from None


def _broken(path: Path, what: str) -> CatalogueError:
    return CatalogueError("model.file_broken", f"{path.name} {what}")


def main(path: str, write: Callable[[str], object]) -> None:
    """Judge, and write the verdict."""
    write(msgspec.json.encode(judge(Path(path))).decode())


if __name__ == "__main__":
    main(sys.argv[1], sys.stdout.write)
