"""Attention over the paged cache against float64: sequences of all kinds together."""

from collections.abc import Iterator
from typing import Final

import torch
from msgspec import Struct

from engines.pytorch.ops import AttentionShape, Ops
from tests.engines.pytorch.kernels import exact
from tests.engines.pytorch.kernels.steps import Heads, make_step
from tests.gpu.exactness import (
    answers_row,
    error_of,
    error_row,
    kernels,
    moved,
    poisoned_memory,
    type_name,
)
from tests.gpu.machine import Machine
from tests.gpu.rows import Row

_FP8: Final = torch.float8_e4m3fn
# New tokens of a sequence, and its tokens after the step: decoding, a first token, a prompt,
# padding, a later part, nothing new, drafts.
_MIXED: Final = [(1, 37), (1, 1), (21, 21), (1, 0), (19, 40), (0, 9), (4, 30)]
_LONG: Final = [(1, 5000), (300, 300), (1, 700), (130, 1500), (1, 4096), (8, 900)]


def measure(machine: Machine) -> Iterator[Row]:
    """A row a kind of model and batch, and what is found in a cache of 8 bits."""
    ops = kernels(machine)
    yield from _attention(machine, ops)
    yield _needle(machine, ops)


class _Attention(Struct, frozen=True, kw_only=True):
    """Attention of one kind of model."""

    heads: Heads
    window: int = 0
    soft_cap: float = 0.0


def _heads(
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    dtype: torch.dtype = torch.bfloat16,
    cache_dtype: torch.dtype | None = None,
) -> Heads:
    return Heads(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        dtype=dtype,
        cache_dtype=cache_dtype,
    )


_SMALL_ATTENTION: Final = (
    _Attention(heads=_heads(4, 2, 16)),
    _Attention(heads=_heads(4, 2, 16, torch.float16, _FP8), window=9, soft_cap=30.0),
)
_FULL_ATTENTION: Final = (
    _Attention(heads=_heads(16, 2, 128)),
    _Attention(heads=_heads(16, 2, 128, torch.float16)),
    _Attention(heads=_heads(16, 2, 128, cache_dtype=_FP8)),
    _Attention(heads=_heads(16, 2, 128, torch.float16, _FP8)),
    _Attention(heads=_heads(16, 2, 128), window=600),
    _Attention(heads=_heads(8, 4, 256), window=100, soft_cap=50.0),
    _Attention(heads=_heads(9, 3, 64)),
    _Attention(heads=_heads(4, 4, 80)),
    _Attention(heads=_heads(4, 4, 96, torch.float32)),
)


def _attention(machine: Machine, ops: Ops) -> Iterator[Row]:
    for kind in _SMALL_ATTENTION if machine.is_small else _FULL_ATTENTION:
        shape = AttentionShape(
            scale=kind.heads.head_dim**-0.5, window=kind.window, soft_cap=kind.soft_cap
        )
        batches = {"short": _MIXED} if machine.is_small else {"short": _MIXED, "long": _LONG}
        for name, lengths in batches.items():
            step = make_step(kind.heads, lengths)
            queries, cache, inputs = step[0].to(machine.device), *moved(machine, *step[1:])
            with poisoned_memory():
                answers = ops.attend(queries, cache, inputs, shape)
            yield answers_row(
                f"attention, {name} sequences, {_described(kind)}",
                answers,
                exact.attend(*step, shape),
            )


def _described(kind: _Attention) -> str:
    heads = kind.heads
    parts = [
        f"{heads.num_heads}/{heads.num_kv_heads} heads of {heads.head_dim}",
        type_name(heads.dtype),
    ]
    parts += [f"cache {type_name(heads.cache_dtype)}"] if heads.cache_dtype else []
    parts += [f"window {kind.window}"] if kind.window else []
    parts += ["soft cap"] if kind.soft_cap else []
    return ", ".join(parts)


def _needle(machine: Machine, ops: Ops) -> Row:
    """One key that the query is after, beside values a million times those that lie at it."""
    length = machine.size(32_768, 600)
    queries, cache, inputs = make_step(_heads(1, 1, 64, torch.float32, _FP8), [(1, length)])
    block, offset = int(inputs.block_tables[0, length // 32]), 7
    assert cache.key_scales is not None
    assert cache.value_scales is not None
    cache.value_scales.mul_(1e3)
    cache.value_scales[block, 0, offset] = 1e-3
    cache.key_scales[block, 0, offset] *= 50
    queries[0, 0] = cache.keys[block, 0, offset].float()
    shape = AttentionShape(scale=1.0)
    moved_cache, moved_inputs = moved(machine, cache, inputs)
    answers = ops.attend(queries.to(machine.device), moved_cache, moved_inputs, shape)
    error = error_of(answers, exact.attend(queries, cache, inputs, shape))
    return error_row(f"a needle among {length} tokens in 8 bits", error, 1e-2, goal="G4")
