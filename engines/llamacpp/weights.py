"""How a model file is opened: judged in a process of its own first, then mapped by libllama.

What is said of a file reaches callers, so it names the file and not the folders it lies in.
"""

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import llama_cpp.llama_cpp as llama
import msgspec

from appliance.errors import CatalogueError
from engines.llamacpp.gguf_check import GgufFacts, Verdict
from engines.llamacpp.library import load_library

_LONGEST_VALUE_BYTES: Final = 256
_HINT = "fetch the model again, or ask its source for a whole file"


def check_file(path: Path) -> GgufFacts:
    """The facts of a sound file.

    Raises CatalogueError `model.file_unreadable`, `model.file_broken` or `model.file_split`.
    """
    try:
        path.open("rb").close()
    except OSError as error:
        message = f"{path.name} cannot be opened: {error.strerror}"
        raise CatalogueError("model.file_unreadable", message) from None
    command = [sys.executable, "-m", "engines.llamacpp.gguf_check", str(path)]
    ended = subprocess.run(command, capture_output=True, check=False)
    if ended.returncode != 0:
        message = f"{path.name}: its header cannot be read within bounds of time and memory"
        raise CatalogueError("model.file_broken", message, hint=_HINT)
    return _require_facts(path, msgspec.json.decode(ended.stdout, type=Verdict))


def _require_facts(path: Path, verdict: Verdict) -> GgufFacts:
    if verdict.facts is None:
        where = "" if verdict.broken is None else f"{verdict.broken.what}, at byte "
        offset = "" if verdict.broken is None else f"{verdict.broken.offset}"
        raise CatalogueError("model.file_broken", f"{path.name}: {where}{offset}", hint=_HINT)
    if verdict.facts.num_parts > 1:
        raise CatalogueError(
            "model.file_split",
            f"{path.name} is one of {verdict.facts.num_parts} parts",
            hint="join the parts with llama-gguf-split --merge",
        )
    return verdict.facts


def open_model(path: Path, *, repacks: bool = True) -> Any:  # noqa: ANN401
    """libllama's model; `repacks` weights that the processor has faster kernels for.

    Raises CatalogueError `model.file_refused` with libllama's own reason.
    """
    library = load_library()
    library.first_error = ""
    params = llama.llama_model_default_params()
    params.use_extra_bufts = repacks
    model = llama.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        reason = library.first_error.replace(str(path), path.name) or "it gives no reason"
        message = f"llama.cpp does not open {path.name}: {reason}"
        raise CatalogueError("model.file_refused", message)
    return model


def read_metadata(model: Any, key: str) -> str:  # noqa: ANN401
    """A value of the file's header as text; empty where it has none."""
    buffer = ctypes.create_string_buffer(_LONGEST_VALUE_BYTES)
    length = llama.llama_model_meta_val_str(model, key.encode(), buffer, _LONGEST_VALUE_BYTES)
    return buffer.value.decode(errors="replace") if length >= 0 else ""
