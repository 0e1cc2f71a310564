"""The product with 8-bit weights in Triton: outputs are the rows of the tensor cores' tiles.

So a product with one row of inputs fills them as well as one with many, and weights go from memory
to registers once, where they become floats of the inputs' kind, exactly. A block's sum is taken
times its scale before it is added to the others.
"""

from typing import Final

import torch
import triton
from msgspec import Struct
from torch import Tensor
from triton import language as tl

from engines.pytorch.kernels.byte_product import ByteWeight
from engines.pytorch.kernels.chip import chip_of
from engines.pytorch.kernels.float8_kernel import from_bytes


class Tiling(Struct, frozen=True, kw_only=True):
    """How a product is cut: rows of inputs and outputs a program."""

    block_rows: int
    block_outputs: int
    num_warps: int
    num_stages: int


# With few rows the weights' way from memory is all there is: small tiles, much of it under way.
_FEW: Final = Tiling(block_rows=16, block_outputs=32, num_warps=4, num_stages=5)
_SOME: Final = Tiling(block_rows=64, block_outputs=64, num_warps=4, num_stages=4)
_MANY: Final = Tiling(block_rows=128, block_outputs=128, num_warps=8, num_stages=3)
_BLOCK_INPUTS: Final = 128


def tiling(num_rows: int) -> Tiling:
    """What a product with so many rows is cut into."""
    if num_rows <= _FEW.block_rows:
        return _FEW
    return _SOME if num_rows <= _SOME.block_rows else _MANY


def multiply(x: Tensor, weight: ByteWeight) -> Tensor:
    """See `byte_product.multiply`."""
    num_outputs, num_inputs = weight.numbers.shape
    rows = x.reshape(-1, num_inputs).contiguous()
    answers = torch.empty((len(rows), num_outputs), dtype=x.dtype, device=x.device)
    tiles = tiling(len(rows))
    is_float8 = weight.numbers.dtype == torch.float8_e4m3fn
    grid = (
        triton.cdiv(num_outputs, tiles.block_outputs),
        triton.cdiv(len(rows), tiles.block_rows),
    )
    _multiply[grid](
        rows,
        weight.numbers.view(torch.uint8) if is_float8 else weight.numbers,
        weight.scales,
        answers,
        len(rows),
        num_outputs,
        num_inputs,
        weight.block_outputs,
        weight.block_inputs,
        weight.scales.shape[1],
        IS_FLOAT8=is_float8,
        IS_NATIVE=is_float8 and chip_of(x.device).has_float8,
        BLOCK_ROWS=tiles.block_rows,
        BLOCK_OUTPUTS=tiles.block_outputs,
        BLOCK_INPUTS=_BLOCK_INPUTS if weight.block_inputs % _BLOCK_INPUTS == 0 else 64,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
    )
    return answers.view(*x.shape[:-1], num_outputs)


@triton.jit(do_not_specialize=["num_rows"])
def _multiply(
    x,
    numbers,
    scales,
    answers,
    num_rows,
    num_outputs,
    num_inputs,
    block_outputs,
    block_inputs,
    num_scale_columns,
    IS_FLOAT8: tl.constexpr,
    IS_NATIVE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    BLOCK_INPUTS: tl.constexpr,
):
    outputs = tl.program_id(0) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    rows = tl.program_id(1) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    is_output = outputs < num_outputs
    is_row = rows < num_rows
    number_rows = numbers + outputs.to(tl.int64)[:, None] * num_inputs
    x_columns = x + rows.to(tl.int64)[None, :] * num_inputs
    scale_rows = scales + outputs // block_outputs * num_scale_columns
    total = tl.zeros([BLOCK_OUTPUTS, BLOCK_ROWS], tl.float32)
    for start in range(0, num_inputs, BLOCK_INPUTS):
        inputs = start + tl.arange(0, BLOCK_INPUTS)
        is_input = inputs < num_inputs
        some = tl.load(
            number_rows + inputs[None, :], mask=is_output[:, None] & is_input[None, :], other=0
        )
        some_x = tl.load(
            x_columns + inputs[:, None], mask=is_input[:, None] & is_row[None, :], other=0.0
        )
        if IS_FLOAT8:
            some = from_bytes(some, IS_NATIVE)
        products = tl.dot(some.to(x.dtype.element_ty), some_x, input_precision="ieee")
        scale = tl.load(scale_rows + start // block_inputs, mask=is_output, other=0.0)
        total += scale[:, None] * products
    where = answers + rows.to(tl.int64)[None, :] * num_outputs + outputs[:, None]
    mask = is_output[:, None] & is_row[None, :]
    tl.store(where, total.to(answers.dtype.element_ty), mask=mask)
