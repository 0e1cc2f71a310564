"""Attention over the paged cache: each token sees its sequence up to itself, and nothing else."""

from typing import Final

import pytest
import torch
from msgspec import structs

from engines.pytorch.kernels.torch_ops import torch_ops
from engines.pytorch.ops import AttentionShape, Ops
from tests.engines.pytorch.kernels import exact
from tests.engines.pytorch.kernels.steps import Heads, make_step

TOLERANCES: Final = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


@pytest.fixture(params=["torch", "triton"])
def ops(request: pytest.FixtureRequest) -> Ops:
    """Each of the two sets; kernels run in Triton's interpreter."""
    if request.param == "torch":
        return torch_ops()
    from engines.pytorch.kernels.triton_ops import triton_ops

    return triton_ops()


def _check(ops: Ops, heads: Heads, lengths: list[tuple[int, int]], shape: AttentionShape) -> None:
    queries, cache, inputs = make_step(heads, lengths)
    answers = ops.attend(queries, cache, inputs, shape)
    assert answers.dtype == heads.dtype
    expected = exact.attend(queries, cache, inputs, shape)
    tolerance = TOLERANCES[heads.dtype]
    torch.testing.assert_close(answers.double(), expected, rtol=tolerance, atol=tolerance)


# New tokens and tokens in all: decoding, a first token, a prompt, padding, a later chunk, the last
# token of a block, nothing new.
MIXED: Final = [(1, 37), (1, 1), (21, 21), (1, 0), (19, 40), (1, 16), (0, 9)]


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("window", [0, 7])
def test_each_token_sees_its_sequence_up_to_itself(
    ops: Ops, dtype: torch.dtype, window: int
) -> None:
    heads = Heads(num_heads=4, num_kv_heads=2, head_dim=64, dtype=dtype)
    _check(ops, heads, MIXED, AttentionShape(scale=0.125, window=window))


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("head_dim", [80, 96, 128, 256])
def test_heads_of_every_size(ops: Ops, head_dim: int) -> None:
    heads = Heads(num_heads=2, num_kv_heads=1, head_dim=head_dim, dtype=torch.bfloat16)
    _check(ops, heads, [(1, 37), (20, 21)], AttentionShape(scale=head_dim**-0.5))


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("group", [1, 3, 7, 16, 40])
def test_every_number_of_queries_to_a_key(ops: Ops, group: int) -> None:
    heads = Heads(num_heads=group, num_kv_heads=1, head_dim=64, dtype=torch.float16)
    _check(ops, heads, [(1, 20), (3, 18), (70, 71)], AttentionShape(scale=0.1))


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("window", [0, 600])
def test_long_sequences_are_joined_from_their_splits(ops: Ops, window: int) -> None:
    heads = Heads(num_heads=2, num_kv_heads=1, head_dim=64, dtype=torch.float32)
    lengths = [(1, 1300), (1, 512), (2, 513), (1, 30), (1, 1024)]
    _check(ops, heads, lengths, AttentionShape(scale=0.125, window=window))


@pytest.mark.usefixtures("poisoned_memory")
def test_scores_are_capped_softly_even_when_they_are_huge(ops: Ops) -> None:
    heads = Heads(num_heads=2, num_kv_heads=2, head_dim=64, dtype=torch.float32)
    for scale in (0.125, 1000.0):
        _check(ops, heads, [(1, 37), (40, 50)], AttentionShape(scale=scale, soft_cap=30.0))


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_cache_of_8_bits_is_scaled_back(ops: Ops, dtype: torch.dtype) -> None:
    heads = Heads(
        num_heads=4, num_kv_heads=2, head_dim=64, dtype=dtype, cache_dtype=torch.float8_e4m3fn
    )
    _check(ops, heads, MIXED, AttentionShape(scale=0.125))
    _check(ops, heads, [(1, 600)], AttentionShape(scale=0.125))


def test_a_needle_is_found_in_a_cache_of_8_bits_whose_other_values_are_huge(ops: Ops) -> None:
    """One key that the query is after, beside values a million times those that lie at it."""
    heads = Heads(
        num_heads=1,
        num_kv_heads=1,
        head_dim=64,
        dtype=torch.float32,
        cache_dtype=torch.float8_e4m3fn,
    )
    queries, cache, inputs = make_step(heads, [(1, 600)])
    assert cache.value_scales is not None and cache.key_scales is not None
    slot = divmod(300, 16)
    block = int(inputs.block_tables[0, slot[0]])
    cache.value_scales.mul_(1e3)
    cache.value_scales[block, 0, slot[1]] = 1e-3
    cache.key_scales[block, 0, slot[1]] *= 50
    queries[0, 0] = cache.keys[block, 0, slot[1]].float()
    shape = AttentionShape(scale=1.0)
    answers = ops.attend(queries, cache, inputs, shape)
    expected = exact.attend(queries, cache, inputs, shape)
    torch.testing.assert_close(answers.double(), expected, rtol=1e-2, atol=0.0)


@pytest.mark.parametrize("window", [0, 20])
def test_a_sequence_is_computed_alike_in_every_batch(ops: Ops, window: int) -> None:
    """To the last bit, whatever lies beside it and however wide the block table is."""
    heads = Heads(num_heads=4, num_kv_heads=2, head_dim=64, dtype=torch.float32)
    queries, cache, inputs = make_step(heads, [(1, 530), (1, 40), (20, 60)], table_width=40)
    shape = AttentionShape(scale=0.125, window=window)
    together = ops.attend(queries, cache, inputs, shape)
    for sequence in range(3):
        start, end = inputs.query_starts[sequence : sequence + 2].tolist()
        alone = structs.replace(
            inputs,
            query_starts=torch.tensor([0, end - start], dtype=torch.int32),
            context_lengths=inputs.context_lengths[sequence : sequence + 1],
            block_tables=inputs.block_tables[sequence : sequence + 1, :34],
            max_query_length=end - start,
        )
        answers = ops.attend(queries[start:end], cache, alone, shape)
        assert torch.equal(answers, together[start:end])
