"""The tensors that keys and values of all layers are kept in, in blocks of equal size."""

import math

import numpy as np
import torch
from msgspec import Struct
from torch import Tensor


class LayerCache(Struct, frozen=True, kw_only=True):
    """One layer's blocks, head-major so that one head's keys of a block lie side by side.

    - `keys`, `values`: [num_blocks, num_kv_heads, block_size, head_dim], in the cache's dtype
    - `key_scales`, `value_scales`: float32 [num_blocks, num_kv_heads, block_size], what a stored
      number is to be multiplied by; None where numbers are stored as they are (16 or 32 bits)
    """

    keys: Tensor
    values: Tensor
    key_scales: Tensor | None = None
    value_scales: Tensor | None = None

    @property
    def block_size(self) -> int:
        """Tokens a block holds."""
        return self.keys.shape[2]

    @property
    def tensors(self) -> list[Tensor]:
        """All there is of it."""
        tensors = (self.keys, self.values, self.key_scales, self.value_scales)
        return [tensor for tensor in tensors if tensor is not None]


class KvShape(Struct, frozen=True, kw_only=True):
    """What one token takes in the cache."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def is_scaled(self) -> bool:
        """Whether numbers are stored in 8 bits with a scale a token and head."""
        return self.dtype == torch.float8_e4m3fn

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's keys, values and scales in all layers."""
        scale_bytes = 4 if self.is_scaled else 0
        return (
            2
            * self.num_layers
            * self.num_kv_heads
            * (self.head_dim * self.dtype.itemsize + scale_bytes)
        )


def allocate(
    shape: KvShape, *, num_blocks: int, block_size: int, device: torch.device
) -> tuple[LayerCache, ...]:
    """Empty blocks for every layer."""
    size = (num_blocks, shape.num_kv_heads, block_size)

    def numbers() -> Tensor:
        return _zeros((*size, shape.head_dim), shape.dtype, device)

    def scales() -> Tensor | None:
        return _zeros(size, torch.float32, device) if shape.is_scaled else None

    return tuple(
        LayerCache(keys=numbers(), values=numbers(), key_scales=scales(), value_scales=scales())
        for _ in range(shape.num_layers)
    )


def _zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros that a processor's memory holds only once they are touched, as numpy asks for them."""
    if device.type != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    return (
        torch.from_numpy(np.zeros(math.prod(size) * dtype.itemsize, np.uint8))
        .view(dtype)
        .view(size)
    )
