"""RMS normalisation in Triton: one program a row, which is read once."""

import torch
import triton
from torch import Tensor
from triton import language as tl


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See `norms.rms_norm`."""
    answers = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _launch(x, None, weight, answers, None, eps)
    return answers


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """See `norms.add_rms_norm`."""
    answers = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    totals = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _launch(x, residual, weight, answers, totals, eps)
    return answers, totals


def num_warps(block: int) -> int:
    """Eight numbers a thread: sixteen bytes of most types, the widest load there is."""
    return min(16, max(1, block // 256))


def _launch(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    answers: Tensor,
    totals: Tensor | None,
    eps: float,
) -> None:
    x = x if x.stride(-1) == 1 else x.contiguous()
    residual = None if residual is None else residual.contiguous()
    block = triton.next_power_of_2(x.shape[1])
    if len(x):
        _norm[(len(x),)](
            x,
            residual,
            weight,
            answers,
            totals,
            x.stride(0),
            eps,
            SIZE=x.shape[1],
            BLOCK=block,
            num_warps=num_warps(block),
        )


@triton.jit
def _norm(
    x,
    residual,
    weight,
    answers,
    totals,
    x_stride,
    eps,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    is_one = columns < SIZE
    some = tl.load(x + row * x_stride + columns, mask=is_one, other=0.0)
    if residual is not None:
        more = tl.load(residual + row * SIZE + columns, mask=is_one, other=0.0)
        some = (some.to(tl.float32) + more.to(tl.float32)).to(totals.dtype.element_ty)
        tl.store(totals + row * SIZE + columns, some, mask=is_one)
    wide = some.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide) / SIZE + eps)
    weights = tl.load(weight + columns, mask=is_one, other=0.0).to(tl.float32)
    answer = (wide * scale * weights).to(answers.dtype.element_ty)
    tl.store(answers + row * SIZE + columns, answer, mask=is_one)
