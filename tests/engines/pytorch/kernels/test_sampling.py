"""The sampler on the device chooses what the one for numpy rows chooses, and says the same."""

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import pytest
import torch
from msgspec import structs
from numpy.typing import NDArray
from torch import Tensor

from appliance.generation import SamplingParams
from engines.pytorch.kernels import sampling
from engines.pytorch.kernels.sampling import Biases, Penalties, SamplingInputs, sample
from engines.runner import RowError, Sampled
from engines.sampler import SamplerState, random_number

Choose: TypeAlias = Callable[[Tensor, SamplingInputs], tuple[Tensor, Tensor]]

PARAMS: Final = [
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.7, top_k=5),
    SamplingParams(temperature=1.3, top_p=0.6),
    SamplingParams(temperature=1.0, min_p=0.2),
    SamplingParams(temperature=2.0, top_k=40, top_p=0.9, min_p=0.01),
    SamplingParams(temperature=1.0, top_k=1),
    SamplingParams(temperature=1.0, top_p=1e-9),
]
PROMPT: Final = [3, 3, 8]
OUTPUT: Final = [5, 8, 5, 700]


@pytest.fixture(params=["torch", "triton"])
def choose(request: pytest.FixtureRequest) -> Choose:
    if request.param == "torch":
        return sampling.choose
    from engines.pytorch.kernels import sampling_kernel

    return sampling_kernel.choose


def make_inputs(
    params: list[SamplingParams], *, seeds: list[int], positions: list[int]
) -> SamplingInputs:
    return SamplingInputs(
        temperatures=torch.tensor([some.temperature for some in params]),
        top_ks=torch.tensor([some.top_k for some in params], dtype=torch.int32),
        top_ps=torch.tensor([some.top_p for some in params]),
        min_ps=torch.tensor([some.min_p for some in params]),
        seeds=torch.tensor(np.array(seeds, np.uint64).astype(np.int64)),
        positions=torch.tensor(positions),
        is_greedy=all(some.temperature == 0 for some in params),
        is_truncated=any(some.top_k or some.top_p < 1 or some.min_p for some in params),
    )


def make_rows(num_rows: int, num_tokens: int = 1000) -> Tensor:
    return torch.randn(num_rows, num_tokens, generator=torch.Generator().manual_seed(1)) * 3


def pack(allowed: NDArray[np.bool_]) -> Tensor:
    bits = np.packbits(allowed, axis=-1, bitorder="little")
    bits = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 4)))
    return torch.from_numpy(bits.view(np.int32).copy())


def test_random_numbers_are_those_of_the_sampler_for_rows() -> None:
    seeds, positions = [0, 1, 2**63 + 5, 2**64 - 1], [0, 1, 77, 131071]
    numbers = sampling.random_numbers(
        torch.tensor(np.array(seeds, np.uint64).astype(np.int64)), torch.tensor(positions)
    )
    assert numbers.tolist() == [
        random_number(seed, position) for seed, position in zip(seeds, positions, strict=True)
    ]


@pytest.mark.parametrize("params", PARAMS, ids=str)
def test_the_token_is_the_one_that_the_sampler_for_rows_chooses(
    choose: Choose, params: SamplingParams
) -> None:
    rows = make_rows(6)
    seeds = [7, 2**64 - 3, 0, 1, 99, 12345]
    expected = [
        SamplerState(params, seed=seed).choose(row.numpy(), OUTPUT)
        for row, seed in zip(rows, seeds, strict=True)
    ]
    inputs = make_inputs([params] * 6, seeds=seeds, positions=[len(OUTPUT)] * 6)
    token_ids, are_finite = choose(rows, inputs)
    assert are_finite.all()
    assert [Sampled(token_id=token_id) for token_id in token_ids.tolist()] == expected


def test_a_row_is_given_the_same_token_in_every_batch(choose: Choose) -> None:
    rows = make_rows(len(PARAMS))
    seeds = list(range(len(PARAMS)))
    together, _ = choose(rows, make_inputs(PARAMS, seeds=seeds, positions=seeds))
    for index, params in enumerate(PARAMS):
        alone = make_inputs([params], seeds=[index], positions=[index])
        assert choose(rows[index : index + 1], alone)[0] == together[index]


