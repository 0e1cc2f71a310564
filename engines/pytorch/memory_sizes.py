"""How many blocks of keys and values a model gets, and how many sequences: byte arithmetic only."""

from typing import Final

from msgspec import Struct

from appliance.errors import MachineError
from engines.context_tokens import choose_context_tokens
from engines.pytorch.kv_blocks import BLOCK_TOKENS
from engines.runner import RunnerOptions

# Sequences at a time where nobody says how many.
CPU_SLOTS: Final = 16
GPU_SLOTS: Final = 256
# The part of main memory that keys and values may take when nobody says how many sequences.
_MEMORY_SHARE: Final = 0.25
# The part of a GPU's memory that all of it together may take; the rest is for its driver, and for
# what an allocator cannot use for being in pieces.
_GPU_SHARE: Final = 0.92


class Sizes(Struct, frozen=True, kw_only=True):
    """`context_tokens` bounds a sequence. Beyond the blocks, `num_places` may be saved."""

    context_tokens: int
    num_slots: int
    num_blocks: int
    num_places: int = 0


class GpuUse(Struct, frozen=True, kw_only=True):
    """What a GPU has, and what a model takes of it before keys and values, in bytes.

    `activation_bytes` is what the largest step takes on top for as long as it lasts, `graph_bytes`
    what captured graphs keep.
    """

    total_bytes: int
    others_bytes: int
    weights_bytes: int
    activation_bytes: int
    graph_bytes: int

    @property
    def kv_room_bytes(self) -> int:
        """What is left for keys and values."""
        taken = self.others_bytes + self.weights_bytes + self.activation_bytes + self.graph_bytes
        return max(0, int(self.total_bytes * _GPU_SHARE) - taken)


def choose_cpu_sizes(
    options: RunnerOptions, *, trained: int, token_bytes: int, room_bytes: int
) -> Sizes:
    """Blocks in main memory. What prefixes may take are more of them: nothing is to be copied.

    Raises ConfigError `engine.context_too_long`, MachineError `engine.memory_short`.
    """
    context_tokens = choose_context_tokens(options.context_tokens, trained)
    num_slots = options.num_slots or CPU_SLOTS
    share = 1.0 if options.num_slots else _MEMORY_SHARE
    block_bytes = BLOCK_TOKENS * token_bytes
    num_wanted = num_slots * num_blocks_for(context_tokens)
    num_affordable = max(int(room_bytes * share) // block_bytes, num_blocks_for(context_tokens))
    _require(context_tokens, token_bytes, room_bytes)
    return Sizes(
        context_tokens=context_tokens,
        num_slots=num_slots,
        num_blocks=min(num_wanted, num_affordable) + options.prefix_bytes // block_bytes,
    )


def choose_gpu_sizes(
    options: RunnerOptions, *, trained: int, token_bytes: int, use: GpuUse
) -> Sizes:
    """Blocks in a GPU's memory: all there is room for. Prefixes beyond them are saved on the host.

    Raises ConfigError `engine.context_too_long`, MachineError `engine.memory_short`.
    """
    context_tokens = choose_context_tokens(options.context_tokens, trained)
    _require(context_tokens, token_bytes, use.kv_room_bytes)
    block_bytes = BLOCK_TOKENS * token_bytes
    return Sizes(
        context_tokens=context_tokens,
        num_slots=options.num_slots or GPU_SLOTS,
        num_blocks=use.kv_room_bytes // block_bytes,
        num_places=options.prefix_bytes // block_bytes,
    )


def num_blocks_for(num_tokens: int) -> int:
    """Blocks that so many tokens of one sequence fill."""
    return -(-num_tokens // BLOCK_TOKENS)


def _require(context_tokens: int, token_bytes: int, room_bytes: int) -> None:
    needed_bytes = num_blocks_for(context_tokens) * BLOCK_TOKENS * token_bytes
    if needed_bytes > room_bytes:
        raise MachineError(
            "engine.memory_short",
            f"keys and values of {context_tokens} tokens need {needed_bytes >> 20} MiB of memory;"
            f" {room_bytes >> 20} MiB are left for them",
            hint="set a smaller context_tokens for this model",
        )
