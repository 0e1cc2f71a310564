"""How a GGUF file's header is read: every length is checked against the file's real size.

The format is specified in ggml's docs/gguf.md; versions 2 and 3 are read.
"""

import math
import os
import struct
from typing import BinaryIO, Final, TypeAlias

from msgspec import Struct

# What libllama itself bounds: GGML_MAX_DIMS, GGML_MAX_NAME with its NUL.
_MAX_DIMS: Final = 4
_MAX_TENSOR_NAME_BYTES: Final = 63
# Arrays up to this length are read; longer ones are vocabularies, which are skipped.
_MAX_NUMBERS_READ: Final = 512
# Longest string that is read into memory; longer ones are a broken length (templates are < 100 kB).
_MAX_STRING_BYTES: Final = 4 * 1024 * 1024
_MIN_PAIR_BYTES: Final = 8 + 1 + 4 + 1
_MIN_TENSOR_BYTES: Final = 8 + 1 + 4 + 8 + 4 + 8

STRING: Final = 8
_ARRAY: Final = 9
# GGUF value types by number, as struct formats. 7 is a bool: one byte, 0 or 1.
_SCALARS: Final = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
UINT32: Final = 4
INT32: Final = 5
FLOAT32: Final = 6

# ggml tensor types by number: elements in a block, bytes of a block.
TENSOR_TYPES: Final = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
    9: (32, 36), 10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
    15: (256, 292), 16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18),
    21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8),
    28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17),
    40: (64, 36), 41: (128, 18), 42: (64, 18),
}  # fmt: skip

Scalar: TypeAlias = int | float | bool | str


class Broken(Struct, frozen=True, kw_only=True):
    """What is wrong with a file, and where in it."""

    what: str
    offset: int


class BrokenFileError(Exception):
    """The file is not what its header says."""

    def __init__(self, what: str, offset: int) -> None:
        super().__init__(what)
        self.broken = Broken(what=what, offset=offset)


def quote(name: str) -> str:
    """A name from the file, fit for a message of one line."""
    return repr(name if len(name) <= 80 else f"{name[:80]}...")


