"""Steps to try kernels on: sequences in scattered blocks, and NaN in all that is nobody's."""

from collections.abc import Sequence

import torch
from msgspec import Struct
from torch import Tensor

from engines.pytorch.kernels.kv_store import store_kv
from engines.pytorch.kv_cache import KvShape, LayerCache, allocate
from engines.pytorch.step_inputs import StepInputs


class Heads(Struct, frozen=True, kw_only=True):
    """H query heads on G heads of keys, of size D, in `dtype`; the cache's where it differs."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    cache_dtype: torch.dtype | None = None


def make_step(
    heads: Heads,
    lengths: Sequence[tuple[int, int]],
    *,
    block_size: int = 16,
    table_width: int = 0,
    seed: int = 0,
) -> tuple[Tensor, LayerCache, StepInputs]:
    """Queries, cache and inputs of sequences with (new tokens, tokens after the step) each."""
    generator = torch.Generator().manual_seed(seed)
    num_blocks = [-(-length // block_size) for _, length in lengths]
    order = torch.randperm(sum(num_blocks) + 3, generator=generator)
    width = max(table_width, *num_blocks)
    # Behind a table's end lie numbers that are no block at all.
    tables = torch.full((len(lengths), width), 2**30, dtype=torch.int32)
    cache = _poisoned_cache(heads, len(order), block_size)
    taken = 0
    for sequence, (count, (_, length)) in enumerate(zip(num_blocks, lengths, strict=True)):
        tables[sequence, :count] = order[taken : taken + count]
        taken += count
        positions = torch.arange(length)
        slots = tables[sequence][positions // block_size] * block_size + positions % block_size
        size = (length, heads.num_kv_heads, heads.head_dim)
        keys, values = (torch.randn(size, generator=generator).to(heads.dtype) for _ in "kv")
        store_kv(cache, keys, values, slots.long())
    num_new = [new for new, _ in lengths]
    num_tokens = sum(num_new)
    queries = torch.randn((num_tokens, heads.num_heads, heads.head_dim), generator=generator)
    starts = torch.tensor([0, *num_new]).cumsum(0).to(torch.int32)
    return (
        queries.to(heads.dtype),
        cache,
        StepInputs(
            token_ids=torch.zeros(num_tokens, dtype=torch.int64),
            positions=torch.zeros(num_tokens, dtype=torch.int64),
            slots=torch.zeros(num_tokens, dtype=torch.int64),
            query_starts=starts,
            context_lengths=torch.tensor([length for _, length in lengths], dtype=torch.int32),
            block_tables=tables,
            output_rows=starts[1:].long() - 1,
            max_query_length=max(num_new),
        ),
    )


def _poisoned_cache(heads: Heads, num_blocks: int, block_size: int) -> LayerCache:
    shape = KvShape(
        num_layers=1,
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
        dtype=heads.cache_dtype or heads.dtype,
    )
    device = torch.device("cpu")
    (cache,) = allocate(shape, num_blocks=num_blocks, block_size=block_size, device=device)
    for store in (cache.keys, cache.values):
        if shape.is_scaled:
            store.view(torch.uint8).fill_(0x7F)  # NaN
        else:
            store.fill_(torch.nan)
    for scales in (cache.key_scales, cache.value_scales):
        if scales is not None:
            scales.fill_(torch.nan)
    return cache
