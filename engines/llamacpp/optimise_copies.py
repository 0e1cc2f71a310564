"""Copies of a model file in other formats, made by libllama, where disk and memory allow."""

import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import llama_cpp.llama_cpp as llama
import psutil
from msgspec import Struct

from appliance.optimise_records import LeftOut
from appliance.sources.fetching import Fetching, free_bytes, megabytes
from engines.llamacpp.library import load_library

# Bits a weight takes at most in a format: Q4_0 keeps the output tensor in 8 bits, and a model may
# be little more than its output tensor.
_MOST_BITS: Final = {"Q4_0": 8.5, "Q8_0": 8.5, "BF16": 16.5}
# Room for the header: vocabulary and chat template.
_HEADER_BYTES: Final = 32 * 1024 * 1024
_NAMES: Final[dict[int, str]] = {
    value: name.removeprefix("LLAMA_FTYPE_").removeprefix("MOSTLY_").removeprefix("ALL_")
    for name, value in vars(llama).items()
    if name.startswith("LLAMA_FTYPE_")
}
FORMATS: Final = tuple(_MOST_BITS)
_UNQUANTISED: Final = frozenset({"F32", "F16", "BF16"})


class Original(Struct, frozen=True, kw_only=True):
    """A model file as it came; `format` is empty where the header does not name one we know."""

    path: Path
    format: str
    num_weights: int

    @property
    def is_quantised(self) -> bool:
        """Whether a copy's loss comes on top of a loss."""
        return self.format not in _UNQUANTISED


def format_name(file_type: int) -> str:
    """libllama's name of a file type in a header, as in `Q4_0`."""
    return _NAMES.get(file_type, "")


def make_copies(
    original: Original,
    folder: Path,
    *,
    wanted: Sequence[str],
    num_threads: int,
    tell: Callable[[str], None],
    free_space: Callable[[Path], int] = free_bytes,
) -> tuple[dict[str, Path], tuple[LeftOut, ...]]:
    """The copies by format, and the formats that this model or machine does not allow.

    Raises MachineError `machine.disk_full` before the first byte.
    """
    left_out: list[LeftOut] = []
    others = [name for name in wanted if name != original.format]
    fitting = [name for name in others if _fits(original, name, left_out)]
    sizes = (_most_bytes(original, name) for name in fitting)
    Fetching(folder=folder, free_bytes=free_space).reserve(sum(sizes))
    copies: dict[str, Path] = {}
    for name in fitting:
        tell(f"copying the model to {name}")
        path = folder / f"{original.path.stem}.{name}.gguf"
        if fault := _quantise(original.path, path, name, num_threads):
            left_out.append(LeftOut(format=name, reason=fault))
            path.unlink(missing_ok=True)
        else:
            copies[name] = path
    return copies, tuple(left_out)


def _most_bytes(original: Original, name: str) -> int:
    return int(original.num_weights * _MOST_BITS[name] / 8) + _HEADER_BYTES


def _fits(original: Original, name: str, left_out: list[LeftOut]) -> bool:
    """Whether a copy would find memory; where not, that is noted."""
    need, available = _most_bytes(original, name), psutil.virtual_memory().available
    if need <= available:
        return True
    reason = f"needs up to {megabytes(need)} of memory, {megabytes(available)} are free"
    left_out.append(LeftOut(format=name, reason=reason))
    return False


def _quantise(source: Path, destination: Path, name: str, num_threads: int) -> str:
    """Why there is no copy; empty where there is one."""
    library = load_library()
    library.first_error = ""
    params = llama.llama_model_quantize_default_params()
    params.ftype = next(value for value, known in _NAMES.items() if known == name)
    params.nthread = num_threads
    params.allow_requantize = True
    status = llama.llama_model_quantize(
        os.fsencode(source), os.fsencode(destination), ctypes.byref(params)
    )
    if status == 0 and destination.is_file():
        return ""
    return library.first_error or f"llama.cpp answered {status}"
