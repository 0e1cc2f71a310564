"""Matrix products: split over devices by outputs, or by inputs and summed."""

from collections.abc import Sequence
from typing import Protocol

import torch
from msgspec import Struct
from torch import Tensor
from torch.nn import functional

from engines.pytorch.layers.packed import keep, load_packed, merge
from engines.pytorch.layers.shard import ALONE, Shard
from engines.pytorch.weights import WeightLoader


class Matrix(Protocol):
    """N outputs of K inputs, however they are stored."""

    def multiply(self, x: Tensor) -> Tensor:
        """x [..., K] times the matrix: [..., N] in the dtype of x."""


class Dense(Struct, frozen=True, kw_only=True):
    """A matrix [N, K] in the model's own type."""

    weight: Tensor

    def multiply(self, x: Tensor) -> Tensor:
        """x [..., K] times the matrix: [..., N]."""
        return functional.linear(x, self.weight)


class SideBySide(Struct, frozen=True, kw_only=True):
    """Matrices of the same inputs that could not be made one."""

    parts: tuple[Matrix, ...]

    def multiply(self, x: Tensor) -> Tensor:
        """x [..., K] times each: their outputs one after the other."""
        return torch.cat([part.multiply(x) for part in self.parts], dim=-1)


class Linear(Struct, frozen=True, kw_only=True):
    """x W^T + b. Where `shard` has several parts the products are summed, b is added once."""

    matrix: Matrix
    bias: Tensor | None = None
    shard: Shard = ALONE

    def __call__(self, x: Tensor) -> Tensor:
        """[T, inputs] to [T, outputs]."""
        total = self.shard.reduce(self.matrix.multiply(x))
        return total if self.bias is None else total + self.bias


def by_outputs(
    weights: WeightLoader,
    names: Sequence[str],
    sizes: Sequence[int],
    num_inputs: int,
    *,
    has_bias: bool = False,
) -> Linear:
    """One product for several that have the same inputs; of each this shard's outputs."""
    return Linear(
        matrix=_load_merged(weights, names, sizes, num_inputs),
        bias=_merged_bias(weights, names, sizes) if has_bias else None,
    )


def _load_merged(
    weights: WeightLoader, names: Sequence[str], sizes: Sequence[int], num_inputs: int
) -> Matrix:
    found = [
        load_packed(weights, n, size, num_inputs) for n, size in zip(names, sizes, strict=True)
    ]
    packed = [part for part in found if part is not None]
    if len(packed) < len(names):
        stored = [f"{name}.weight" for name in names]
        return Dense(weight=weights.rows(stored, sizes, num_inputs))
    merged = merge(weights, packed)
    return merged or SideBySide(parts=tuple(keep(weights, part) for part in packed))


def by_inputs(
    weights: WeightLoader, name: str, num_outputs: int, num_inputs: int, *, has_bias: bool = False
) -> Linear:
    """A product of this shard's inputs, summed over all shards."""
    packed = load_packed(weights, name, num_outputs, num_inputs)
    return Linear(
        matrix=keep(weights, packed)
        if packed is not None
        else Dense(weight=weights.columns(f"{name}.weight", num_outputs, num_inputs)),
        bias=weights.keep(weights.bias(f"{name}.bias", num_outputs)) if has_bias else None,
        shard=weights.shard,
    )


def _merged_bias(weights: WeightLoader, names: Sequence[str], sizes: Sequence[int]) -> Tensor:
    parts = [
        weights.bias(f"{name}.bias", size, weights.shard)
        for name, size in zip(names, sizes, strict=True)
    ]
    return weights.keep(torch.cat(parts))
