"""Tokens chosen on the device are those that `engines.sampler` chooses, row by row."""

from typing import Any

import numpy as np
import pytest
import torch

from appliance.generation import SamplingParams
from engines.constraint import ConstraintError
from engines.pytorch.choosing import Chooser
from engines.pytorch.kv_blocks import BlockTable
from engines.row_answers import num_rows, read_answers
from engines.runner import Answer, Chunk, RowError, Sampled
from engines.sequence import Sequence, Withheld

VOCABULARY = 700
PARAMS = {
    "greedy": SamplingParams(temperature=0.0),
    "drawn": SamplingParams(temperature=1.0),
    "truncated": SamplingParams(temperature=0.8, top_k=40, top_p=0.9, min_p=0.01),
    "with logprobs": SamplingParams(temperature=0.7, logprobs=True, num_top_logprobs=3),
    "with its logprob": SamplingParams(temperature=0.0, logprobs=True),
    "biased": SamplingParams(temperature=0.0, logit_bias=((3, 50.0), (4, 49.0))),
    "penalised": SamplingParams(
        temperature=0.5, presence_penalty=0.5, frequency_penalty=0.4, repetition_penalty=1.3
    ),
    "repetition alone": SamplingParams(temperature=0.0, repetition_penalty=1.8),
}


class OnlyEven:
    """A grammar that takes even tokens, and ends after `most`."""

    def __init__(self, most: int = 100) -> None:
        self.taken: list[int] = []
        self.most = most

    @property
    def is_complete(self) -> bool:
        return len(self.taken) >= self.most

    def allowed(self) -> Any:
        return np.arange(VOCABULARY) % 2 == 0

    def accept(self, token_id: int) -> None:
        if token_id % 2:
            raise ConstraintError("odd")
        self.taken.append(token_id)

    def rollback(self, num_tokens: int) -> None:
        del self.taken[-num_tokens:]


def make_sequence(
    sampling: SamplingParams,
    *,
    seed: int = 7,
    output: int = 5,
    constraint: Any = None,
    withheld: tuple[Withheld, ...] = (),
) -> Sequence:
    token_ids = [1, 2, 3, 4, *range(10, 10 + output)]
    return Sequence(
        request_id="r",
        index=0,
        num_prompt_tokens=4,
        token_ids=token_ids,
        max_tokens=100,
        sampling=sampling,
        seed=seed,
        kv=BlockTable(0),
        constraint=constraint,
        withheld=withheld,
    )


def last_of(sequence: Sequence, drafts: tuple[int, ...] = ()) -> Chunk:
    start = len(sequence.token_ids) - 1
    return Chunk(sequence=sequence, start=start, length=1, samples=True, drafts=drafts)


