"""Choosing in Triton: one program a row, which reads its row once where the likeliest is wanted.

Where tokens are drawn, their weights are kept aside. What top_k and top_p leave is found without
sorting: the least weight left is read off bit by bit, four bits a pass, since positive floats are
in the order of their bits.
"""

from typing import Final

import torch
import triton
from torch import Tensor
from triton import language as tl

from engines.pytorch.kernels.sampling import SamplingInputs

_BLOCK: Final = 1024
_NUM_WARPS: Final = 8
_MIN_TEMPERATURE = tl.constexpr(1e-4)


def choose(adjusted: Tensor, inputs: SamplingInputs) -> tuple[Tensor, Tensor]:
    """See `sampling.choose`."""
    num_rows, num_tokens = adjusted.shape
    token_ids = torch.empty(num_rows, dtype=torch.int64, device=adjusted.device)
    are_finite = torch.empty(num_rows, dtype=torch.bool, device=adjusted.device)
    allowed = inputs.allowed
    _choose[(num_rows,)](
        adjusted,
        allowed,
        inputs.temperatures,
        inputs.top_ks,
        inputs.top_ps,
        inputs.min_ps,
        inputs.seeds,
        inputs.positions,
        adjusted if inputs.is_greedy else torch.empty_like(adjusted),
        token_ids,
        are_finite,
        adjusted.stride(0),
        0 if allowed is None else allowed.stride(0),
        num_tokens,
        IS_GREEDY=inputs.is_greedy,
        IS_TRUNCATED=inputs.is_truncated,
        BLOCK=_BLOCK,
        num_warps=_NUM_WARPS,
    )
    return token_ids, are_finite


