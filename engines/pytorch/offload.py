"""The bytes of blocks that are saved in the host's memory, and their way there and back.

Every copy is ordered on the stream that steps are computed on, so none overtakes the step that
writes or reads its block; the processor waits for none of them.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from itertools import groupby
from typing import Final

import torch
from torch import Tensor

from engines.pytorch.block_saves import Copy, Load, Save
from engines.pytorch.kv_cache import LayerCache

# Bounds what the device needs for copies: one admission can move a hundred thousand tokens.
_COPIES_AT_ONCE: Final = 32


class HostBlocks:
    """`num_places` places, each for one block of all layers, side by side."""

    def __init__(self, cache: tuple[LayerCache, ...], num_places: int) -> None:
        self._parts = [_bytes_of(tensor) for layer in cache for tensor in layer.tensors]
        self._widths = [part.shape[1] for part in self._parts]
        self._device = self._parts[0].device
        self._store = torch.empty(
            (num_places, sum(self._widths)),
            dtype=torch.uint8,
            pin_memory=self._device.type == "cuda",
        )

    def carry_out(self, copies: Seq[Copy]) -> None:
        """Do them, one kind after the other as they come."""
        for kind, some in groupby(copies, type):
            for part in _parts(list(some)):
                if kind is Save:
                    self._save([copy for copy in part if isinstance(copy, Save)])
                else:
                    self._load([copy for copy in part if isinstance(copy, Load)])

    def _save(self, saves: list[Save]) -> None:
        blocks = self._index([save.block for save in saves])
        rows = torch.cat([part.index_select(0, blocks) for part in self._parts], dim=1)
        for row, save in zip(rows, saves, strict=True):
            self._store[save.place].copy_(row, non_blocking=True)

    def _load(self, loads: list[Load]) -> None:
        places = {load.block: load.place for load in loads}  # the last one counts
        rows = torch.empty(
            (len(places), self._store.shape[1]), dtype=torch.uint8, device=self._device
        )
        for row, place in zip(rows, places.values(), strict=True):
            row.copy_(self._store[place], non_blocking=True)
        blocks = self._index(list(places))
        for part, some in zip(self._parts, torch.split(rows, self._widths, dim=1), strict=True):
            part.index_copy_(0, blocks, some)

    def _index(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, device=self._device)


def _bytes_of(tensor: Tensor) -> Tensor:
    """The same memory as bytes, a row a block."""
    return tensor.view(torch.uint8).flatten(1)


def _parts(copies: list[Copy]) -> Iterator[list[Copy]]:
    for start in range(0, len(copies), _COPIES_AT_ONCE):
        yield copies[start : start + _COPIES_AT_ONCE]
