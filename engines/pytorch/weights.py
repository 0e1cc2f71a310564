"""How the tensors of a model come out of its files onto the device: each checked before it is used.

Names are those of a Llama in a Hugging Face folder, without `model.` before them, whatever the file
calls them.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from appliance.errors import CatalogueError
from engines.pytorch.layers.shard import ALONE, Shard
from engines.pytorch.model_config import QuantizationConfig


class WeightSource(Protocol):
    """The files of one model."""

    @property
    def label(self) -> str:
        """The file that says which tensors there are, for messages."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every tensor by name."""

    def file_of(self, name: str) -> str:
        """The file that a tensor is in, and what it is called there, for messages."""

    def read(self, name: str, part: tuple[slice, ...]) -> Tensor:
        """A part of a tensor, on the CPU, in the type it is stored in."""


class WeightLoader:
    """Reads what layers ask for, and notices what nobody asked for.

    `tensors` are all that were put on the device, so that their memory can be given back for a
    while; `num_bytes` is what they take.
    """

    def __init__(
        self,
        source: WeightSource,
        *,
        dtype: torch.dtype,
        device: torch.device,
        shard: Shard = ALONE,
        quantization: QuantizationConfig | None = None,
    ) -> None:
        self.source = source
        self.dtype = dtype
        self.device = device
        self.shard = shard
        self.quantization = quantization
        self.tensors: list[Tensor] = []
        self._read: set[str] = set()

    @property
    def num_bytes(self) -> int:
        """What the tensors take on the device."""
        return sum(tensor.nbytes for tensor in self.tensors)

    def vector(self, name: str, size: int, *, offset: float = 0.0) -> Tensor:
        """A norm's weights: in float32, since they are small and multiply everything."""
        return self.keep(self.read(name, (size,)).float() + offset)

    def bias(self, name: str, size: int, shard: Shard = ALONE) -> Tensor:
        """Numbers added to the outputs of a product; those of a shard."""
        return self.read(name, (size,), (shard.part(size),)).to(self.dtype)

    def rows(
        self, names: Sequence[str], sizes: Sequence[int], width: int, shard: Shard | None = None
    ) -> Tensor:
        """Matrices one below the other, of each the rows of a shard; by default of this one."""
        parts = [(shard or self.shard).part(size) for size in sizes]
        merged = self.empty(sum(part.stop - part.start for part in parts), width)
        start = 0
        for name, size, part in zip(names, sizes, parts, strict=True):
            end = start + part.stop - part.start
            merged[start:end] = self.read(name, (size, width), (part,))
            start = end
        return self.keep(merged)

    def columns(self, name: str, height: int, width: int) -> Tensor:
        """A matrix's columns that are this shard's."""
        part = (slice(0, height), self.shard.part(width))
        return self.keep(self.read(name, (height, width), part).to(self.dtype).contiguous())

    def whole(self, name: str, height: int, width: int) -> Tensor:
        """A matrix that every shard has all of."""
        return self.keep(self.read(name, (height, width)).to(self.dtype))

    def read(self, name: str, shape: tuple[int, ...], part: tuple[slice, ...] = ()) -> Tensor:
        """A tensor on the device, as it is stored.

        Raises CatalogueError `model.tensor_missing`, `model.tensor_shape` or
        `model.tensor_not_finite`, naming file and tensor.
        """
        found = self.source.shapes.get(name)
        if found is None:
            message = f"{self.source.label} has no tensor {name}, which the configuration asks for"
            raise CatalogueError("model.tensor_missing", message)
        if found != shape:
            raise CatalogueError(
                "model.tensor_shape",
                f"{self.source.file_of(name)} has the shape {list(found)}, not {list(shape)} as "
                "the model's configuration says",
            )
        self._read.add(name)
        tensor = self.source.read(name, part).to(self.device)
        if tensor.is_floating_point() and not _is_finite(tensor):
            message = f"{self.source.file_of(name)} holds numbers that are not finite"
            raise CatalogueError("model.tensor_not_finite", message)
        return tensor

    def keep(self, tensor: Tensor) -> Tensor:
        """Count a tensor that stays on the device."""
        self.tensors.append(tensor)
        return tensor

    def finish(self, ignored: Sequence[str] = ()) -> None:
        """Raise CatalogueError `model.tensor_unexpected` for a tensor that nobody asked for."""
        for name in self.source.shapes:
            if name not in self._read and not name.endswith(tuple(ignored)):
                raise CatalogueError(
                    "model.tensor_unexpected",
                    f"{self.source.file_of(name)} is not part of a model as its configuration "
                    "describes it",
                )

    def empty(self, *shape: int) -> Tensor:
        """Room on the device that is to be filled and kept."""
        return torch.empty(shape, dtype=self.dtype, device=self.device)


def _is_finite(tensor: Tensor) -> bool:
    """Whether all numbers are. Few operations know fp8, so it is looked at in 16 bits."""
    wide = tensor.to(torch.bfloat16) if tensor.itemsize == 1 else tensor
    return bool(torch.isfinite(wide).all())
