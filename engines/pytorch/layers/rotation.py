"""The angles that positions are turned by, and their stretching to longer contexts."""

import math
from typing import Final

import torch
from torch import Tensor

from engines.pytorch.model_config import RopeConfig


def angle_tables(
    rope: RopeConfig, head_dim: int, num_positions: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Cosines and sines, float32 [num_positions, rotated_dim / 2]."""
    frequencies = _frequencies(rope, rope.rotated_dim or head_dim)
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), frequencies)
    scale = _attention_factor(rope)
    return (angles.cos() * scale).to(device), (angles.sin() * scale).to(device)


def _frequencies(rope: RopeConfig, dim: int) -> Tensor:
    """Radians a position, float32 as models were trained with, highest first."""
    plain = 1.0 / rope.theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    if rope.divisors:
        plain = plain / torch.tensor(rope.divisors)
    return _STRETCHED[rope.kind](plain, rope, dim)


def _as_they_are(plain: Tensor, _rope: RopeConfig, _dim: int) -> Tensor:
    return plain


def _linear(plain: Tensor, rope: RopeConfig, _dim: int) -> Tensor:
    return plain / rope.factor


def _llama3(plain: Tensor, rope: RopeConfig, _dim: int) -> Tensor:
    """Slow turns are slowed by the factor, fast ones stay, those between by how fast they are."""
    num_turns = rope.original_context * plain / (2 * math.pi)
    low, high = rope.low_frequency_factor, rope.high_frequency_factor
    kept = ((num_turns - low) / (high - low)).clamp(0, 1)
    return (1 - kept) * plain / rope.factor + kept * plain


def _yarn(plain: Tensor, rope: RopeConfig, dim: int) -> Tensor:
    """arXiv:2309.00071, section 3.2: a ramp over the dimensions between two numbers of turns."""

    def dimension_of(num_turns: float) -> float:
        share = rope.original_context / (num_turns * 2 * math.pi)
        return dim * math.log(share) / (2 * math.log(rope.theta))

    first, last = dimension_of(rope.beta_fast), dimension_of(rope.beta_slow)
    if rope.truncates:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    width = max(last - first, 0.001)
    slowed = ((torch.arange(dim // 2, dtype=torch.float32) - first) / width).clamp(0, 1)
    return slowed * plain / rope.factor + (1 - slowed) * plain


_STRETCHED: Final = {
    "default": _as_they_are,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}


def _attention_factor(rope: RopeConfig) -> float:
    if rope.kind != "yarn":
        return 1.0
    by_factor = 0.1 * math.log(rope.factor) + 1 if rope.factor > 1 else 1.0
    return rope.attention_factor or by_factor
