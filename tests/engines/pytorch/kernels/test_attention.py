"""Attention over the paged cache: each token sees its sequence up to itself, and nothing else."""

from typing import Final

import pytest
import torch

from engines.pytorch.kernels.torch_ops import torch_ops
from engines.pytorch.ops import AttentionShape, Ops
from tests.engines.pytorch.kernels import exact
from tests.engines.pytorch.kernels.steps import Heads, make_step

TOLERANCES: Final = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


@pytest.fixture
def ops() -> Ops:
    return torch_ops()


def _check(ops: Ops, heads: Heads, lengths: list[tuple[int, int]], shape: AttentionShape) -> None:
    queries, cache, inputs = make_step(heads, lengths)
    answers = ops.attend(queries, cache, inputs, shape)
    assert answers.dtype == heads.dtype
    expected = exact.attend(queries, cache, inputs, shape)
    tolerance = TOLERANCES[heads.dtype]
    torch.testing.assert_close(answers.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("window", [0, 7])
def test_each_token_sees_its_sequence_up_to_itself(
    ops: Ops, dtype: torch.dtype, window: int
) -> None:
    heads = Heads(num_heads=4, num_kv_heads=2, head_dim=64, dtype=dtype)
    lengths = [(1, 1), (1, 37), (5, 5), (1, 0), (3, 40), (1, 16), (0, 9)]
    _check(ops, heads, lengths, AttentionShape(scale=0.125, window=window))
