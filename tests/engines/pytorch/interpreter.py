"""Triton's interpreter keeps bfloat16 as 16-bit integers, and forgets it where it multiplies."""

from typing import Any

from triton import language as tl
from triton.runtime.interpreter import InterpreterBuilder


def mend_bfloat16() -> None:
    """Products of bfloat16 and its conversions go by way of float32, as they should."""
    multiply, convert = InterpreterBuilder.create_dot, InterpreterBuilder.cast_impl

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return multiply(self, _widened(self, a), _widened(self, b), *rest)

    def cast_impl(self: Any, numbers: Any, dtype: Any) -> Any:
        kinds = {numbers.dtype.scalar, dtype.scalar}
        if tl.bfloat16 in kinds and tl.float32 not in kinds and len(kinds) > 1:
            numbers = convert(self, numbers, tl.float32)
        return convert(self, numbers, dtype)

    def _widened(self: Any, numbers: Any) -> Any:
        is_narrow = numbers.dtype.scalar == tl.bfloat16
        return convert(self, numbers, tl.float32) if is_narrow else numbers

    InterpreterBuilder.create_dot = create_dot
    InterpreterBuilder.cast_impl = cast_impl
