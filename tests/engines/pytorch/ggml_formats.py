"""ggml's own packing and unpacking of numbers, straight from the library that llama.cpp uses."""

import ctypes
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType
from gguf.constants import GGML_QUANT_SIZES
from llama_cpp._ggml import libggml
from numpy.typing import NDArray


class _Traits(ctypes.Structure):
    """`struct ggml_type_traits` of ggml.h as far as it is needed."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("block_numbers", ctypes.c_int64),
        ("block_interleave", ctypes.c_int64),
        ("block_bytes", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        (
            "to_float",
            ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_float), ctypes.c_int64),
        ),
    ]


libggml.ggml_get_type_traits.restype = ctypes.POINTER(_Traits)
libggml.ggml_quantize_chunk.restype = ctypes.c_size_t
libggml.ggml_quantize_chunk.argtypes = [
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p
]  # fmt: skip


def pack(numbers: NDArray[np.float32], kind: GGMLQuantizationType) -> NDArray[np.uint8]:
    """Rows of numbers as rows of bytes; all numbers of a row matter equally."""
    num_rows, width = numbers.shape
    block_numbers, block_bytes = GGML_QUANT_SIZES[kind]
    packed = np.empty((num_rows, width // block_numbers * block_bytes), np.uint8)
    weights = np.ones(width, np.float32)
    written = libggml.ggml_quantize_chunk(
        kind, numbers.ctypes.data, packed.ctypes.data, 0, num_rows, width, weights.ctypes.data
    )
    assert written == packed.nbytes
    return packed


def unpack(packed: NDArray[Any], kind: GGMLQuantizationType, width: int) -> NDArray[np.float32]:
    """Rows of bytes as rows of numbers."""
    numbers = np.empty((len(packed), width), np.float32)
    out = numbers.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    libggml.ggml_get_type_traits(kind).contents.to_float(packed.ctypes.data, out, numbers.size)
    return numbers
