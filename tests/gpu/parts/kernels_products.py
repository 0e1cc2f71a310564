"""Products with packed weights against float64, for few rows, some and many."""

from collections.abc import Iterator
from itertools import product
from typing import Final

import torch
from torch import Tensor

from engines.pytorch.kernels import byte_product, fp8_product, int4_product, int8_product
from engines.pytorch.kernels.byte_product import ByteWeight
from engines.pytorch.kernels.int4_product import CHUNK, WORDS, Int4Weight
from tests.gpu.exactness import answers_row, kernels, poisoned_memory, type_name
from tests.gpu.machine import Machine
from tests.gpu.rows import Row

_FP8: Final = torch.float8_e4m3fn
_DTYPES: Final = (torch.bfloat16, torch.float16)
_NUM_ROWS: Final = (1, 33, 129)


def measure(machine: Machine) -> Iterator[Row]:
    """A row a kind of weights, type and number of rows."""
    kernels(machine)
    num_outputs, num_inputs = machine.size(1024, 64), machine.size(4096, 128)
    for name, weight, dense in _weights(machine, num_outputs, num_inputs):
        for dtype, num_rows in product(_DTYPES, (1,) if machine.is_small else _NUM_ROWS):
            x = machine.normal(num_rows, num_inputs, dtype=dtype)
            with poisoned_memory():
                answers = _multiply(x, weight)
            expected = x.cpu().double() @ dense.cpu().double().T
            what = f"{name} product, {num_rows} rows, {type_name(dtype)}"
            yield answers_row(what, answers, expected)


def _multiply(x: Tensor, weight: Int4Weight | ByteWeight) -> Tensor:
    from engines.pytorch.kernels import byte_product_kernel, int4_product_kernel

    if isinstance(weight, Int4Weight):
        return int4_product_kernel.multiply(x, weight)
    return byte_product_kernel.multiply(x, weight)


def _weights(
    machine: Machine, num_outputs: int, num_inputs: int
) -> Iterator[tuple[str, Int4Weight | ByteWeight, Tensor]]:
    device = machine.device
    for group_size in (128, 64):
        groups = (num_outputs, num_inputs // group_size)
        size = (num_outputs, num_inputs // CHUNK * WORDS)
        int4 = Int4Weight(
            words=torch.randint(-(2**31), 2**31, size, device=device).to(torch.int32),
            scales=torch.rand(groups, device=device).half() / 8,
            zeros=torch.randint(1, 16, groups, device=device).half(),
            num_inputs=num_inputs,
            group_size=group_size,
        )
        yield f"int4 by {group_size}", int4, int4_product.dense(int4)
    numbers = torch.randint(-127, 128, (num_outputs, num_inputs), device=device).to(torch.int8)
    int8 = int8_product.from_channels(numbers, torch.rand(num_outputs, device=device))
    yield "int8", int8, byte_product.dense(int8)
    small = machine.normal(num_outputs, num_inputs, dtype=torch.float32).to(_FP8)
    block = (num_outputs // 2, 64)
    scales = torch.rand((2, num_inputs // 64), device=device)
    for name, fp8 in (
        ("fp8 by blocks", fp8_product.from_blocks(small, scales, block)),
        ("fp8", fp8_product.from_tensor(small, scales[0, 0])),
    ):
        yield name, fp8, byte_product.dense(fp8)
