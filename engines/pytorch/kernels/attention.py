"""What attention over the paged cache means, in plain torch; quick enough to serve with on a CPU.

Sequences with one new token are computed together where their lengths are alike; the queries of
longer ones in tiles, each over the keys that its tokens may see and no others.
"""

from collections import defaultdict
from typing import Final

import torch
from msgspec import Struct
from torch import Tensor
from torch.nn import functional

from engines.pytorch.kv_cache import LayerCache
from engines.pytorch.ops import AttentionShape
from engines.pytorch.step_inputs import StepInputs

# Query tokens of a tile: with fewer, products are too small; with more, more is masked.
_TILE: Final = 128


class _Span(Struct, frozen=True, kw_only=True):
    """Blocks [first, last) of a block table."""

    first: int
    last: int

    @property
    def num_blocks(self) -> int:
        return self.last - self.first


def attend(queries: Tensor, cache: LayerCache, inputs: StepInputs, shape: AttentionShape) -> Tensor:
    """Queries [T, H, D], each over its sequence's cache up to itself and within the window."""
    answers = torch.zeros_like(queries)
    starts = inputs.query_starts.tolist()
    lengths = inputs.context_lengths.tolist()
    alike = defaultdict[int, list[int]](list)
    for sequence, length in enumerate(lengths):
        num_queries = starts[sequence + 1] - starts[sequence]
        if not length or not num_queries:
            continue
        if num_queries == 1:
            alike[length.bit_length()].append(sequence)
        else:
            rows = slice(starts[sequence], starts[sequence + 1])
            table = inputs.block_tables[sequence]
            answers[rows] = _attend_tiles(queries[rows], cache, table, length, shape)
    for sequences in alike.values():
        rows_of = [starts[sequence] for sequence in sequences]
        tables = inputs.block_tables[sequences]
        some_lengths = [lengths[sequence] for sequence in sequences]
        answers[rows_of] = _attend_singles(queries[rows_of], cache, tables, some_lengths, shape)
    return answers


def _attend_tiles(
    queries: Tensor, cache: LayerCache, table: Tensor, length: int, shape: AttentionShape
) -> Tensor:
    """One sequence's queries [n, H, D], the last of them its token `length` - 1."""
    tiles = []
    first_position = length - len(queries)
    for start in range(0, len(queries), _TILE):
        tile = queries[start : start + _TILE]
        positions = torch.arange(len(tile), device=table.device) + first_position + start
        span = _visible(int(positions[0]), int(positions[-1]), cache.block_size, shape.window)
        tiles.append(_attend_span(tile[None], cache, table[None], positions[None], span, shape)[0])
    return torch.cat(tiles)


def _attend_singles(
    queries: Tensor, cache: LayerCache, tables: Tensor, lengths: list[int], shape: AttentionShape
) -> Tensor:
    """The last query of each of several sequences, [n, H, D]."""
    positions = torch.tensor(lengths, device=tables.device) - 1
    span = _visible(min(lengths) - 1, max(lengths) - 1, cache.block_size, shape.window)
    return _attend_span(queries[:, None], cache, tables, positions[:, None], span, shape)[:, 0]


def _visible(first: int, last: int, block_size: int, window: int) -> _Span:
    """The blocks that the positions `first` to `last` may see."""
    begin = max(0, first - window + 1) // block_size if window else 0
    return _Span(first=begin, last=last // block_size + 1)


def _attend_span(
    queries: Tensor,
    cache: LayerCache,
    tables: Tensor,
    positions: Tensor,
    span: _Span,
    shape: AttentionShape,
) -> Tensor:
    """Queries [n, q, H, D] at `positions` [n, q], over the span of each of n tables."""
    num, num_queries, num_heads, head_dim = queries.shape
    num_kv_heads, block_size = cache.keys.shape[1:3]
    group = num_heads // num_kv_heads
    blocks = tables[:, span.first : span.last].long()
    key_positions = torch.arange(span.first * block_size, span.last * block_size)
    key_positions = key_positions.to(positions.device)
    is_seen = key_positions <= positions[..., None]
    if shape.window:
        is_seen &= key_positions > positions[..., None] - shape.window
    # What no query sees may lie in a block of nobody's, holding anything: NaN * 0 is NaN.
    is_used = is_seen.any(1)
    blocks = torch.where(is_used.view(num, -1, block_size).any(-1), blocks, 0)
    keys = _gather(cache.keys, cache.key_scales, blocks, queries.dtype)
    values = _gather(cache.values, cache.value_scales, blocks, queries.dtype)
    sequence, position = (~is_used).nonzero(as_tuple=True)
    keys[sequence, :, position] = 0
    values[sequence, :, position] = 0
    # The queries of the heads that share a key lie side by side: [n, G, q * group, D].
    packed = queries.view(num, num_queries, num_kv_heads, group, head_dim).transpose(1, 2)
    packed = packed.reshape(num, num_kv_heads, num_queries * group, head_dim)
    mask = is_seen.repeat_interleave(group, dim=1)[:, None]
    answers = _attend_dense(packed, keys, values, mask, shape)
    answers = answers.view(num, num_kv_heads, num_queries, group, head_dim).transpose(1, 2)
    return answers.reshape(num, num_queries, num_heads, head_dim)


def _gather(store: Tensor, scales: Tensor | None, blocks: Tensor, dtype: torch.dtype) -> Tensor:
    """What lies in `blocks` [n, B], head by head: [n, G, B * block_size, D]."""
    num_kv_heads, block_size, head_dim = store.shape[1:]
    heads = torch.arange(num_kv_heads, device=blocks.device)
    rows = (blocks[:, None] * num_kv_heads + heads[:, None]).flatten()
    size = (len(blocks), num_kv_heads, blocks.shape[1] * block_size)
    if scales is None:
        return store.flatten(0, 1).index_select(0, rows).view(*size, head_dim).to(dtype)
    numbers = store.view(torch.uint8).flatten(0, 1).index_select(0, rows).view(store.dtype).float()
    scale = scales.flatten(0, 1).index_select(0, rows).unsqueeze(-1)
    return (numbers * scale).view(*size, head_dim).to(dtype)


def _attend_dense(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, shape: AttentionShape
) -> Tensor:
    if not shape.soft_cap:
        return functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, scale=shape.scale
        )
    scores = queries.float() @ keys.float().transpose(-1, -2) * shape.scale
    scores = torch.tanh(scores / shape.soft_cap) * shape.soft_cap
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    return (weights @ values.float()).to(queries.dtype)