@triton.jit
def _choose(
    logits,
    allowed,
    temperatures,
    top_ks,
    top_ps,
    min_ps,
    seeds,
    positions,
    weights,
    token_ids,
    are_finite,
    logits_stride,
    allowed_stride,
    num_tokens,
    IS_GREEDY: tl.constexpr,
    IS_TRUNCATED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    logits += row * logits_stride
    weights += row * num_tokens
    if allowed is not None:
        allowed += row * allowed_stride
    best, top, is_finite = _find_best(logits, allowed, num_tokens, BLOCK)
    choice = best
    if not IS_GREEDY:
        temperature = tl.load(temperatures + row)
        top_k = tl.load(top_ks + row)
        if is_finite and temperature >= _MIN_TEMPERATURE and top_k != 1:
            _weigh(logits, allowed, weights, top, temperature, num_tokens, BLOCK)
            # What one thread wrote, others read.
            tl.debug_barrier()
            floor = 0.0
            if IS_TRUNCATED:
                top_p = tl.load(top_ps + row)
                min_p = tl.load(min_ps + row)
                floor = _lowest_weight(weights, top_k, top_p, min_p, num_tokens, BLOCK)
            random = _random_number(tl.load(seeds + row), tl.load(positions + row))
            choice = _draw(weights, floor, random, best, num_tokens, BLOCK)
    tl.store(token_ids + row, tl.where(is_finite, choice, 0).to(tl.int64))
    tl.store(are_finite + row, is_finite)


@triton.jit
def _find_best(logits, allowed, num_tokens, BLOCK: tl.constexpr):
    """The first of the likeliest, its logit, and whether that is one and no logit is NaN."""
    top = float("-inf")
    best = 0
    num_nan = 0
    for start in range(0, num_tokens, BLOCK):
        ids = start + tl.arange(0, BLOCK)
        values = _load(logits, allowed, ids, num_tokens)
        is_nan = values != values
        num_nan += tl.sum(is_nan.to(tl.int32))
        values = tl.where(is_nan, float("-inf"), values)
        block_top = tl.max(values)
        block_best = tl.min(tl.where(values == block_top, ids, num_tokens))
        best = tl.where(block_top > top, block_best, best)
        top = tl.maximum(top, block_top)
    is_finite = (num_nan == 0) & (top > float("-inf")) & (top < float("inf"))
    return best, top, is_finite


@triton.jit
def _load(logits, allowed, ids, num_tokens):
    values = tl.load(logits + ids, mask=ids < num_tokens, other=float("-inf"))
    if allowed is not None:
        words = tl.load(allowed + ids // 32, mask=ids < num_tokens, other=0)
        may_come = ((words >> (ids % 32)) & 1) != 0
        values = tl.where(may_come | (values != values), values, float("-inf"))
    return values


@triton.jit
def _weigh(logits, allowed, weights, top, temperature, num_tokens, BLOCK: tl.constexpr):
    for start in range(0, num_tokens, BLOCK):
        ids = start + tl.arange(0, BLOCK)
        values = _load(logits, allowed, ids, num_tokens)
        tl.store(weights + ids, tl.exp((values - top) / temperature), mask=ids < num_tokens)


@triton.jit
def _lowest_weight(weights, top_k, top_p, min_p, num_tokens, BLOCK: tl.constexpr):
    """What a token must weigh to be left by top_k, then top_p, then min_p."""
    floor = 0.0
    if top_k > 0 and top_k < num_tokens:
        floor = _least_reaching(weights, top_k.to(tl.float64), 0.0, num_tokens, False, BLOCK)
    if top_p < 1.0:
        target = top_p.to(tl.float64) * _total(weights, floor, num_tokens, BLOCK)
        floor = _least_reaching(weights, target, floor, num_tokens, True, BLOCK)
    return tl.maximum(floor, tl.minimum(min_p, 1.0))


@triton.jit
def _least_reaching(
    weights, target, floor, num_tokens, ADDS_WEIGHTS: tl.constexpr, BLOCK: tl.constexpr
):
    """The largest number such that the tokens that weigh at least as much reach the target.

    They reach it by their number or by their weights; those below `floor` count for nothing.
    """
    digits = tl.arange(0, 16)
    found = 0
    for step in range(8):
        shift = 28 - 4 * step
        candidates = found + (digits << shift)
        reached = tl.zeros([16], tl.float64)
        for start in range(0, num_tokens, BLOCK):
            ids = start + tl.arange(0, BLOCK)
            some = tl.load(weights + ids, mask=ids < num_tokens, other=0.0)
            amounts = some if ADDS_WEIGHTS else tl.full([BLOCK], 1.0, tl.float32)
            amounts = tl.where((some >= floor) & (ids < num_tokens), amounts, 0.0)
            bits = some.to(tl.int32, bitcast=True)
            is_over = bits[None, :] >= candidates[:, None]
            reached += tl.sum(tl.where(is_over, amounts[None, :], 0.0), axis=1).to(tl.float64)
        # Candidates past the sign bit are negative, and every weight is over them.
        digit = tl.sum(((reached >= target) & (candidates > found)).to(tl.int32))
        found += digit << shift
    # Nothing weighs more than the heaviest, 1, whatever the target.
    return tl.maximum(tl.minimum(tl.cast(found, tl.float32, bitcast=True), 1.0), floor)


@triton.jit
def _total(weights, floor, num_tokens, BLOCK: tl.constexpr):
    total = tl.zeros([], tl.float64)
    for start in range(0, num_tokens, BLOCK):
        total += tl.sum(_kept(weights, start, floor, num_tokens, BLOCK))
    return total


@triton.jit
def _kept(weights, start, floor, num_tokens, BLOCK: tl.constexpr):
    ids = start + tl.arange(0, BLOCK)
    some = tl.load(weights + ids, mask=ids < num_tokens, other=0.0)
    return tl.where(some >= floor, some, 0.0).to(tl.float64)


@triton.jit
def _draw(weights, floor, random, best, num_tokens, BLOCK: tl.constexpr):
    """The token at which the running sum passes its share of the total; else the likeliest."""
    target = random * _total(weights, floor, num_tokens, BLOCK)
    before = tl.zeros([], tl.float64)
    first = -1
    rest = target
    for start in range(0, num_tokens, BLOCK):
        after = before + tl.sum(_kept(weights, start, floor, num_tokens, BLOCK))
        is_here = (first < 0) & (after > target)
        first = tl.where(is_here, start, first)
        rest = tl.where(is_here, target - before, rest)
        before = after
    inside = _kept(weights, tl.maximum(first, 0), floor, num_tokens, BLOCK)
    index = tl.sum((tl.cumsum(inside) <= rest).to(tl.int32))
    # Rounding: the block's two sums may differ in the last bit.
    index = tl.where(index < BLOCK, index, tl.argmax(inside, 0))
    return tl.where(first < 0, best, first + index)


@triton.jit
def _random_number(seed, position):
    """See `sampling.random_numbers`."""
    mixed = seed.to(tl.uint64) * 0x9E3779B97F4A7C15
    mixed += (position + 1).to(tl.uint64) * 0xD1B54A32D192ED03
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB
    return ((mixed ^ (mixed >> 31)) >> 11).to(tl.float64) * (1.0 / (1 << 53))
