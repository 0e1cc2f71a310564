"""RMS normalisation (Zhang and Sennrich 2019), alone and after the residual sum."""

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Every row of [T, C] divided by its root mean square, times the weight [C]."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.float()).to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The sum x + residual normalised, and the sum, both [T, C]."""
    total = x + residual
    return rms_norm(total, weight, eps), total
