"""What a GGUF file holds and where, once `appliance.weights_check` has found it sound.

The format is specified in ggml's docs/gguf.md. The gguf package reads it too, but takes 5 s for the
vocabulary of a small model where this takes 0.1.
"""

import mmap
import struct
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import QuantError, dequantize
from msgspec import Struct
from numpy.typing import NDArray

from appliance.errors import CatalogueError
from appliance.weights_check import check_weights

_COUNTS_AT: Final = 8
_STRING: Final = 8
_ARRAY: Final = 9
# Types of values by number, as struct formats.
_SCALARS: Final = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip


class StoredTensor(Struct, frozen=True, kw_only=True):
    """One tensor, its shape as torch has it: the last dimension is the one that lies together."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    start: int

    @property
    def byte_shape(self) -> tuple[int, ...]:
        """The shape in bytes; packed numbers come in blocks that never go beyond a row."""
        block_numbers, block_bytes = GGML_QUANT_SIZES[self.type]
        return *self.shape[:-1], self.shape[-1] // block_numbers * block_bytes


class GgufHeader:
    """`values` by key, arrays as lists; `tensors` by name. The file stays mapped.

    Raises CatalogueError `model.file_broken` or `model.quantization_unknown`.
    """

    def __init__(self, path: Path) -> None:
        check_weights(path)
        self.file = path.name
        with path.open("rb") as source:
            self._bytes = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = _COUNTS_AT
        num_tensors, num_values = self._number("Q"), self._number("Q")
        self.values = dict(self._pair() for _ in range(num_values))
        tensors = [self._tensor() for _ in range(num_tensors)]
        self.tensors = {tensor.name: tensor for tensor in tensors}
        alignment = self.values.get("general.alignment", 32)
        self._data_start = -(-self._at // alignment) * alignment

    def numbers(self, tensor: StoredTensor, part: tuple[int | slice, ...] = ()) -> NDArray[Any]:
        """The numbers of a tensor, or of some of its rows; float32 where they are packed.

        Raises CatalogueError `model.quantization_unknown`.
        """
        shape = tensor.byte_shape
        start = self._data_start + tensor.start
        stored = np.frombuffer(
            self._bytes, np.uint8, count=int(np.prod(shape)), offset=start
        ).reshape(shape)
        try:
            return dequantize(np.ascontiguousarray(stored[part]), tensor.type)
        except (NotImplementedError, QuantError):
            raise self._unknown(tensor.name, tensor.type.name) from None

    def _number(self, layout: str) -> Any:  # noqa: ANN401
        value = struct.unpack_from(f"<{layout}", self._bytes, self._at)[0]
        self._at += struct.calcsize(f"<{layout}")
        return value

    def _text(self) -> str:
        end = self._number("Q") + self._at
        found = self._bytes[self._at : end].decode(errors="replace")
        self._at = end
        return found

    def _pair(self) -> tuple[str, Any]:
        return self._text(), self._value(self._number("I"))

    def _value(self, kind: int) -> Any:  # noqa: ANN401
        if kind == _STRING:
            return self._text()
        if kind != _ARRAY:
            return self._number(_SCALARS[kind])
        kind, length = self._number("I"), self._number("Q")
        if kind == _STRING:
            return [self._text() for _ in range(length)]
        layout = f"<{length}{_SCALARS[kind]}"
        values = list(struct.unpack_from(layout, self._bytes, self._at))
        self._at += struct.calcsize(layout)
        return values

    def _tensor(self) -> StoredTensor:
        name, num_dims = self._text(), self._number("I")
        shape = tuple(self._number("Q") for _ in range(num_dims))[::-1]
        kind = self._format_of(name, self._number("I"))
        return StoredTensor(name=name, shape=shape, type=kind, start=self._number("Q"))

    def _format_of(self, tensor: str, number: int) -> GGMLQuantizationType:
        try:
            return GGMLQuantizationType(number)
        except ValueError:
            raise self._unknown(tensor, f"number {number}") from None

    def _unknown(self, tensor: str, format_: str) -> CatalogueError:
        return CatalogueError(
            "model.quantization_unknown",
            f"{self.file}: the tensor {tensor} is packed in a format not known here: {format_}",
            hint="take the model in another format",
        )
