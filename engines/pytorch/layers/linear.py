"""Matrix products: split over devices by outputs, or by inputs and summed."""

from collections.abc import Sequence

import torch
from msgspec import Struct
from torch import Tensor
from torch.nn import functional

from engines.pytorch.layers.shard import ALONE, Shard
from engines.pytorch.weights import WeightLoader


class Linear(Struct, frozen=True, kw_only=True):
    """x W^T + b. Where `shard` has several parts the products are summed, b is added once."""

    weight: Tensor
    bias: Tensor | None = None
    shard: Shard = ALONE

    def __call__(self, x: Tensor) -> Tensor:
        """[T, inputs] to [T, outputs]."""
        if self.shard.size == 1:
            return functional.linear(x, self.weight, self.bias)
        total = self.shard.reduce(functional.linear(x, self.weight))
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
        weight=weights.rows([f"{name}.weight" for name in names], sizes, num_inputs),
        bias=_merged_bias(weights, names, sizes) if has_bias else None,
    )


def by_inputs(
    weights: WeightLoader, name: str, num_outputs: int, num_inputs: int, *, has_bias: bool = False
) -> Linear:
    """A product of this shard's inputs, summed over all shards."""
    return Linear(
        weight=weights.columns(f"{name}.weight", num_outputs, num_inputs),
        bias=weights.keep(weights.bias(f"{name}.bias", num_outputs)) if has_bias else None,
        shard=weights.shard,
    )


def _merged_bias(weights: WeightLoader, names: Sequence[str], sizes: Sequence[int]) -> Tensor:
    parts = [
        weights.bias(f"{name}.bias", size, weights.shard)
        for name, size in zip(names, sizes, strict=True)
    ]
    return weights.keep(torch.cat(parts))
