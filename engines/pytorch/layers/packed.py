"""Matrices that a checkpoint has packed into 4 or 8 bits, as its kernels want them."""

import math
from collections.abc import Sequence
from typing import Final, TypeAlias

import torch
from torch import Tensor

from appliance.errors import CatalogueError
from engines.pytorch.kernels import byte_product, fp8_product, int4_product
from engines.pytorch.kernels.byte_product import ByteWeight
from engines.pytorch.kernels.int4_product import Int4Weight
from engines.pytorch.model_config import QuantizationConfig
from engines.pytorch.weights import WeightLoader

Packed: TypeAlias = Int4Weight | ByteWeight

# The two names by which fp8 checkpoints call what numbers are to be multiplied by.
_FP8_SCALES: Final = ("weight_scale_inv", "weight_scale")
_PER_WORD: Final = 8


def load_packed(
    weights: WeightLoader, name: str, num_outputs: int, num_inputs: int
) -> Packed | None:
    """The matrix of that name; None where it is not packed.

    Raises CatalogueError as `WeightLoader.read` does, and `model.quantization_unknown`.
    """
    how = weights.quantization
    if how is None:
        return None
    shapes = weights.source.shapes
    scales = [kind for kind in _FP8_SCALES if f"{name}.{kind}" in shapes]
    if f"{name}.qweight" not in shapes and not scales:
        return None
    if weights.shard.size > 1:
        message = f"{weights.source.label}: packed matrices cannot be shared by several devices"
        raise CatalogueError("model.quantization_unknown", message)
    if scales:
        return _load_fp8(weights, how, name, scales[0], (num_outputs, num_inputs))
    return _load_int4(weights, how, name, num_outputs, num_inputs)


def _load_int4(
    weights: WeightLoader, how: QuantizationConfig, name: str, num_outputs: int, num_inputs: int
) -> Int4Weight:
    num_groups = math.ceil(num_inputs / how.group_size) if how.group_size > 0 else 1
    packed_outputs = num_outputs // _PER_WORD
    zeros = weights.read(f"{name}.qzeros", (num_groups, packed_outputs))
    scales = weights.read(f"{name}.scales", (num_groups, num_outputs))
    if how.method == "awq":
        words = weights.read(f"{name}.qweight", (num_inputs, packed_outputs))
        return int4_product.from_awq(words, zeros, scales)
    words = weights.read(f"{name}.qweight", (num_inputs // _PER_WORD, num_outputs))
    has_groups = f"{name}.g_idx" in weights.source.shapes
    groups = weights.read(f"{name}.g_idx", (num_inputs,)) if has_groups else None
    return int4_product.from_gptq(
        words, zeros, scales, groups, is_zero_less_one=how.is_zero_less_one
    )


def _load_fp8(
    weights: WeightLoader, how: QuantizationConfig, name: str, kind: str, shape: tuple[int, int]
) -> ByteWeight:
    numbers = weights.read(f"{name}.weight", shape)
    found = weights.source.shapes[f"{name}.{kind}"]
    if how.block is not None:
        blocks = tuple(math.ceil(size / of) for size, of in zip(shape, how.block, strict=True))
        scales = weights.read(f"{name}.{kind}", blocks)
        return fp8_product.from_blocks(numbers, scales, how.block)
    count = math.prod(found)
    expected = found if count in (1, shape[0]) else (shape[0], 1)
    scales = weights.read(f"{name}.{kind}", expected)
    return fp8_product.from_channels(numbers, scales.reshape(-1).expand(shape[0]))


def merge(weights: WeightLoader, parts: Sequence[Packed]) -> Packed | None:
    """One matrix with the outputs of all; None where their scales do not allow it."""
    merged: Packed | None = None
    if len(parts) == 1:
        merged = parts[0]
    elif all(isinstance(part, Int4Weight) and part.order is None for part in parts):
        merged = _merge_int4([part for part in parts if isinstance(part, Int4Weight)])
    elif all(isinstance(part, ByteWeight) and _ends_with_a_block(part) for part in parts):
        merged = _merge_bytes([part for part in parts if isinstance(part, ByteWeight)])
    return keep(weights, merged) if merged is not None else None


def _ends_with_a_block(part: ByteWeight) -> bool:
    return len(part.numbers) % part.block_outputs == 0


def _merge_int4(parts: list[Int4Weight]) -> Int4Weight:
    return Int4Weight(
        words=torch.cat([part.words for part in parts]),
        scales=torch.cat([part.scales for part in parts]),
        zeros=torch.cat([part.zeros for part in parts]),
        num_inputs=parts[0].num_inputs,
        group_size=parts[0].group_size,
    )


def _merge_bytes(parts: list[ByteWeight]) -> ByteWeight:
    numbers = torch.cat([part.numbers.view(torch.uint8) for part in parts])
    return ByteWeight(
        numbers=numbers.view(parts[0].numbers.dtype),
        scales=torch.cat([part.scales for part in parts]),
        block_outputs=parts[0].block_outputs,
        block_inputs=parts[0].block_inputs,
    )


def keep(weights: WeightLoader, packed: Packed) -> Packed:
    """Count what a matrix has on the device."""
    if isinstance(packed, ByteWeight):
        held: list[Tensor | None] = [packed.numbers, packed.scales]
    else:
        held = [packed.words, packed.scales, packed.zeros, packed.order]
    for tensor in held:
        if tensor is not None:
            weights.keep(tensor)
    return packed


def unpack(packed: Packed) -> Tensor:
    """The matrix as float32 [N, K]."""
    if isinstance(packed, ByteWeight):
        return byte_product.dense(packed)
    return int4_product.dense(packed)
