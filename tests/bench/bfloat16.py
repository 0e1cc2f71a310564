"""The small model in bfloat16, made once: the file our engine reads and the folder vLLM does."""

import os
import subprocess
from pathlib import Path

from engines.llamacpp.optimise_copies import Original, make_copies
from tests.bench.rivals import FOLDER, Rival
from tests.small_model import PATH

_NUM_WEIGHTS = 134_515_008
_TO_FOLDER = Path(__file__).with_name("vllm_weights.py")


def gguf_file() -> Path:
    """For our engine."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    copy = FOLDER / f"{PATH.stem}.BF16.gguf"
    if not copy.exists():
        original = Original(path=PATH, format="Q4_1", num_weights=_NUM_WEIGHTS)
        num_threads = len(os.sched_getaffinity(0))
        make_copies(original, FOLDER, wanted=["BF16"], num_threads=num_threads, tell=print)
    return copy


def vllm_folder(rival: Rival) -> Path:
    """For vLLM, written by its own libraries."""
    folder = FOLDER / f"{PATH.stem}.BF16"
    if not (folder / "config.json").exists():
        subprocess.run([rival.python, _TO_FOLDER, PATH, folder], check=True)
    return folder
