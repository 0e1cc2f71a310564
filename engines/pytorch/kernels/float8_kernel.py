"""Numbers of float8_e4m3fn inside kernels, also on GPUs that have no instruction for them."""

import triton
from triton import language as tl


@triton.jit
def from_bytes(numbers, IS_NATIVE: tl.constexpr):
    """Bytes that hold float8_e4m3fn, as float16, exactly.

    Without the instruction: sign, exponent and mantissa moved to where float16 has them give a
    number that is 2^8 too small (exponents are biased by 7 and by 15), subnormals included.
    """
    if IS_NATIVE:
        return numbers.to(tl.float8e4nv, bitcast=True).to(tl.float16)
    else:  # noqa: RET505 (a branch that Triton chooses while it compiles)
        wide = numbers.to(tl.int16)
        bits = ((wide & 0x80) << 8) | ((wide & 0x7F) << 7)
        return bits.to(tl.float16, bitcast=True) * 256.0
