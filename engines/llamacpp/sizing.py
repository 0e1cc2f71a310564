"""How many slots of how many tokens a model gets: byte arithmetic only."""

from typing import Final

from msgspec import Struct

from appliance.errors import MachineError
from engines.context_tokens import choose_context_tokens
from engines.llamacpp.gguf_check import GgufFacts
from engines.runner import RunnerOptions

MAX_DEFAULT_SLOTS: Final = 16
# The part of the available memory that keys and values may take when nobody says how many slots.
_MEMORY_SHARE: Final = 0.25
# Without flash attention a graph keeps a score for each of its tokens, heads and cells at once.
_SCORES_BYTES: Final = 64 * 1024 * 1024
_LEAST_GRAPH_TOKENS: Final = 32
# llama.cpp pads a slot to this many cells.
_CELLS: Final = 256


class Sizes(Struct, frozen=True, kw_only=True):
    """`context_tokens` bounds a sequence; a slot has `slot_cells`, at least as many.

    A cell takes `cell_bytes`. Beyond the slots, `saved_tokens` may be remembered. No more than
    `graph_tokens` are computed at once.
    """

    context_tokens: int
    slot_cells: int
    num_slots: int
    cell_bytes: int
    saved_tokens: int = 0
    graph_tokens: int = _LEAST_GRAPH_TOKENS


def choose_sizes(options: RunnerOptions, facts: GgufFacts, available_bytes: int) -> Sizes:
    """The sizes asked for, or those that suit the model and the machine.

    Raises ConfigError `engine.context_too_long`, MachineError `engine.memory_short`.
    """
    context_tokens = choose_context_tokens(options.context_tokens, facts.context_length)
    slot_cells = -(-context_tokens // _CELLS) * _CELLS
    slot_bytes = slot_cells * facts.kv_bytes_per_token
    affordable = int(available_bytes * _MEMORY_SHARE) // max(1, slot_bytes)
    num_slots = options.num_slots or min(max(affordable, 1), MAX_DEFAULT_SLOTS)
    if num_slots * slot_bytes > available_bytes:
        raise MachineError(
            "engine.memory_short",
            f"{num_slots} slots of {context_tokens} tokens need {num_slots * slot_bytes >> 20} MiB"
            f" of memory; {available_bytes >> 20} MiB are available",
            hint="set a smaller context_tokens or fewer slots for this model",
        )
    return Sizes(
        context_tokens=context_tokens,
        slot_cells=slot_cells,
        num_slots=num_slots,
        cell_bytes=facts.kv_bytes_per_token,
        saved_tokens=options.prefix_bytes // max(1, facts.kv_bytes_per_token),
        graph_tokens=_choose_graph_tokens(slot_cells, facts.num_heads),
    )


def _choose_graph_tokens(slot_cells: int, num_heads: int) -> int:
    """So many that their scores, 4 bytes each, keep to their room."""
    token_bytes = 4 * slot_cells * max(1, num_heads)
    return max(_LEAST_GRAPH_TOKENS, _SCORES_BYTES // token_bytes)
