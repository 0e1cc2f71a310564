"""Triton's interpreter keeps bfloat16 as 16-bit integers, and forgets it where it multiplies.

And where it makes one of a float32, it cuts off what a GPU rounds.
"""

from typing import Any

import numpy as np
import torch
from triton import language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle


def mend_bfloat16() -> None:
    """Products of bfloat16 and its conversions go by way of float32, as they should."""
    multiply, convert = InterpreterBuilder.create_dot, InterpreterBuilder.cast_impl

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return multiply(self, _widened(self, a), _widened(self, b), *rest)

    def cast_impl(self: Any, numbers: Any, dtype: Any) -> Any:
        kinds = {numbers.dtype.scalar, dtype.scalar}
        if tl.bfloat16 in kinds and tl.float32 not in kinds and len(kinds) > 1:
            numbers = convert(self, numbers, tl.float32)
        if dtype.scalar == tl.bfloat16 and numbers.dtype.scalar == tl.float32:
            rounded = torch.from_numpy(numbers.data).bfloat16().view(torch.int16)
            return TensorHandle(rounded.numpy().view(np.uint16), tl.bfloat16)
        return convert(self, numbers, dtype)

    def _widened(self: Any, numbers: Any) -> Any:
        is_narrow = numbers.dtype.scalar == tl.bfloat16
        return convert(self, numbers, tl.float32) if is_narrow else numbers

    InterpreterBuilder.create_dot = create_dot
    InterpreterBuilder.cast_impl = cast_impl