class Reader:
    """Little-endian values from a file, never past its real end."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.size = os.fstat(source.fileno()).st_size

    @property
    def offset(self) -> int:
        """Where the next value starts."""
        return self._source.tell()

    @property
    def num_left(self) -> int:
        """Bytes from here to the end of the file."""
        return self.size - self.offset

    def scalar(self, layout: str) -> int | float | bool:
        """One number, in a `struct` format."""
        value: int | float | bool = struct.unpack(layout, self.take(struct.calcsize(layout)))[0]
        return value

    def integer(self, layout: str) -> int:
        """One whole number."""
        return int(self.scalar(layout))

    def string(self, what: str) -> str:
        """A length of 8 bytes and that much UTF-8."""
        at = self.offset
        length = self._string_length(what)
        if length > _MAX_STRING_BYTES:
            raise BrokenFileError(f"{what} is {length} bytes long", at)
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise BrokenFileError(f"{what} is not UTF-8", at + 8 + error.start) from None

    def skip_strings(self, count: int, what: str) -> None:
        """Step over `count` strings."""
        for _ in range(count):
            self.skip(self._string_length(what), what)

    def skip(self, num_bytes: int, what: str) -> None:
        """Step over bytes that must be there."""
        if num_bytes > self.num_left:
            raise BrokenFileError(
                f"{what} ends {num_bytes - self.num_left} bytes after the file", self.offset
            )
        self._source.seek(num_bytes, os.SEEK_CUR)

    def _string_length(self, what: str) -> int:
        at = self.offset
        length = self.integer("<Q")
        if length > self.num_left:
            raise BrokenFileError(f"{what} is said to be {length} bytes long", at)
        return length

    def take(self, num_bytes: int) -> bytes:
        """The next bytes, all of which must be there."""
        at = self.offset
        taken = self._source.read(num_bytes)
        if len(taken) < num_bytes:
            raise BrokenFileError("the file ends inside its header", at)
        return taken


class ArrayOf(Struct, frozen=True, kw_only=True):
    """An array in the header. `numbers` is read only where it is short."""

    type: int
    length: int
    numbers: tuple[int | float, ...] = ()


Pairs: TypeAlias = dict[str, "Scalar | ArrayOf"]


class Tensor(Struct, frozen=True):
    """One entry of the tensor table. `at` is where the entry stands in the file."""

    name: str
    num_bytes: int
    start: int
    at: int
    num_elements: int = 0


def read_counts(reader: Reader) -> tuple[int, int]:
    """Magic and version checked: how many tensors and key-value pairs there are."""
    if reader.size < 24 or reader.take(4) != b"GGUF":
        raise BrokenFileError("the file does not start as a GGUF file does", 0)
    version = reader.integer("<I")
    if version not in (2, 3):
        raise BrokenFileError(f"GGUF version {version} is not one of 2 and 3", 4)
    num_tensors, num_pairs = reader.integer("<Q"), reader.integer("<Q")
    for name, count, least, at in (
        ("tensors", num_tensors, _MIN_TENSOR_BYTES, 8),
        ("key-value pairs", num_pairs, _MIN_PAIR_BYTES, 16),
    ):
        if count * least > reader.num_left:
            raise BrokenFileError(f"{count} {name} do not fit into the file", at)
    return num_tensors, num_pairs


def read_pairs(reader: Reader, count: int) -> Pairs:
    """The metadata by key; of long arrays only type and length."""
    pairs: Pairs = {}
    for _ in range(count):
        at = reader.offset
        key = reader.string("a key")
        if not key:
            raise BrokenFileError("a key is empty", at)
        if key in pairs:
            raise BrokenFileError(f"the key {quote(key)} is there twice", at)
        pairs[key] = _read_value(reader, key)
    return pairs


def _read_value(reader: Reader, key: str) -> Scalar | ArrayOf:
    at = reader.offset
    kind = reader.integer("<I")
    if kind == STRING:
        return reader.string(quote(key))
    if kind == _ARRAY:
        return _read_array(reader, key)
    if kind not in _SCALARS:
        raise BrokenFileError(f"the value of {quote(key)} has unknown type {kind}", at)
    return reader.scalar(_SCALARS[kind])


def _read_array(reader: Reader, key: str) -> ArrayOf:
    at = reader.offset
    kind, length = reader.integer("<I"), reader.integer("<Q")
    if kind == STRING:
        if length * 8 > reader.num_left:
            raise BrokenFileError(f"{length} strings in {quote(key)} do not fit into the file", at)
        reader.skip_strings(length, f"a string in {quote(key)}")
        return ArrayOf(type=kind, length=length)
    if kind not in _SCALARS:
        raise BrokenFileError(f"the array {quote(key)} has elements of unsupported type {kind}", at)
    if length <= _MAX_NUMBERS_READ:
        numbers = tuple(reader.scalar(_SCALARS[kind]) for _ in range(length))
        return ArrayOf(type=kind, length=length, numbers=numbers)
    reader.skip(length * struct.calcsize(_SCALARS[kind]), f"the array {quote(key)}")
    return ArrayOf(type=kind, length=length)


def read_tensor(reader: Reader) -> Tensor:
    """One entry of the tensor table."""
    at = reader.offset
    name = reader.string("a tensor's name")
    if not 0 < len(name.encode()) <= _MAX_TENSOR_NAME_BYTES:
        raise BrokenFileError("a tensor's name is empty or too long", at)
    num_dims = reader.integer("<I")
    if not 0 < num_dims <= _MAX_DIMS:
        raise BrokenFileError(f"the tensor {quote(name)} has {num_dims} dimensions", at)
    dims = [reader.integer("<Q") for _ in range(num_dims)]
    kind = reader.integer("<I")
    if kind not in TENSOR_TYPES:
        raise BrokenFileError(f"the tensor {quote(name)} has unknown type {kind}", at)
    block_elements, block_bytes = TENSOR_TYPES[kind]
    if min(dims) == 0 or dims[0] % block_elements:
        raise BrokenFileError(f"the tensor {quote(name)} cannot have the shape {dims}", at)
    num_bytes = math.prod(dims) // block_elements * block_bytes
    if num_bytes > reader.size:
        raise BrokenFileError(
            f"the tensor {quote(name)} of shape {dims} is larger than the file", at
        )
    return Tensor(name, num_bytes, reader.integer("<Q"), at, math.prod(dims))
