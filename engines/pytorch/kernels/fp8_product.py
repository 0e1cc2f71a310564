"""Weights of float8_e4m3fn: a scale for all, an output, or a block (128 by 128 in most files)."""

from torch import Tensor

from engines.pytorch.kernels.byte_product import ByteWeight


def from_tensor(numbers: Tensor, scale: Tensor) -> ByteWeight:
    """Of [N, K] and what all of it is to be multiplied by, one number."""
    num_outputs, num_inputs = numbers.shape
    return from_blocks(numbers, scale.reshape(1, 1), (num_outputs, num_inputs))


def from_channels(numbers: Tensor, scales: Tensor) -> ByteWeight:
    """Of [N, K] and a scale an output, [N] or [N, 1]."""
    return from_blocks(numbers, scales.reshape(-1, 1), (1, numbers.shape[1]))


def from_blocks(numbers: Tensor, scales: Tensor, block: tuple[int, int]) -> ByteWeight:
    """Of [N, K] and a scale a block of (outputs, inputs): [ceil(N / outputs), ceil(K / inputs)]."""
    return ByteWeight(
        numbers=numbers.contiguous(),
        scales=scales.float().contiguous(),
        block_outputs=block[0],
        block_inputs=block[1],
    )
