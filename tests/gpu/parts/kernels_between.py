"""Kernels between products against float64: norms, activations, rotation, storing."""

from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor

from engines.pytorch.kernels import kv_store
from engines.pytorch.kv_cache import KvShape, LayerCache, allocate
from engines.pytorch.ops import Ops, Rotation
from tests.engines.pytorch.kernels import exact
from tests.gpu.exactness import (
    TOLERANCES,
    answers_row,
    equal_row,
    error_of,
    error_row,
    kernels,
    poisoned_memory,
    type_name,
)
from tests.gpu.machine import Machine
from tests.gpu.rows import Row

_FP8: Final = torch.float8_e4m3fn


def measure(machine: Machine) -> Iterator[Row]:
    """A row a kernel and type."""
    ops = kernels(machine)
    for dtype in TOLERANCES:
        yield from _small_operations(machine, ops, dtype)
    yield from _stores(machine, ops)


def _small_operations(machine: Machine, ops: Ops, dtype: torch.dtype) -> Iterator[Row]:
    rows, size = machine.size(37, 3), machine.size(4096, 96)
    x, residual = machine.normal(rows, size, dtype=dtype), machine.normal(rows, size, dtype=dtype)
    weight = machine.normal(size, dtype=torch.float32)
    with poisoned_memory():
        normed = ops.rms_norm(x, weight, 1e-5)
        added, total = ops.add_rms_norm(x, residual, weight, 1e-5)
        activated = {"silu": ops.silu_mul(x), "gelu": ops.gelu_mul(x)}
    yield answers_row(
        f"norm, {type_name(dtype)}", normed, exact.rms_norm(x.cpu(), weight.cpu(), 1e-5)
    )
    expected = exact.rms_norm((x + residual).cpu(), weight.cpu(), 1e-5)
    yield answers_row(f"sum and norm, {type_name(dtype)}", added, expected)
    yield equal_row(f"sum, {type_name(dtype)}", total, x + residual)
    yield answers_row(f"silu, {type_name(dtype)}", activated["silu"], exact.silu_mul(x.cpu()))
    yield answers_row(f"gelu, {type_name(dtype)}", activated["gelu"], exact.gelu_mul(x.cpu()))
    yield _rotation(machine, ops, dtype)


def _rotation(machine: Machine, ops: Ops, dtype: torch.dtype) -> Row:
    head_dim, rows = machine.size(128, 16), machine.size(37, 3)
    angles = machine.normal(64, head_dim // 2, dtype=torch.float32)
    weight = machine.normal(head_dim, dtype=torch.float32)
    rotation = Rotation(
        cosines=angles.cos(), sines=angles.sin(), query_norm=weight, key_norm=weight
    )
    heads = machine.normal(rows, 10, head_dim, dtype=dtype)
    positions = torch.randint(0, 64, (rows,), device=machine.device)
    with poisoned_memory():
        turned = torch.cat(ops.rotate(heads[:, :8], heads[:, 8:], positions, rotation), dim=1)
    normed = exact.rms_norm(heads.cpu(), weight.cpu(), rotation.eps).to(dtype)
    expected = exact.rotate(normed, angles.cos().cpu(), angles.sin().cpu(), positions.cpu())
    return answers_row(f"norm and rotation of heads, {type_name(dtype)}", turned, expected)


def _stores(machine: Machine, ops: Ops) -> Iterator[Row]:
    """What is stored in 16 bits is what was given; in 8, the nearest but for a scale's last bit."""
    num_tokens, head_dim = machine.size(100, 5), machine.size(128, 16)
    keys, values = (machine.normal(num_tokens, 4, head_dim, dtype=torch.bfloat16) for _ in "kv")
    slots = torch.randperm(num_tokens + 28, device=machine.device)[:num_tokens]
    slots[::5] = -1
    for dtype in (torch.bfloat16, _FP8):
        shape = KvShape(num_layers=1, num_kv_heads=4, head_dim=head_dim, dtype=dtype)
        num_blocks = (num_tokens + 28) // 16 + 1
        stored, expected = (
            allocate(shape, num_blocks=num_blocks, block_size=16, device=torch.device(device))[0]
            for device in (machine.device, "cpu")
        )
        ops.store_kv(stored, keys, values, slots)
        kv_store.store_kv(expected, keys.cpu(), values.cpu(), slots.cpu())
        answers, wanted = (torch.stack(_numbers(cache)) for cache in (stored, expected))
        what = f"keys and values stored, {type_name(dtype)}"
        tolerance = 5e-3 if dtype == _FP8 else 0.0
        yield error_row(what, error_of(answers, wanted), tolerance)


def _numbers(cache: LayerCache) -> list[Tensor]:
    """What is in it, scaled back, on the processor."""
    pairs = ((cache.keys, cache.key_scales), (cache.values, cache.value_scales))
    return [
        store.cpu().double() * (1.0 if scales is None else scales.cpu().double()[..., None])
        for store, scales in pairs
    ]