def some_logits(num: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3.0 * torch.randn(num, VOCABULARY, generator=generator)


def read(chunks: list[Chunk], logits: torch.Tensor) -> list[Answer]:
    assert sum(map(num_rows, chunks)) == len(logits)
    return Chooser(torch.device("cpu")).read(chunks, logits)


def expected(chunks: list[Chunk], logits: torch.Tensor) -> list[Answer]:
    """What the same rows say in numpy, with samplers of their own."""
    kept = [chunk.sequence.kv for chunk in chunks]
    for chunk in chunks:
        chunk.sequence.kv = BlockTable(0)
    answers = read_answers(chunks, logits.numpy())
    for chunk, table in zip(chunks, kept, strict=True):
        chunk.sequence.kv = table
    return answers


def assert_alike(got: Any, wanted: Any) -> None:
    """The same tokens; logprobs to the last bits of float32."""
    assert isinstance(got, type(wanted))
    if isinstance(wanted, tuple):
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            assert_alike(one, other)
    elif isinstance(wanted, Sampled):
        assert got.token_id == wanted.token_id
        assert (got.logprob is None) == (wanted.logprob is None)
        if wanted.logprob is not None:
            assert got.logprob.token_id == wanted.logprob.token_id
            assert got.logprob.logprob == pytest.approx(wanted.logprob.logprob, abs=1e-5)
        assert [top.token_id for top in got.top] == [top.token_id for top in wanted.top]
    else:
        assert got == wanted


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
def test_each_parameter_means_what_it_means_elsewhere(params: SamplingParams) -> None:
    chunks = [last_of(make_sequence(params, seed=seed, output=seed)) for seed in range(6)]
    logits = some_logits(6)
    for got, wanted in zip(read(chunks, logits), expected(chunks, logits), strict=True):
        assert_alike(got, wanted)


def test_a_row_gets_the_same_whatever_is_beside_it() -> None:
    sequences = [make_sequence(params, seed=2**63 + 5) for params in PARAMS.values()]
    chunks = [last_of(sequence) for sequence in sequences]
    logits = some_logits(len(chunks))
    together = read(chunks, logits)
    for number, chunk in enumerate(chunks):
        chunk.sequence.kv = BlockTable(0)
        (alone,) = read([chunk], logits[number : number + 1])
        assert_alike(together[number], alone)


def test_grammars_and_withheld_tokens_narrow_what_may_come() -> None:
    free = make_sequence(PARAMS["drawn"])
    held = make_sequence(PARAMS["drawn"], constraint=OnlyEven())
    kept = make_sequence(PARAMS["greedy"], withheld=(Withheld(token_ids=(11,), until_tokens=99),))
    logits = some_logits(3)
    logits[2, 11] = 100.0
    chunks = [last_of(free), last_of(held), last_of(kept)]
    got = read(chunks, logits)
    for one, other in zip(got, expected(chunks, logits), strict=True):
        assert_alike(one, other)
    assert isinstance(got[1], Sampled)
    assert isinstance(got[2], Sampled)
    assert got[1].token_id % 2 == 0
    assert got[2].token_id != 11


def test_a_grammar_that_stopped_fails_its_row_alone() -> None:
    class Stopped(OnlyEven):
        def allowed(self) -> Any:
            raise ConstraintError("it stopped")

    chunks = [
        last_of(make_sequence(PARAMS["drawn"], constraint=Stopped())),
        last_of(make_sequence(PARAMS["drawn"])),
    ]
    first, second = read(chunks, some_logits(2))
    assert isinstance(first, RowError)
    assert isinstance(second, Sampled)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_row_that_is_not_finite_fails_alone(broken: float) -> None:
    chunks = [last_of(make_sequence(params)) for params in PARAMS.values()]
    logits = some_logits(len(chunks))
    logits[1, 5] = broken
    answers = read(chunks, logits)
    assert isinstance(answers[1], RowError)
    assert answers[1].code == "engine.row_not_finite"
    assert all(isinstance(answer, Sampled) for answer in (answers[0], *answers[2:]))


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
@pytest.mark.parametrize("num_right", [0, 1, 3])
def test_of_drafts_as_many_are_taken_as_would_have_come_anyway(
    params: SamplingParams, num_right: int
) -> None:
    logits = some_logits(4)
    logits[0, 20], logits[1, 21], logits[2, 22] = 60.0, 60.0, 60.0
    right = (20, 21, 22)
    drafts = (*right[:num_right], 99, 99, 99)[:3]
    beside = last_of(make_sequence(PARAMS["drawn"]))
    chunks = [last_of(make_sequence(params), drafts), beside]
    rows = torch.cat([logits, some_logits(1, seed=1)])
    for _ in range(2):  # what was guessed wrongly leaves no trace in penalties
        got = read(chunks, rows)
        for one, other in zip(got, expected(chunks, rows), strict=True):
            assert_alike(one, other)
    assert isinstance(got[0], tuple)
    if params is not PARAMS["biased"]:
        assert [taken.token_id for taken in got[0]][:num_right] == list(right[:num_right])


@pytest.mark.parametrize("most", [1, 100])
def test_drafts_obey_the_grammar_and_leave_it_as_it_was(most: int) -> None:
    grammar = OnlyEven(most)
    sequence = make_sequence(PARAMS["greedy"], constraint=grammar)
    logits = some_logits(4)
    logits[0, 20], logits[1, 22], logits[2, 24], logits[3, 27] = 60.0, 60.0, 60.0, 60.0
    chunk = last_of(sequence, (20, 22, 25))
    (got,) = read([chunk], logits)
    assert grammar.taken == []
    (wanted,) = expected([chunk], logits)
    assert_alike(got, wanted)
    assert isinstance(got, tuple)
    assert len(got) == (1 if most == 1 else 3)


def test_a_prompt_is_scored_and_its_next_token_chosen() -> None:
    params = SamplingParams(temperature=0.0, logprobs=True, num_top_logprobs=2)
    sequence = make_sequence(params, output=0)
    sequence.prompt_scores = []
    chunk = Chunk(sequence=sequence, start=0, length=4, samples=True)
    beside = last_of(make_sequence(PARAMS["drawn"]))
    logits = some_logits(5)
    got = read([chunk, beside], logits)
    scores = sequence.prompt_scores
    sequence.prompt_scores = []
    for one, other in zip(got, expected([chunk, beside], logits), strict=True):
        assert_alike(one, other)
    assert [score.token_id for score in scores] == [2, 3, 4]
    for one, other in zip(scores, sequence.prompt_scores, strict=True):
        assert_alike(one, other)


def test_a_step_may_choose_nothing() -> None:
    sequence = make_sequence(PARAMS["greedy"], output=0)
    chunk = Chunk(sequence=sequence, start=0, length=3, samples=False)
    assert read([chunk], some_logits(0)) == [None]
