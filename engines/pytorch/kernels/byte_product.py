"""Products with weights of 8 bits and a scale for each block of them; what both kinds share."""

from msgspec import Struct
from torch import Tensor


class ByteWeight(Struct, frozen=True, kw_only=True):
    """N outputs of K inputs in 8 bits each.

    - `numbers`: int8 or float8_e4m3fn [N, K]
    - `scales`: float32 [ceil(N / block_outputs), ceil(K / block_inputs)]; a block of inputs is all
      of them or a multiple of 64
    """

    numbers: Tensor
    scales: Tensor
    block_outputs: int
    block_inputs: int

    def multiply(self, x: Tensor) -> Tensor:
        """x [..., K] times the weights: [..., N] in the dtype of x."""
        if x.is_cuda:
            from engines.pytorch.kernels import byte_product_kernel

            return byte_product_kernel.multiply(x, self)
        return multiply(x, self)


def multiply(x: Tensor, weight: ByteWeight) -> Tensor:
    """The product in plain torch."""
    return x @ dense(weight).to(x.dtype).T


def dense(weight: ByteWeight) -> Tensor:
    """The weights as float32 [N, K]."""
    num_outputs, num_inputs = weight.numbers.shape
    scales = weight.scales.repeat_interleave(weight.block_outputs, 0)[:num_outputs]
    scales = scales.repeat_interleave(weight.block_inputs, 1)[:, :num_inputs]
    return weight.numbers.float() * scales
