"""What llama.cpp computes in 32 bits and without flash attention: the measure of our logits."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as llama
import numpy as np
from numpy.typing import NDArray

from engines.llamacpp.library import load_library


def repack(source: Path, target: Path, file_type: int = llama.LLAMA_FTYPE_ALL_F32) -> Path:
    """The model with its weights in another format; by default in 32 bits, as llama.cpp unpacks."""
    load_library()
    params = llama.llama_model_quantize_default_params()
    params.ftype = file_type
    params.allow_requantize = True
    params.nthread = 2
    assert llama.llama_model_quantize(str(source).encode(), str(target).encode(), params) == 0
    return target


@contextmanager
def open_context(path: Path, *, num_tokens: int, num_sequences: int = 1) -> Iterator[Any]:
    """A context with room for so many tokens, all of which may come at once."""
    load_library()
    model = llama.llama_model_load_from_file(str(path).encode(), llama.llama_model_default_params())
    assert model
    params = llama.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = num_tokens
    params.n_seq_max = num_sequences
    params.kv_unified = True
    params.n_threads = params.n_threads_batch = 2
    params.type_k = params.type_v = 0  # GGML_TYPE_F32
    params.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama.llama_init_from_model(model, params)
    yield context
    llama.llama_free(context)
    llama.llama_model_free(model)


def step(
    context: Any, sequences: dict[int, list[int]], *, start: int = 0, num_rows: int
) -> NDArray[np.float32]:
    """Compute new tokens of sequences that are all at `start`.

    The logits after the last `num_rows` tokens of each, one sequence below the other.
    """
    batch = llama.llama_batch_init(sum(map(len, sequences.values())), 0, 1)
    for sequence, token_ids in sequences.items():
        for number, token_id in enumerate(token_ids):
            at = batch.n_tokens
            batch.token[at], batch.pos[at] = token_id, start + number
            batch.n_seq_id[at], batch.seq_id[at][0] = 1, sequence
            batch.logits[at] = number >= len(token_ids) - num_rows
            batch.n_tokens += 1
    assert llama.llama_decode(context, batch) == 0
    llama.llama_batch_free(batch)
    vocabulary = llama.llama_model_get_vocab(llama.llama_get_model(context))
    shape = (len(sequences) * num_rows, llama.llama_vocab_n_tokens(vocabulary))
    return np.ctypeslib.as_array(llama.llama_get_logits(context), shape).copy()
