"""Tensors that give their device's memory back for a while, and stay the same objects.

Memory that is not torch's own, as of mapped files on a processor, stays where it is.
"""

from collections.abc import Iterable

import torch
from torch import Tensor


class Sleeper:
    """Weights, which are kept in the host's memory meanwhile, and scratch, which is not."""

    def __init__(self, weights: Iterable[Tensor], scratch: Iterable[Tensor]) -> None:
        self._weights = tuple(filter(_is_resizable, weights))
        self._scratch = tuple(filter(_is_resizable, scratch))
        self._num_bytes = [tensor.untyped_storage().nbytes() for tensor in self._all]
        self._kept: list[Tensor] = []

    def sleep(self) -> None:
        """Give the device's memory back."""
        self._kept = [_on_host(weight) for weight in self._weights]
        self._wait()
        for tensor in self._all:
            tensor.untyped_storage().resize_(0)

    def wake(self) -> None:
        """Take memory again. Weights are as they were, scratch is zero.

        Raises torch.OutOfMemoryError.
        """
        for tensor, num_bytes in zip(self._all, self._num_bytes, strict=True):
            tensor.untyped_storage().resize_(num_bytes)
        for weight, kept in zip(self._weights, self._kept, strict=True):
            weight.copy_(kept, non_blocking=True)
        for tensor in self._scratch:
            tensor.zero_()
        self._wait()
        self._kept = []

    @property
    def _all(self) -> tuple[Tensor, ...]:
        return self._weights + self._scratch

    def _wait(self) -> None:
        if any(tensor.is_cuda for tensor in self._weights):
            torch.cuda.synchronize()


def _is_resizable(tensor: Tensor) -> bool:
    resizable: bool = tensor.untyped_storage().resizable()
    return resizable


def _on_host(tensor: Tensor) -> Tensor:
    kept = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
    return kept.copy_(tensor, non_blocking=True)
