"""The batch that llama_decode reads, filled through numpy arrays that this file owns."""

import ctypes
from typing import Any

import llama_cpp.llama_cpp as llama
import numpy as np
from numpy.typing import NDArray

from engines.row_answers import num_rows
from engines.runner import Chunk


class Batch:
    """Room for `max_tokens` tokens of sequences up to `context_tokens` long.

    `struct` is what libllama takes; it points into our arrays.
    """

    def __init__(self, max_tokens: int, context_tokens: int) -> None:
        self._token_ids = np.zeros(max_tokens, np.int32)
        self._positions = np.zeros(max_tokens, np.int32)
        self._slots = np.zeros(max_tokens, np.int32)
        self._wants_logits = np.zeros(max_tokens, np.int8)
        self._counting = np.arange(context_tokens, dtype=np.int32)
        self._num_slots = np.ones(max_tokens, np.int32)
        self._slot_pointers = self._slots.ctypes.data + np.arange(max_tokens, dtype=np.uint64) * 4
        self.struct = llama.llama_batch(
            n_tokens=0,
            token=_pointer(self._token_ids, ctypes.POINTER(llama.llama_token)),
            embd=None,
            pos=_pointer(self._positions, ctypes.POINTER(llama.llama_pos)),
            n_seq_id=_pointer(self._num_slots, ctypes.POINTER(ctypes.c_int32)),
            seq_id=_pointer(
                self._slot_pointers, ctypes.POINTER(ctypes.POINTER(llama.llama_seq_id))
            ),
            logits=_pointer(self._wants_logits, ctypes.POINTER(ctypes.c_int8)),
        )

    def clear(self) -> None:
        """Empty the batch."""
        self.struct.n_tokens = 0

    def add(self, chunk: Chunk, slot: int) -> None:
        """Append a chunk of the sequence in `slot`."""
        num_tokens = chunk.length + len(chunk.drafts)
        if num_tokens == 1:  # most are: 32 take 7 us as plain numbers, 94 as slices
            self._add_one(chunk, slot)
            return
        begin = self.struct.n_tokens
        end = begin + num_tokens
        known = chunk.sequence.token_ids[chunk.start : chunk.start + chunk.length]
        self._token_ids[begin:end] = [*known, *chunk.drafts]
        self._positions[begin:end] = self._counting[chunk.start : chunk.start + num_tokens]
        self._slots[begin:end] = slot
        self._wants_logits[begin:end] = 0
        self._wants_logits[end - num_rows(chunk) : end] = 1
        self.struct.n_tokens = end

    def _add_one(self, chunk: Chunk, slot: int) -> None:
        at = self.struct.n_tokens
        self._token_ids[at] = chunk.sequence.token_ids[chunk.start]
        self._positions[at] = chunk.start
        self._slots[at] = slot
        self._wants_logits[at] = num_rows(chunk)
        self.struct.n_tokens = at + 1

    def add_input(self, token_ids: list[int], slot: int) -> None:
        """Append a whole text, to be embedded in `slot`."""
        begin = self.struct.n_tokens
        end = begin + len(token_ids)
        self._token_ids[begin:end] = token_ids
        self._positions[begin:end] = self._counting[: len(token_ids)]
        self._slots[begin:end] = slot
        self._wants_logits[begin:end] = 1
        self.struct.n_tokens = end


def _pointer(array: NDArray[Any], kind: Any) -> Any:  # noqa: ANN401  ctypes pointers have no common type
    return array.ctypes.data_as(kind)
