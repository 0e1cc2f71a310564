"""How near decoding's attention comes to the speed of the memory that keys and values lie in."""

from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from engines.pytorch.ops import AttentionShape
from tests.gpu.machine import Machine
from tests.gpu.paged import Decode, decode
from tests.gpu.rows import Row, Spread

# A layer of Llama 3 70B: eight queries to a key.
_HEADS: Final = {"num_heads": 64, "num_kv_heads": 8, "head_dim": 128}
_FEW_HEADS: Final = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 16}
_SHAPE: Final = AttentionShape(scale=128**-0.5)
_FP8: Final = torch.float8_e4m3fn


def measure(machine: Machine) -> Iterator[Row]:
    """Many sequences, one long one, a cache of 8 bits, and what torch has for it."""
    size = machine.size
    even = [size(2048, 40)] * size(128, 2)
    full = _layer(machine, even, machine.dtype)
    took = _time(machine, full)
    yield _share(machine, "G1", f"{len(even)} sequences of {even[0]}", full, took, aim=0.85)
    gathered = _time_gathered(machine, full)
    yield _against("G3", "gathering and torch's own", gathered, took, 3.0)
    packed = _layer(machine, even, _FP8)
    took_packed = _time(machine, packed)
    yield _share(machine, "G4", "the same in 8 bits", packed, took_packed)
    yield _against("G4", "bf16", took, took_packed, 1.75)
    del full, packed
    uneven = [size(256 + 28 * number, 3 + number) for number in range(size(128, 4))]
    mixed = _layer(machine, uneven, machine.dtype)
    yield _share(
        machine,
        "G1",
        f"{len(uneven)} of {uneven[0]} to {uneven[-1]}",
        mixed,
        _time(machine, mixed),
        aim=0.85,
    )
    del mixed
    lone = [_layer(machine, [size(32_768, 600)], machine.dtype) for _ in range(size(4, 1))]
    took_lone = _time(machine, *lone)
    yield _share(machine, "G2", "one sequence of 32k", lone[0], took_lone, aim=0.7)


def _layer(machine: Machine, lengths: list[int], dtype: torch.dtype) -> Decode:
    heads = _FEW_HEADS if machine.is_small else _HEADS
    return decode(machine, lengths, **heads, dtype=dtype)


def _time(machine: Machine, *layers: Decode) -> Spread:
    def attend(layer: Decode) -> Tensor:
        return machine.ops.attend(layer.queries, layer.cache, layer.inputs, _SHAPE)

    return machine.time(*(lambda layer=layer: attend(layer) for layer in layers))


def _time_gathered(machine: Machine, layer: Decode) -> Spread:
    """As it is done without a kernel: all sequences are as long, so nothing is masked."""
    tables = layer.inputs.block_tables.long()
    length = int(layer.inputs.context_lengths[0])

    def gather(store: Tensor) -> Tensor:
        found = store[tables].transpose(1, 2)
        return found.flatten(2, 3)[:, :, :length]

    def attend() -> Tensor:
        keys, values = gather(layer.cache.keys), gather(layer.cache.values)
        return functional.scaled_dot_product_attention(
            layer.queries[:, :, None], keys, values, scale=_SHAPE.scale, enable_gqa=True
        )

    return machine.time(attend)


def _share(
    machine: Machine,
    goal: str,
    what: str,
    layer: Decode,
    took: Spread,
    aim: float | None = None,
) -> Row:
    floor_s = machine.floor_s(layer.num_bytes)
    return Row(
        goal=goal,
        what=f"decode attention, {what}: share of the copy's speed",
        unit="us",
        floor=floor_s * 1e6,
        ours=took.times(1e6),
        ratio=floor_s / took.middle,
        aim=aim,
    )


def _against(goal: str, other: str, others: Spread, took: Spread, aim: float) -> Row:
    return Row(
        goal=goal,
        what=f"decode attention against {other}",
        unit="us",
        floor=others.middle * 1e6,
        ours=took.times(1e6),
        ratio=others.middle / took.middle,
        aim=aim,
    )
