"""The next token follows the parameters, the seed and the position, and nothing else."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.generation import SamplingParams
from engines.runner import RowError, Sampled
from engines.sampler import Row, SamplerState, choose_token, likeliest, random_number

VOCABULARY = 2000


def make_row(seed: int = 0, size: int = VOCABULARY) -> Row:
    return (np.random.default_rng(seed).standard_normal(size) * 3).astype(np.float32)


def choose(row: Row, params: SamplingParams, seed: int = 1, position: int = 0) -> Sampled:
    chosen = SamplerState(params, seed=seed).choose(row, [7] * position)
    assert isinstance(chosen, Sampled)
    return chosen


def drawn(row: Row, params: SamplingParams, num_draws: int = 4000) -> Counter[int]:
    return Counter(choose(row, params, seed=seed).token_id for seed in range(num_draws))


def probabilities(row: Row, temperature: float = 1.0) -> Row:
    weights = np.exp((row - row.max()) / temperature)
    return weights / weights.sum()


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=1e-9),
        SamplingParams(top_k=1),
        SamplingParams(top_p=1e-9),
        SamplingParams(min_p=1.0),
    ],
)
def test_greedy_settings_take_the_likeliest_token(params: SamplingParams) -> None:
    row = make_row()
    assert set(drawn(row, params, 20)) == {int(row.argmax())}


@pytest.mark.parametrize("top_k", [0, 1])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_all_rows_at_once_give_what_each_gives_alone(temperature: float, top_k: int) -> None:
    state = SamplerState(SamplingParams(temperature=temperature, top_k=top_k), seed=1)
    assert state.takes_likeliest == (temperature == 0.0 or top_k == 1)
    rows = np.stack([make_row(seed) for seed in range(6)])
    rows[2, 5] = np.nan
    rows[3] = -np.inf
    rows[4, 9] = np.inf
    if state.takes_likeliest:
        assert likeliest(rows) == [state.choose(row, []) for row in rows]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.0, logprobs=True),
        SamplingParams(temperature=0.0, frequency_penalty=0.1),
        SamplingParams(temperature=0.0, logit_bias=((3, 1.0),)),
    ],
)
def test_what_looks_at_more_than_the_likeliest_is_chosen_alone(params: SamplingParams) -> None:
    assert not SamplerState(params, seed=1).takes_likeliest


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_with_their_probability(temperature: float) -> None:
    row = np.log(np.array([0.5, 0.25, 0.15, 0.1], dtype=np.float32))
    counts = drawn(row, SamplingParams(temperature=temperature))
    shares = [counts[token_id] / 4000 for token_id in range(4)]
    assert np.allclose(shares, probabilities(row, temperature), atol=0.03)


def test_a_large_vocabulary_is_drawn_from_end_to_end() -> None:
    size = 50_001
    row = np.zeros(size, dtype=np.float32)
    tokens = [choose(row, SamplingParams(), seed=seed).token_id for seed in range(2000)]
    assert abs(np.mean(tokens) / size - 0.5) < 0.03
    assert min(tokens) < size * 0.01
    assert max(tokens) > size * 0.99


@given(
    seed=st.integers(0, 50),
    top_k=st.sampled_from([0, 1, 5, 40, VOCABULARY, 10**9]),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.9]),
    temperature=st.sampled_from([0.3, 1.0, 50.0]),
    random=st.floats(0.0, 1.0, exclude_max=True),
)
def test_truncation_leaves_what_its_definition_says(
    seed: int, top_k: int, top_p: float, min_p: float, temperature: float, random: float
) -> None:
    row = make_row(seed)
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    chosen = choose_token(row, params, random)
    order = np.argsort(-row)
    kept = order[:top_k] if top_k else order
    shares = probabilities(row[kept], temperature).astype(np.float64)
    needed = int(np.count_nonzero(np.cumsum(shares) - shares < top_p + 1e-6)) if top_p < 1 else None
    kept = kept[:needed]
    heavy = row[kept] >= row.max() + temperature * np.log(max(min_p, 1e-30)) - 1e-4
    assert chosen in set(kept[heavy].tolist())


def test_the_same_seed_and_position_choose_the_same_token() -> None:
    row = make_row()
    params = SamplingParams(temperature=2.0)
    first = [choose(row, params, seed=5, position=p).token_id for p in range(20)]
    again = [choose(row, params, seed=5, position=p).token_id for p in range(20)]
    other = [choose(row, params, seed=6, position=p).token_id for p in range(20)]
    assert first == again != other
    assert len(set(first)) > 5


@given(st.integers(-(2**63), 2**64), st.integers(0, 10**6))
def test_random_numbers_lie_between_zero_and_one(seed: int, position: int) -> None:
    assert 0.0 <= random_number(seed, position) < 1.0


def test_a_bias_can_force_or_forbid_a_token() -> None:
    row = make_row()
    best = int(row.argmax())
    forced = SamplingParams(temperature=0.0, logit_bias=((3, 100.0),))
    forbidden = SamplingParams(temperature=0.0, logit_bias=((best, -100.0),))
    assert choose(row, forced).token_id == 3
    assert choose(row, forbidden).token_id == int(np.argsort(-row)[1])
    assert row.argmax() == best


def test_penalties_count_the_output_as_it_grows() -> None:
    row = np.array([5.0, 4.5, 4.0], dtype=np.float32)
    state = SamplerState(
        SamplingParams(temperature=0.0, presence_penalty=0.6, frequency_penalty=0.3), seed=1
    )
    output: list[int] = []
    for _ in range(6):
        chosen = state.choose(row, output)
        assert isinstance(chosen, Sampled)
        output.append(chosen.token_id)
    assert output == [0, 1, 0, 2, 0, 1]


def test_penalties_are_the_same_after_starting_over() -> None:
    row = make_row()
    params = SamplingParams(temperature=1.0, frequency_penalty=1.0)
    steady = SamplerState(params, seed=3)
    output: list[int] = []
    for _ in range(30):
        chosen = steady.choose(row, output)
        assert chosen == SamplerState(params, seed=3).choose(row, output)
        assert isinstance(chosen, Sampled)
        output.append(chosen.token_id)


def test_logprobs_are_those_of_the_raw_row() -> None:
    row = make_row()
    params = SamplingParams(
        temperature=0.0, logit_bias=((3, 100.0),), logprobs=True, num_top_logprobs=5
    )
    chosen = choose(row, params)
    expected = np.log(probabilities(row.astype(np.float64)))
    assert chosen.logprob is not None
    assert chosen.logprob.token_id == 3
    assert chosen.logprob.logprob == pytest.approx(expected[3], abs=1e-4)
    assert [top.token_id for top in chosen.top] == np.argsort(-row)[:5].tolist()
    assert [top.logprob for top in chosen.top] == pytest.approx(np.sort(expected)[::-1][:5], 1e-4)


def test_logprobs_without_alternatives() -> None:
    chosen = choose(make_row(), SamplingParams(logprobs=True))
    assert chosen.logprob is not None
    assert chosen.top == ()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_with_a_number_that_is_none_is_an_error(bad: float, temperature: float) -> None:
    """sglang#33187, flashinfer#2402: a NaN row crashed the batch or gave garbage."""
    row = make_row()
    row[100] = bad
    chosen = SamplerState(SamplingParams(temperature=temperature), seed=1).choose(row, [])
    assert isinstance(chosen, RowError)
    assert chosen.code == "engine.row_not_finite"


