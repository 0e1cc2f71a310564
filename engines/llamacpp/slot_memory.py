"""What llama.cpp's memory of one context holds, carried about as KvCells decides."""

import ctypes
from typing import Any, TypeAlias

import llama_cpp.llama_cpp as llama
import numpy as np
from numpy.typing import NDArray

from appliance.errors import EngineError
from engines.llamacpp.kv_cells import Load, Move, Order, Save

_State: TypeAlias = NDArray[np.uint8]


class SlotMemory:
    """The slots of one context; with `is_all_in_state` a state is all that is in one."""

    def __init__(self, context: Any, *, is_all_in_state: bool) -> None:  # noqa: ANN401
        self._context = context
        self._memory: Any = llama.llama_get_memory(context)
        self._is_all_in_state = is_all_in_state
        # Kept for the next copy: memory that is new to a process costs more than filling it.
        self._passing: _State = np.empty(0, np.uint8)

    def carry_out(self, order: Order) -> None:
        """Do as KvCells says."""
        if isinstance(order, Save):
            state = order.state
            state.data = np.empty(self._size(order.slot), np.uint8)
            self._read(order.slot, state.data)
        elif isinstance(order, Load):
            self._write(order.slot, order.state.data)
            self.trim(order.slot, order.num_tokens)
        else:
            self._move(order)

    def trim(self, slot: int, num_tokens: int) -> None:
        """Forget all but the first tokens of a slot."""
        llama.llama_memory_seq_rm(self._memory, slot, num_tokens, -1)

    def _move(self, move: Move) -> None:
        if move.source != move.destination:
            self._copy(move.source, move.destination)
        self.trim(move.destination, move.num_tokens)

    def _copy(self, source: int, destination: int) -> None:
        """Through a state where that is all.

        libllama's own copy moves no byte before the next llama_decode: a state that is read or
        written until then would be of what was there before, or be lost. Of a 135M model it takes
        16 ms for 4,096 cells, used or not; a state takes 3 ms for 600 tokens and 26 ms for 3,000.
        """
        if not self._is_all_in_state:
            self.trim(destination, 0)
            llama.llama_memory_seq_cp(self._memory, source, destination, -1, -1)
            return
        size = self._size(source)
        if len(self._passing) < size:
            self._passing = np.empty(size, np.uint8)
        self._read(source, self._passing[:size])
        self._write(destination, self._passing[:size])

    def _size(self, slot: int) -> int:
        size: int = llama.llama_state_seq_get_size(self._context, slot)
        return size

    def _read(self, slot: int, state: _State) -> None:
        _require(llama.llama_state_seq_get_data(self._context, _at(state), len(state), slot), state)

    def _write(self, slot: int, state: _State) -> None:
        _require(llama.llama_state_seq_set_data(self._context, _at(state), len(state), slot), state)


def _at(state: _State) -> Any:  # noqa: ANN401  ctypes pointers have no common type
    return state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


def _require(num_bytes: int, state: _State) -> None:
    """Raises EngineError: a slot that holds another thing than it should is worse than none."""
    if num_bytes != len(state):
        raise EngineError("engine.decode_failed", "llama.cpp did not copy the state of a slot")
