"""The product with 4-bit weights in Triton: outputs are the rows of the tensor cores' tiles.

So a product with one row of inputs fills them as well as one with many, and weights go from memory
to registers once. A number n becomes the float 128 + n (bf16) or 1024 + n (f16) by setting the
bits above it; what was added too much, and the zero, is taken off a group's sum at its end:
sum(x * (offset + n)) - (offset + zero) * sum(x).
"""

from typing import Final

import torch
import triton
from msgspec import Struct
from torch import Tensor
from triton import language as tl

from engines.pytorch.kernels.int4_product import CHUNK, WORDS, Int4Weight

_WORDS = tl.constexpr(WORDS)
_CHUNK = tl.constexpr(CHUNK)


class Tiling(Struct, frozen=True, kw_only=True):
    """How a product is cut: rows of inputs and outputs a program; chunks under way from memory."""

    block_rows: int
    block_outputs: int
    num_warps: int
    num_stages: int


# With few rows the weights' way from memory is all there is: small tiles, much of it under way.
_FEW: Final = Tiling(block_rows=16, block_outputs=32, num_warps=4, num_stages=12)
_SOME: Final = Tiling(block_rows=64, block_outputs=64, num_warps=4, num_stages=4)
_MANY: Final = Tiling(block_rows=128, block_outputs=128, num_warps=8, num_stages=3)


def tiling(num_rows: int) -> Tiling:
    """What a product with so many rows is cut into."""
    if num_rows <= _FEW.block_rows:
        return _FEW
    return _SOME if num_rows <= _SOME.block_rows else _MANY


def multiply(x: Tensor, weight: Int4Weight) -> Tensor:
    """See `int4_product.multiply`."""
    rows = x.reshape(-1, weight.num_inputs).contiguous()
    num_outputs = len(weight.words)
    answers = torch.empty((len(rows), num_outputs), dtype=x.dtype, device=x.device)
    tiles = tiling(len(rows))
    grid = (
        triton.cdiv(num_outputs, tiles.block_outputs),
        triton.cdiv(len(rows), tiles.block_rows),
    )
    _multiply[grid](
        rows,
        weight.words,
        weight.scales,
        weight.zeros,
        answers,
        len(rows),
        num_outputs,
        weight.num_inputs,
        weight.words.shape[1],
        weight.group_size,
        weight.scales.shape[1],
        SUBGROUP=min(weight.group_size, CHUNK),
        BLOCK_ROWS=tiles.block_rows,
        BLOCK_OUTPUTS=tiles.block_outputs,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
    )
    return answers.view(*x.shape[:-1], num_outputs)


@triton.jit(do_not_specialize=["num_rows"])
def _multiply(
    x,
    words,
    scales,
    zeros,
    answers,
    num_rows,
    num_outputs,
    num_inputs,
    num_words,
    group_size,
    num_groups,
    SUBGROUP: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
):
    outputs = tl.program_id(0) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    rows = tl.program_id(1) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    is_output = outputs < num_outputs
    is_row = rows < num_rows
    places = tl.arange(0, _WORDS)
    word_rows = words + outputs.to(tl.int64)[:, None] * num_words
    x_columns = x + rows.to(tl.int64)[None, :] * num_inputs
    total = tl.zeros([BLOCK_OUTPUTS, BLOCK_ROWS], tl.float32)
    for first_word in range(0, num_words, _WORDS):
        columns = first_word + places[None, :]
        mask = is_output[:, None] & (columns < num_words)
        some_words = tl.load(word_rows + columns, mask=mask, other=0)
        for subgroup in tl.static_range(_CHUNK // SUBGROUP):
            input_start = first_word * 8 + subgroup * SUBGROUP
            products = tl.zeros([BLOCK_OUTPUTS, BLOCK_ROWS], tl.float32)
            sums = tl.zeros([BLOCK_ROWS], tl.float32)
            for part in tl.static_range(SUBGROUP // _WORDS):
                inputs = input_start + part * _WORDS + places
                some_x = tl.load(
                    x_columns + inputs[:, None],
                    mask=(inputs < num_inputs)[:, None] & is_row[None, :],
                    other=0.0,
                )
                shift = 4 * (subgroup * (SUBGROUP // _WORDS) + part)
                numbers = _to_floats(some_words >> shift, x.dtype.element_ty)
                products = tl.dot(numbers, some_x, products, input_precision="ieee")
                sums += tl.sum(some_x.to(tl.float32), axis=0)
            where = outputs * num_groups + input_start // group_size
            mask = is_output & (where < (outputs + 1) * num_groups)
            scale = tl.load(scales + where, mask=mask, other=0.0).to(tl.float32)
            zero = tl.load(zeros + where, mask=mask, other=0.0).to(tl.float32)
            excess = zero + _offset(x.dtype.element_ty)
            total += scale[:, None] * (products - excess[:, None] * sums[None, :])
    where = answers + rows.to(tl.int64)[None, :] * num_outputs + outputs[:, None]
    mask = is_output[:, None] & is_row[None, :]
    tl.store(where, total.to(answers.dtype.element_ty), mask=mask)


@triton.jit
def _to_floats(words, dtype: tl.constexpr):
    """The lowest four bits of each word as a float that is too large by `_offset`."""
    numbers = words & 15
    if dtype == tl.bfloat16:
        return (numbers | 0x4300).to(tl.int16).to(tl.bfloat16, bitcast=True)
    elif dtype == tl.float16:  # noqa: RET505 (a branch that Triton chooses while it compiles)
        return (numbers | 0x6400).to(tl.int16).to(tl.float16, bitcast=True)
    else:
        return numbers.to(tl.float32)


@triton.jit
def _offset(dtype: tl.constexpr):
    if dtype == tl.bfloat16:
        return 128.0
    elif dtype == tl.float16:  # noqa: RET505
        return 1024.0
    else:
        return 0.0
