"""llama_decode without a server around it: what a format can do is measured on this."""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import llama_cpp.llama_cpp as llama
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from appliance.errors import EngineError
from engines.llamacpp.tokenizer import LlamaTokenizer
from engines.llamacpp.weights import open_model

# Tokens of one sequence, and of one llama_decode: as the engine's own steps.
SEQUENCE_TOKENS: Final = 256


class Token(Struct, frozen=True, kw_only=True):
    """One row of a batch."""

    token_id: int
    position: int
    sequence: int
    wants_logits: bool = False


class Decoder:
    """A loaded model and a context for `num_sequences` sequences of 256 tokens each."""

    def __init__(self, model: Any, *, num_sequences: int, num_threads: int) -> None:  # noqa: ANN401
        params = llama.llama_context_default_params()
        params.n_ctx = SEQUENCE_TOKENS * num_sequences
        params.n_seq_max = num_sequences
        params.n_batch = params.n_ubatch = SEQUENCE_TOKENS
        params.n_threads = params.n_threads_batch = num_threads
        params.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_DISABLED  # as the engine
        params.kv_unified = False
        params.no_perf = True
        self._context = llama.llama_init_from_model(model, params)
        if not self._context:
            message = f"llama.cpp cannot set up {num_sequences} sequences to measure with"
            raise EngineError("engine.context_refused", message)
        self._memory: Any = llama.llama_get_memory(self._context)
        self._batch: Any = llama.llama_batch_init(SEQUENCE_TOKENS, 0, 1)
        self.tokenizer = LlamaTokenizer(model)

    def compute(self, tokens: Sequence[Token]) -> NDArray[np.float32]:
        """The logits asked for, a row each, in order; valid until the next call.

        Raises EngineError `engine.decode_failed`.
        """
        for at, token in enumerate(tokens):
            self._batch.token[at] = token.token_id
            self._batch.pos[at] = token.position
            self._batch.n_seq_id[at] = 1
            self._batch.seq_id[at][0] = token.sequence
            self._batch.logits[at] = token.wants_logits
        self._batch.n_tokens = len(tokens)
        if status := llama.llama_decode(self._context, self._batch):
            raise EngineError("engine.decode_failed", f"llama.cpp could not compute ({status})")
        num_rows = sum(token.wants_logits for token in tokens)
        logits: Any = llama.llama_get_logits(self._context)
        shape = (num_rows, self.tokenizer.vocabulary_size)
        return np.ctypeslib.as_array(logits, shape) if num_rows else np.empty(shape, np.float32)

    def forget(self) -> None:
        """Empty every sequence."""
        llama.llama_memory_clear(self._memory, ctypes.c_bool(True))

    def close(self) -> None:
        """Free the context."""
        llama.llama_batch_free(self._batch)
        llama.llama_free(self._context)


@contextmanager
def decoding(path: Path, *, num_sequences: int, num_threads: int) -> Iterator[Decoder]:
    """A Decoder of a model file, loaded for the length of the block."""
    model = open_model(path)
    try:
        decoder = Decoder(model, num_sequences=num_sequences, num_threads=num_threads)
        try:
            yield decoder
        finally:
            decoder.close()
    finally:
        llama.llama_model_free(model)


def a_sequence(token_ids: Sequence[int], *, sequence: int = 0, num_logits: int = 0) -> list[Token]:
    """The rows of one whole sequence; the last `num_logits` want logits."""
    first = len(token_ids) - num_logits
    return [
        Token(token_id=token_id, position=at, sequence=sequence, wants_logits=at >= first)
        for at, token_id in enumerate(token_ids)
    ]