def test_what_is_not_allowed_is_never_chosen_and_logprobs_stay_raw() -> None:
    row = make_row()
    allowed = np.zeros(VOCABULARY, np.bool_)
    allowed[[3, 5]] = True
    params = SamplingParams(temperature=2.0, top_k=1, logprobs=True)
    chosen = SamplerState(params, seed=1).choose(row, [], allowed)
    assert isinstance(chosen, Sampled)
    assert chosen.token_id == (3 if row[3] > row[5] else 5)
    assert chosen.logprob is not None
    raw = np.log(probabilities(row.astype(np.float64)))
    assert chosen.logprob.logprob == pytest.approx(raw[chosen.token_id], abs=1e-4)


def test_a_row_that_is_no_number_is_found_also_where_it_is_not_allowed() -> None:
    row = make_row()
    row[100] = np.nan
    allowed = np.zeros(VOCABULARY, np.bool_)
    allowed[3] = True
    assert isinstance(SamplerState(SamplingParams(), seed=1).choose(row, [], allowed), RowError)


def test_a_repetition_penalty_counts_prompt_and_output_once_each() -> None:
    """As in CTRL: what was there is divided where positive, multiplied where negative."""
    row = np.array([4.0, 3.0, 2.5, -1.0], dtype=np.float32)
    params = SamplingParams(temperature=0.0, repetition_penalty=2.0)
    state = SamplerState(params, seed=1, prompt_ids=[0, 0, 0, 3])
    output: list[int] = []
    for _ in range(4):
        chosen = state.choose(row, output)
        assert isinstance(chosen, Sampled)
        output.append(chosen.token_id)
    assert output == [1, 2, 0, 0]  # 4/2 at last is more than 3/2 and 2.5/2.
