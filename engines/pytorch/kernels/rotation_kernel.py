"""Turning queries and keys in Triton, with their norms: one program a token and head."""

import torch
import triton
from torch import Tensor
from triton import language as tl

from engines.pytorch.ops import Rotation


def rotate(
    queries: Tensor, keys: Tensor, positions: Tensor, rotation: Rotation
) -> tuple[Tensor, Tensor]:
    """See `rotation.rotate`."""
    num_tokens, num_heads, head_dim = queries.shape
    num_kv_heads = keys.shape[1]
    queries, keys = _with_whole_heads(queries), _with_whole_heads(keys)
    turned_queries = torch.empty(queries.shape, dtype=queries.dtype, device=queries.device)
    turned_keys = torch.empty(keys.shape, dtype=keys.dtype, device=keys.device)
    if num_tokens:
        _rotate[(num_tokens, num_heads + num_kv_heads)](
            queries,
            keys,
            turned_queries,
            turned_keys,
            positions,
            rotation.cosines,
            rotation.sines,
            rotation.query_norm,
            rotation.key_norm,
            queries.stride(0),
            keys.stride(0),
            rotation.eps,
            NUM_HEADS=num_heads,
            NUM_KV_HEADS=num_kv_heads,
            HEAD_DIM=head_dim,
            HALF=rotation.cosines.shape[1],
            BLOCK=triton.next_power_of_2(head_dim),
            num_warps=1,
        )
    return turned_queries, turned_keys


def _with_whole_heads(heads: Tensor) -> Tensor:
    """Tokens may lie apart, as those cut from one product do; a token's heads may not."""
    return heads if heads.stride()[1:] == (heads.shape[2], 1) else heads.contiguous()


@triton.jit(do_not_specialize_on_alignment=["positions"])
def _rotate(
    queries,
    keys,
    turned_queries,
    turned_keys,
    positions,
    cosines,
    sines,
    query_norm,
    key_norm,
    query_stride,
    key_stride,
    eps,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    position = tl.load(positions + token).to(tl.int64)
    cosines += position * HALF
    sines += position * HALF
    if head < NUM_HEADS:
        _turn(
            queries + token * query_stride + head * HEAD_DIM,
            turned_queries + (token * NUM_HEADS + head) * HEAD_DIM,
            cosines,
            sines,
            query_norm,
            eps,
            HEAD_DIM,
            HALF,
            BLOCK,
        )
    else:
        kv_head = head - NUM_HEADS
        _turn(
            keys + token * key_stride + kv_head * HEAD_DIM,
            turned_keys + (token * NUM_KV_HEADS + kv_head) * HEAD_DIM,
            cosines,
            sines,
            key_norm,
            eps,
            HEAD_DIM,
            HALF,
            BLOCK,
        )


@triton.jit
def _turn(
    heads,
    turned,
    cosines,
    sines,
    norm,
    eps,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each dimension with its partner, which is read a second time (from the first cache)."""
    dims = tl.arange(0, BLOCK)
    is_dim = dims < HEAD_DIM
    is_turned = dims < 2 * HALF
    is_first = dims < HALF
    partners = tl.where(is_turned, tl.where(is_first, dims + HALF, dims - HALF), dims)
    own = tl.load(heads + dims, mask=is_dim, other=0.0)
    partner = tl.load(heads + partners, mask=is_dim, other=0.0)
    dtype = own.dtype
    own = own.to(tl.float32)
    partner = partner.to(tl.float32)
    if norm is not None:
        # Rounded in between, as a norm of its own would be.
        scale = tl.rsqrt(tl.sum(own * own) / HEAD_DIM + eps)
        own_weight = tl.load(norm + dims, mask=is_dim, other=0.0).to(tl.float32)
        partner_weight = tl.load(norm + partners, mask=is_dim, other=0.0).to(tl.float32)
        own = (own * scale * own_weight).to(dtype).to(tl.float32)
        partner = (partner * scale * partner_weight).to(dtype).to(tl.float32)
    angles = tl.where(is_first, dims, dims - HALF)
    cosine = tl.load(cosines + angles, mask=is_turned, other=1.0)
    sine = tl.load(sines + angles, mask=is_turned, other=0.0)
    answer = own * cosine + tl.where(is_first, -partner, partner) * sine
    tl.store(turned + dims, answer.to(turned.dtype.element_ty), mask=is_dim)
