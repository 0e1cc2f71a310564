"""Storing keys and values in Triton, in 8 bits where the cache has them: one program a token."""

import torch
import triton
from torch import Tensor
from triton import language as tl

from engines.pytorch.kernels.kv_store import FP8_MAX
from engines.pytorch.kv_cache import LayerCache

_FP8_MAX = tl.constexpr(FP8_MAX)


def store_kv(cache: LayerCache, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    """See `kv_store.store_kv`."""
    num_tokens, num_kv_heads, head_dim = keys.shape
    if not num_tokens:
        return
    is_float8 = cache.key_scales is not None
    _store[(num_tokens, num_kv_heads)](
        keys,
        values,
        cache.keys.view(torch.uint8) if is_float8 else cache.keys,
        cache.values.view(torch.uint8) if is_float8 else cache.values,
        cache.key_scales,
        cache.value_scales,
        slots,
        *keys.stride(),
        *values.stride(),
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_SIZE=cache.block_size,
        BLOCK=triton.next_power_of_2(head_dim),
        num_warps=1,
    )


@triton.jit(do_not_specialize_on_alignment=["slots"])
def _store(
    keys,
    values,
    kept_keys,
    kept_values,
    key_scales,
    value_scales,
    slots,
    key_stride,
    key_head_stride,
    key_dim_stride,
    value_stride,
    value_head_stride,
    value_dim_stride,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    slot = tl.load(slots + token).to(tl.int64)
    if slot >= 0:
        place = (slot // BLOCK_SIZE * NUM_KV_HEADS + head) * BLOCK_SIZE + slot % BLOCK_SIZE
        dims = tl.arange(0, BLOCK)
        is_dim = dims < HEAD_DIM
        key = tl.load(
            keys + token * key_stride + head * key_head_stride + dims * key_dim_stride, mask=is_dim
        )
        value = tl.load(
            values + token * value_stride + head * value_head_stride + dims * value_dim_stride,
            mask=is_dim,
        )
        if key_scales is None:
            where = place * HEAD_DIM + dims
            tl.store(kept_keys + where, key.to(kept_keys.dtype.element_ty), mask=is_dim)
            tl.store(kept_values + where, value.to(kept_values.dtype.element_ty), mask=is_dim)
        else:
            _quantise(kept_keys, key_scales, key, place, is_dim, HEAD_DIM, BLOCK)
            _quantise(kept_values, value_scales, value, place, is_dim, HEAD_DIM, BLOCK)


@triton.jit
def _quantise(kept, scales, head, place, is_dim, HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr):
    wide = tl.where(is_dim, head.to(tl.float32), 0.0)
    scale = tl.maximum(tl.max(tl.abs(wide)), 1e-30) / _FP8_MAX
    tl.store(scales + place, scale)
    numbers = _to_bytes(tl.div_rn(wide, scale))
    tl.store(kept + place * HEAD_DIM + tl.arange(0, BLOCK), numbers, mask=is_dim)


@triton.jit
def _to_bytes(numbers):
    """Float32 up to 448 as the bits of float8_e4m3fn, ties to even, on any GPU.

    Adding 2^20 times a number's own power of two leaves it three bits of mantissa: float32 has 23.
    Below 2^-6 the steps no longer shrink.
    """
    bits = tl.abs(numbers).to(tl.int32, bitcast=True)
    power = tl.maximum(bits & 0x7F800000, 121 << 23)
    magic = (power + (20 << 23)).to(tl.float32, bitcast=True)
    rounded = (tl.abs(numbers) + magic) - magic
    # In units of the smallest number, 2^-9, subnormals are themselves.
    small = (rounded * 512.0).to(tl.int32)
    rounded_bits = rounded.to(tl.int32, bitcast=True)
    normal = (rounded_bits >> 20) - (120 << 3)
    magnitude = tl.where(rounded < 0.015625, small, normal)
    magnitude = tl.where(numbers == numbers, tl.minimum(magnitude, 0x7E), 0x7F)
    return (magnitude | tl.where(numbers < 0, 0x80, 0)).to(tl.uint8)
