"""Steps in which sequences of given lengths decode: random keys and values in scattered blocks."""

from collections.abc import Sequence

import torch
from msgspec import Struct
from torch import Tensor

from engines.pytorch.kernels.kv_store import quantise
from engines.pytorch.kv_blocks import BLOCK_TOKENS
from engines.pytorch.kv_cache import KvShape, LayerCache, allocate
from engines.pytorch.memory_sizes import num_blocks_for
from engines.pytorch.step_inputs import StepInputs
from tests.gpu.machine import Machine


class Decode(Struct, frozen=True, kw_only=True):
    """What one layer's attention is given."""

    queries: Tensor
    cache: LayerCache
    inputs: StepInputs
    num_bytes: int


def decode_inputs(machine: Machine, lengths: Sequence[int]) -> StepInputs:
    """One new token of each sequence, after which it has so many; blocks in random order."""
    num_blocks = [num_blocks_for(length) for length in lengths]
    order = torch.randperm(sum(num_blocks), dtype=torch.int32)
    tables = torch.zeros((len(lengths), max(num_blocks)), dtype=torch.int32)
    for row, blocks in zip(tables, order.split(num_blocks), strict=True):
        row[: len(blocks)] = blocks
    positions = torch.tensor(lengths) - 1
    rows = torch.arange(len(lengths))
    slots = tables[rows, positions // BLOCK_TOKENS] * BLOCK_TOKENS + positions % BLOCK_TOKENS

    def put(numbers: Tensor, dtype: torch.dtype) -> Tensor:
        return numbers.to(machine.device, dtype)

    return StepInputs(
        token_ids=put(rows, torch.int64),
        positions=put(positions, torch.int64),
        slots=put(slots, torch.int64),
        query_starts=put(torch.arange(len(lengths) + 1), torch.int32),
        context_lengths=put(positions + 1, torch.int32),
        block_tables=put(tables, torch.int32),
        output_rows=put(rows, torch.int64),
        max_query_length=1,
    )


def filled_cache(
    machine: Machine, shape: KvShape, lengths: Sequence[int]
) -> tuple[LayerCache, ...]:
    """As many blocks as sequences of these lengths have, full of random numbers."""
    num_blocks = sum(map(num_blocks_for, lengths))
    caches = allocate(shape, num_blocks=num_blocks, block_size=BLOCK_TOKENS, device=machine.device)
    for cache in caches:
        _fill(cache.keys, cache.key_scales)
        _fill(cache.values, cache.value_scales)
    return caches


def decode(
    machine: Machine,
    lengths: Sequence[int],
    *,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    dtype: torch.dtype,
) -> Decode:
    """The attention of one layer; `num_bytes` are those it has to move."""
    shape = KvShape(num_layers=1, num_kv_heads=num_kv_heads, head_dim=head_dim, dtype=dtype)
    (cache,) = filled_cache(machine, shape, lengths)
    queries = machine.normal(len(lengths), num_heads, head_dim)
    return Decode(
        queries=queries,
        cache=cache,
        inputs=decode_inputs(machine, lengths),
        num_bytes=sum(lengths) * shape.token_bytes + 2 * queries.nbytes,
    )


def _fill(store: Tensor, scales: Tensor | None) -> None:
    if scales is None:
        store.normal_()
        return
    numbers, found = quantise(torch.randn(store.shape, device=store.device))
    store.view(torch.uint8).copy_(numbers.view(torch.uint8))
    scales.copy_(found)
