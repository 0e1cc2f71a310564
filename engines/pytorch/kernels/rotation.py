"""Queries and keys turned by their positions (RoPE, Su et al. 2021), normed before where asked."""

import torch
from torch import Tensor

from engines.pytorch.kernels.norms import rms_norm
from engines.pytorch.ops import Rotation


def rotate(
    queries: Tensor, keys: Tensor, positions: Tensor, rotation: Rotation
) -> tuple[Tensor, Tensor]:
    """Queries [T, H, D] and keys [T, G, D], turned."""
    cosines = rotation.cosines[positions].unsqueeze(1)
    sines = rotation.sines[positions].unsqueeze(1)
    return (
        _turn(_normed(queries, rotation.query_norm, rotation.eps), cosines, sines),
        _turn(_normed(keys, rotation.key_norm, rotation.eps), cosines, sines),
    )


def _normed(heads: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    return heads if weight is None else rms_norm(heads, weight, eps)


def _turn(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    half = cosines.shape[-1]
    first, second = heads[..., :half], heads[..., half : 2 * half]
    turned = (first * cosines - second * sines, second * cosines + first * sines)
    return torch.cat((*(part.to(heads.dtype) for part in turned), heads[..., 2 * half :]), dim=-1)
