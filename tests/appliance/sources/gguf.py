"""A GGUF file of a few hundred bytes: right in every header, with one tensor of zeros."""

import struct
from typing import Final

_STRING: Final = 8
_UINT32: Final = 4
_F32: Final = 0
_ALIGNMENT: Final = 32


def tiny_gguf(num_values: int = 64) -> bytes:
    """The whole file; `num_values` floats of weights (a multiple of 32)."""
    metadata = _text("general.architecture") + struct.pack("<I", _STRING) + _text("llama")
    metadata += _text("general.alignment") + struct.pack("<II", _UINT32, _ALIGNMENT)
    tensor = _text("token_embd.weight") + struct.pack("<IQIQ", 1, num_values, _F32, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 2) + metadata + tensor
    padding = -len(head) % _ALIGNMENT
    return head + bytes(padding) + bytes(4 * num_values)


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded
