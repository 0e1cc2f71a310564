"""What flash attention, and keys and values of 8 bits, cost or bring on this processor.

`python -m tests.bench.attention [MODEL]` prints prompt tokens a second and the time of a step after
it, for each way of attending and several lengths: llama_decode alone, in turns.
"""

import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import llama_cpp.llama_cpp as llama
from msgspec import Struct

from engines.llamacpp.library import load_library
from tests.small_model import PATH

SHAPES: Final = ((60, 8), (600, 1), (2000, 1), (4000, 1), (600, 8), (400, 16))
NUM_STEPS: Final = 12
BATCH_TOKENS: Final = 256
_SLOT_CELLS: Final = 8192
_F16: Final = 1  # ggml.h
_Q8_0: Final = 8


class Way(Struct, frozen=True):
    """How a context attends."""

    name: str
    kv_type: int
    has_flash: bool


WAYS: Final = (
    Way("f16, flash", _F16, True),
    Way("f16, without", _F16, False),
    Way("q8_0, flash", _Q8_0, True),
)


def main(path: Path) -> None:
    """Measure and print."""
    load_library()
    model = llama.llama_model_load_from_file(os.fsencode(path), llama.llama_model_default_params())
    for num_tokens, num_sequences in SHAPES:
        for way in WAYS:
            rate, step_ms = measure(model, way, num_tokens, num_sequences)
            print(
                f"{num_tokens} tokens, {num_sequences} sequences, {way.name}:"
                f" prompt {rate:.0f} tokens/s, step {step_ms:.1f} ms",
                flush=True,
            )
    llama.llama_model_free(model)


def measure(model: Any, way: Way, num_tokens: int, num_sequences: int) -> tuple[float, float]:
    """Prompt tokens a second, and the median milliseconds of a step after that prompt."""
    batch = llama.llama_batch_init(BATCH_TOKENS, 0, 1)
    with _context(model, way, num_sequences) as context:
        started = time.perf_counter()
        for sequence in range(num_sequences):
            for start in range(0, num_tokens, BATCH_TOKENS):
                end = min(start + BATCH_TOKENS, num_tokens)
                _decode(context, batch, [(at, sequence) for at in range(start, end)])
        rate = num_tokens * num_sequences / (time.perf_counter() - started)
        steps = []
        for at in range(num_tokens, num_tokens + NUM_STEPS):
            started = time.perf_counter()
            places = [(at, sequence) for sequence in range(num_sequences)]
            _decode(context, batch, places, samples=True)
            steps.append(1000 * (time.perf_counter() - started))
    llama.llama_batch_free(batch)
    return rate, median(steps)


@contextmanager
def _context(model: Any, way: Way, num_sequences: int) -> Any:
    params = llama.llama_context_default_params()
    params.n_ctx = _SLOT_CELLS * num_sequences
    params.n_seq_max = num_sequences
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    params.n_threads = params.n_threads_batch = len(os.sched_getaffinity(0))
    params.flash_attn_type = int(way.has_flash)
    params.type_k = params.type_v = way.kv_type
    params.kv_unified = False
    params.no_perf = True
    context = llama.llama_init_from_model(model, params)
    yield context
    llama.llama_free(context)


def _decode(
    context: Any, batch: Any, places: list[tuple[int, int]], *, samples: bool = False
) -> None:
    """One token at each place, a position and a sequence; which token makes no difference."""
    batch.n_tokens = len(places)
    for i, (position, sequence) in enumerate(places):
        batch.token[i] = 100 + position
        batch.pos[i] = position
        batch.n_seq_id[i] = 1
        batch.seq_id[i][0] = sequence
        batch.logits[i] = samples
    if llama.llama_decode(context, batch):
        raise SystemExit("llama_decode failed")
    llama.llama_synchronize(context)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PATH)