def test_only_allowed_tokens_come_and_nothing_is_cut_off_before(choose: Choose) -> None:
    rows = make_rows(3, num_tokens=77)
    allowed = np.zeros((3, 77), np.bool_)
    allowed[0, [3, 60, 76]] = allowed[1, 31] = allowed[2] = True
    params = SamplingParams(temperature=1.0, top_k=2)
    expected = [
        SamplerState(params, seed=5).choose(row.numpy(), [], some)
        for row, some in zip(rows, allowed, strict=True)
    ]
    inputs = make_inputs([params] * 3, seeds=[5] * 3, positions=[0] * 3)
    inputs = inputs_with(inputs, allowed=pack(allowed))
    token_ids, _ = choose(rows, inputs)
    assert [Sampled(token_id=token_id) for token_id in token_ids.tolist()] == expected


@pytest.mark.parametrize("is_greedy", [True, False])
def test_a_row_without_finite_numbers_fails_alone(choose: Choose, is_greedy: bool) -> None:
    rows = make_rows(4)
    rows[0, 500], rows[2], rows[3, 9] = torch.nan, -torch.inf, torch.inf
    params = SamplingParams(temperature=0.0 if is_greedy else 1.0, top_k=3)
    inputs = make_inputs([params] * 4, seeds=[1] * 4, positions=[0] * 4)
    token_ids, are_finite = choose(rows, inputs_with(inputs, is_greedy=is_greedy))
    expected = [SamplerState(params, seed=1).choose(row.numpy(), []) for row in rows]
    assert are_finite.tolist() == [not isinstance(some, RowError) for some in expected]
    assert Sampled(token_id=int(token_ids[1])) == expected[1]


def test_a_forbidden_row_has_no_numbers_and_a_nan_is_found_where_it_is_forbidden(
    choose: Choose,
) -> None:
    rows = make_rows(2, num_tokens=64)
    rows[1, 9] = torch.nan
    allowed = np.zeros((2, 64), np.bool_)
    allowed[1, 8] = True
    inputs = make_inputs([SamplingParams()] * 2, seeds=[1, 1], positions=[0, 0])
    _, are_finite = choose(rows, inputs_with(inputs, allowed=pack(allowed)))
    assert are_finite.tolist() == [False, False]


def test_biases_penalties_and_logprobs_are_those_of_the_sampler_for_rows() -> None:
    params = SamplingParams(
        temperature=1.0,
        presence_penalty=0.5,
        frequency_penalty=0.25,
        repetition_penalty=1.2,
        logit_bias=((4, 3.0), (8, -1.0)),
        logprobs=True,
        num_top_logprobs=3,
    )
    row = make_rows(1)
    expected = SamplerState(params, seed=4, prompt_ids=PROMPT).choose(row[0].numpy(), OUTPUT)
    assert isinstance(expected, Sampled) and expected.logprob is not None
    zeros = torch.zeros(4, dtype=torch.int64)
    inputs = inputs_with(
        make_inputs([params], seeds=[4], positions=[len(OUTPUT)]),
        biases=Biases(
            rows=zeros[:2], token_ids=torch.tensor([4, 8]), values=torch.tensor([3.0, -1])
        ),
        penalties=Penalties(
            rows=zeros,
            token_ids=torch.tensor([3, 8, 5, 700]),
            counts=torch.tensor([0.0, 1.0, 2.0, 1.0]),
            presence=torch.tensor([0.5]),
            frequency=torch.tensor([0.25]),
            repetition=torch.tensor([1.2]),
        ),
        num_top=3,
    )
    raw = row.clone()
    choices = sample(row, inputs)
    assert torch.equal(row, raw)
    assert choices.token_ids.tolist() == [expected.token_id]
    assert choices.logprobs is not None and choices.top_ids is not None
    assert choices.logprobs.item() == pytest.approx(expected.logprob.logprob, abs=1e-5)
    assert choices.top_ids[0].tolist() == [some.token_id for some in expected.top]
    assert choices.top_logprobs is not None
    assert choices.top_logprobs[0].tolist() == pytest.approx(
        [some.logprob for some in expected.top], abs=1e-5
    )


def test_equally_likely_tokens_are_told_by_id() -> None:
    inputs = inputs_with(make_inputs([SamplingParams()], seeds=[0], positions=[0]), num_top=4)
    choices = sample(torch.zeros(1, 4), inputs)
    assert choices.top_ids is not None
    assert choices.top_ids.tolist() == [[0, 1, 2, 3]]


def inputs_with(inputs: SamplingInputs, **changes: object) -> SamplingInputs:
    return structs.replace(inputs, **changes)
