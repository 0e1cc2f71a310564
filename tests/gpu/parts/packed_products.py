"""Products with weights of 4 and 8 bits against those with bfloat16."""

from collections.abc import Callable, Iterator
from typing import Final

import torch
from msgspec import Struct
from torch import Tensor
from torch.nn import functional

from engines.pytorch.kernels.byte_product import ByteWeight
from engines.pytorch.kernels.int4_product import CHUNK, WORDS, Int4Weight
from engines.pytorch.layers.linear import Matrix
from tests.gpu.machine import Machine
from tests.gpu.rows import Row, Spread

# More sets than one, so that none is found in the cache when its turn comes again.
_NUM_SETS: Final = 4
_BLOCK: Final = 128
# By what it is against bfloat16: with one row of inputs, and with many.
_AIMS: Final = {"int4": (2.2, 0.9), "fp8": (None, None), "int8": (None, None)}
_NUM_ROWS: Final = (1, 128)


class _Kind(Struct, frozen=True, kw_only=True):
    """How weights are packed, and the bytes of a number, scales included."""

    name: str
    draw: Callable[[Machine, int, int], Matrix]
    number_bytes: float


def measure(machine: Machine) -> Iterator[Row]:
    """The widest product of a layer of Llama 3 8B, with one row and with 128."""
    num_outputs, num_inputs = machine.size(28_672, 128), machine.size(4096, 128)
    dense = [machine.normal(num_outputs, num_inputs) for _ in range(_num_sets(machine))]
    inputs = [machine.normal(rows, num_inputs) for rows in _NUM_ROWS]
    plain = [
        machine.time(*(lambda w=w, x=x: functional.linear(x, w) for w in dense)) for x in inputs
    ]
    del dense
    for kind in _KINDS:
        packed = [kind.draw(machine, num_outputs, num_inputs) for _ in range(_num_sets(machine))]
        for x, others, aim in zip(inputs, plain, _AIMS[kind.name], strict=True):
            took = machine.time(*(lambda w=w, x=x: w.multiply(x) for w in packed))
            yield _row(machine, kind, (num_outputs, num_inputs), len(x), others, took, aim)
        del packed


def _row(
    machine: Machine,
    kind: _Kind,
    size: tuple[int, int],
    num_rows: int,
    others: Spread,
    took: Spread,
    aim: float | None,
) -> Row:
    num_outputs, num_inputs = size
    num_bytes = num_outputs * num_inputs * kind.number_bytes
    num_bytes += 2 * num_rows * (num_outputs + num_inputs)
    floor_s = machine.floor_s(num_bytes, 2.0 * num_rows * num_outputs * num_inputs)
    return Row(
        goal="G19",
        what=f"{kind.name} product, {num_rows} rows: speed against bf16",
        unit="us",
        floor=floor_s * 1e6,
        ours=took.times(1e6),
        ratio=others.middle / took.middle,
        aim=aim,
        note=f"bf16 {others.middle * 1e6:.3g} us",
    )


def _num_sets(machine: Machine) -> int:
    return machine.size(_NUM_SETS, 1)


def _draw_int4(machine: Machine, num_outputs: int, num_inputs: int) -> Int4Weight:
    num_words = num_inputs // CHUNK * WORDS
    words = torch.randint(-(2**31), 2**31, (num_outputs, num_words), device=machine.device)
    groups = (num_outputs, num_inputs // _BLOCK)
    return Int4Weight(
        words=words.to(torch.int32),
        scales=_scales(machine, *groups).half(),
        zeros=torch.full(groups, 8.0, dtype=torch.float16, device=machine.device),
        num_inputs=num_inputs,
        group_size=_BLOCK,
    )


def _draw_fp8(machine: Machine, num_outputs: int, num_inputs: int) -> ByteWeight:
    return ByteWeight(
        numbers=machine.normal(num_outputs, num_inputs).to(torch.float8_e4m3fn),
        scales=_scales(machine, num_outputs // _BLOCK, num_inputs // _BLOCK),
        block_outputs=_BLOCK,
        block_inputs=_BLOCK,
    )


def _draw_int8(machine: Machine, num_outputs: int, num_inputs: int) -> ByteWeight:
    numbers = torch.randint(-127, 128, (num_outputs, num_inputs), device=machine.device)
    return ByteWeight(
        numbers=numbers.to(torch.int8),
        scales=_scales(machine, num_outputs, 1),
        block_outputs=1,
        block_inputs=num_inputs,
    )


def _scales(machine: Machine, *shape: int) -> Tensor:
    return torch.rand(shape, device=machine.device) * 0.01 + 0.001


_KINDS: Final = (
    _Kind(name="int4", draw=_draw_int4, number_bytes=0.5 + 4 / _BLOCK),
    _Kind(name="fp8", draw=_draw_fp8, number_bytes=1.0),
    _Kind(name="int8", draw=_draw_int8, number_bytes=1.0),
)
