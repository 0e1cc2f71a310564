"""Weights of 8-bit integers: a scale an output, or a group of inputs and an output."""

from torch import Tensor

from engines.pytorch.kernels.byte_product import ByteWeight


def from_channels(numbers: Tensor, scales: Tensor) -> ByteWeight:
    """Of int8 [N, K] and a scale an output, [N] or [N, 1]."""
    return from_groups(numbers, scales.reshape(-1, 1))


def from_groups(numbers: Tensor, scales: Tensor) -> ByteWeight:
    """Of int8 [N, K] and scales [N, groups] of equally many inputs, a multiple of 64."""
    return ByteWeight(
        numbers=numbers.contiguous(),
        scales=scales.float().contiguous(),
        block_outputs=1,
        block_inputs=-(-numbers.shape[1] // scales.shape[1]),
    )
