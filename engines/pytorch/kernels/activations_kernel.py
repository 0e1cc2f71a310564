"""The gated activations in Triton."""

import torch
import triton
from torch import Tensor
from triton import language as tl

_BLOCK = 1024


def silu_mul(gate_up: Tensor) -> Tensor:
    """See `activations.silu_mul`."""
    return _launch(gate_up, is_gelu=False)


def gelu_mul(gate_up: Tensor) -> Tensor:
    """See `activations.gelu_mul`."""
    return _launch(gate_up, is_gelu=True)


def _launch(gate_up: Tensor, *, is_gelu: bool) -> Tensor:
    gate_up = gate_up.contiguous()
    num_rows, size = len(gate_up), gate_up.shape[1] // 2
    answers = torch.empty((num_rows, size), dtype=gate_up.dtype, device=gate_up.device)
    if num_rows:
        grid = (num_rows, triton.cdiv(size, _BLOCK))
        _activate[grid](gate_up, answers, SIZE=size, IS_GELU=is_gelu, BLOCK=_BLOCK, num_warps=4)
    return answers


@triton.jit
def _activate(gate_up, answers, SIZE: tl.constexpr, IS_GELU: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_one = columns < SIZE
    start = gate_up + row * (2 * SIZE) + columns
    gate = tl.load(start, mask=is_one, other=0.0).to(tl.float32)
    up = tl.load(start + SIZE, mask=is_one, other=0.0).to(tl.float32)
    if IS_GELU:
        # 0.5 * (1 + tanh(y)) is the sigmoid of 2 y, here with y = sqrt(2 / pi) * (...).
        activated = gate * tl.sigmoid(1.5957691216057308 * (gate + 0.044715 * gate * gate * gate))
    else:
        activated = gate * tl.sigmoid(gate)
    answer = (activated * up).to(answers.dtype.element_ty)
    tl.store(answers + row * SIZE + columns, answer, mask=is_one)
