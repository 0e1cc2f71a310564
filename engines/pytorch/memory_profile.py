"""What a model takes of a GPU beside keys and values: found out by computing the worst steps."""

from typing import Final

import torch

from engines.prompt_shares import MOST_SCORED_TOKENS
from engines.pytorch.graphs import graph_sizes
from engines.pytorch.kv_blocks import BLOCK_TOKENS
from engines.pytorch.kv_cache import KvShape, LayerCache, allocate
from engines.pytorch.memory_sizes import GpuUse, num_blocks_for
from engines.pytorch.models import Model
from engines.pytorch.step_inputs import StepInputs

# Copies of a step's logits, as float32, that sampling makes at most.
_LOGITS_COPIES: Final = 4
# What a captured graph keeps beyond the memory that all graphs share.
_GRAPH_BYTES: Final = 4 * 1024 * 1024


def measure_use(
    model: Model, shape: KvShape, *, step_tokens: int, num_slots: int, context_tokens: int
) -> GpuUse:
    """Compute a step full of prompts, and one in which `num_slots` sequences decode."""
    device = torch.device("cuda", torch.cuda.current_device())
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    others_bytes = total_bytes - free_bytes - torch.cuda.memory_reserved(device)
    num_blocks = num_blocks_for(step_tokens)
    cache = allocate(shape, num_blocks=num_blocks, block_size=BLOCK_TOKENS, device=device)
    length = min(step_tokens, context_tokens)
    prompts = step_of(step_tokens // length, length, device=device)
    prompt_bytes = _peak_bytes(model, prompts, cache)
    decode_bytes = _peak_bytes(model, step_of(num_slots, 1, device=device), cache)
    del cache
    torch.cuda.empty_cache()
    num_rows = num_slots + MOST_SCORED_TOKENS
    logits_bytes = num_rows * model.facts.vocabulary_size * torch.float32.itemsize
    return GpuUse(
        total_bytes=total_bytes,
        others_bytes=max(0, others_bytes),
        weights_bytes=torch.cuda.memory_allocated(device),
        activation_bytes=max(prompt_bytes, decode_bytes) + _LOGITS_COPIES * logits_bytes,
        graph_bytes=decode_bytes + _GRAPH_BYTES * len(graph_sizes(num_slots)),
    )


def step_of(num_sequences: int, length: int, *, device: torch.device) -> StepInputs:
    """So many sequences of as many new tokens, all in the same blocks; each wants its last row."""
    counting = torch.arange(num_sequences * length, device=device)
    num_blocks = num_blocks_for(length)
    blocks = torch.arange(num_blocks, dtype=torch.int32, device=device)
    starts = torch.arange(num_sequences + 1, dtype=torch.int32, device=device) * length
    return StepInputs(
        token_ids=torch.zeros_like(counting),
        positions=counting % length,
        slots=counting % length,
        query_starts=starts,
        context_lengths=torch.full_like(starts[1:], length),
        block_tables=blocks.repeat(num_sequences, 1),
        output_rows=starts[1:].long() - 1,
        max_query_length=length,
    )


@torch.inference_mode()
def _peak_bytes(model: Model, inputs: StepInputs, cache: tuple[LayerCache, ...]) -> int:
    """What a step takes at most while it is computed."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    model.forward(inputs, cache)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before
