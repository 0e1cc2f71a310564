"""Prompts are computed one after the other, and no short one waits behind a long one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.generation import SamplingParams
from engines.prompt_shares import MOST_SCORED_TOKENS, share_out
from engines.sequence import Sequence


def prompts(*num_uncomputed: int) -> list[Sequence]:
    return [
        Sequence(
            request_id=str(number),
            index=0,
            num_prompt_tokens=5 + length,
            token_ids=[0] * (5 + length),
            max_tokens=1,
            sampling=SamplingParams(),
            seed=0,
            num_computed=5,
        )
        for number, length in enumerate(num_uncomputed)
    ]


@pytest.mark.parametrize(
    ("num_uncomputed", "lengths"),
    [
        ((600, 600, 600), {"0": 64}),
        ((4000, 10), {"0": 54, "1": 10}),
        ((4000, 200), {"0": 32, "1": 32}),
        ((4000, 300, 20, 3000), {"0": 32, "1": 12, "2": 20}),
        ((30, 600, 600), {"0": 30, "1": 34}),
        ((20, 20, 20), {"0": 20, "1": 20, "2": 20}),
        ((1, 1), {"0": 1, "1": 1}),
        ((), {}),
    ],
)
def test_the_first_goes_first_and_shorter_ones_beside_it(
    num_uncomputed: tuple[int, ...], lengths: dict[str, int]
) -> None:
    chunks = share_out(prompts(*num_uncomputed), 64)
    assert {chunk.sequence.request_id: chunk.length for chunk in chunks} == lengths


def test_a_chunk_that_ends_its_prompt_samples() -> None:
    first, second = share_out(prompts(4000, 10), 64)
    assert (first.start, first.samples) == (5, False)
    assert (second.start, second.samples) == (5, True)


@given(st.lists(st.integers(1, 100), max_size=8), st.integers(0, 200))
def test_few_tokens_are_wasted_and_the_first_gets_about_half(
    num_uncomputed: list[int], num_tokens: int
) -> None:
    chunks = share_out(prompts(*num_uncomputed), num_tokens)
    num_useful = min(num_tokens, sum(num_uncomputed))
    num_cut = 3  # At most these are cut: the first, one of the shorter ones, and one after it.
    assert num_useful - num_cut <= sum(chunk.length for chunk in chunks) <= num_useful
    if chunks:
        assert chunks[0].sequence.request_id == "0"
        assert chunks[0].length >= min(num_uncomputed[0], num_tokens - num_tokens // 2) - 1


@given(st.lists(st.integers(1, 100), max_size=8), st.integers(2, 200))
def test_no_token_is_cut_off_alone(num_uncomputed: list[int], num_tokens: int) -> None:
    for number, chunk in enumerate(share_out(prompts(*num_uncomputed), num_tokens)):
        num_left = chunk.sequence.num_uncomputed - chunk.length
        assert num_left != 1 or chunk.length == 1
        assert num_left == 0 or chunk.length > 1 or number == 0


def test_rows_of_logits_for_prompts_that_are_scored_are_bounded() -> None:
    first, second, third = prompts(5000, 4000, 700)
    first.prompt_scores, second.prompt_scores = [], []
    lengths = {c.sequence.request_id: c.length for c in share_out([first, second, third], 8192)}
    assert lengths.get("0", 0) + lengths.get("1", 0) <= MOST_SCORED_TOKENS
    assert lengths["0"] > 0
    assert lengths["2"] == 700
