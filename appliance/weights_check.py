"""Whether a model's file is sound, and what its header says: asked of a process of its own.

A broken file must not end this process, and what reads it belongs to the engines.
"""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from appliance.errors import CatalogueError


class WeightsFacts(Struct, frozen=True, kw_only=True):
    """The context a model was trained for, what a token of a running sequence takes, how many
    numbers its weights are; 0: not known.
    """

    context_length: int = 0
    kv_bytes_per_token: int = 0
    num_weights: int = 0


class _Broken(Struct, frozen=True, kw_only=True):
    what: str
    offset: int = 0


class _Verdict(Struct, frozen=True, kw_only=True):
    facts: WeightsFacts | None = None
    broken: _Broken | None = None
    kv_bytes_per_token: int = 0


def check_weights(path: Path) -> WeightsFacts:
    """The facts of a sound GGUF file or Hugging Face folder.

    Raises CatalogueError `model.file_broken`.
    """
    module = "engines.pytorch.folder_check" if path.is_dir() else "engines.llamacpp.gguf_check"
    done = subprocess.run(
        [sys.executable, "-m", module, os.fspath(path)],
        capture_output=True,
        check=False,
    )
    try:
        verdict = msgspec.json.decode(done.stdout, type=_Verdict)
    except msgspec.DecodeError:  # it was ended by a limit before it could say
        verdict = _Verdict()
    if verdict.facts is None:
        raise CatalogueError(
            "model.file_broken",
            f"{path.name} cannot be used: {_complaint(verdict)}",
            hint="take the file from its source again",
        )
    return msgspec.structs.replace(verdict.facts, kv_bytes_per_token=verdict.kv_bytes_per_token)


def _complaint(verdict: _Verdict) -> str:
    broken = verdict.broken
    if broken is None:
        return "its header cannot be read"
    return f"{broken.what} (byte {broken.offset})" if broken.offset else broken.what
