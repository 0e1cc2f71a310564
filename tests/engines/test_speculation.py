"""Drafts through the step loop, with the echo engine, where they nearly always come true.

Its clock ticks the same for every step, so that drafts seem to cost nothing.
"""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.generation import (
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    OutputFormat,
    SamplingParams,
    StopConditions,
    TextPrompt,
)
from engines.echo.runner import EchoRunner
from engines.echo.tokenizer import EchoTokenizer
from engines.prompting import PromptEncoder, start_prompt_encoder
from engines.protocol import Abort
from engines.speculation import choose_lengths
from tests.engines.echo_engine import Engine, make_runner

TEXT = "a cat, a dog, a cat, a dog, a cat, a dog; "


@pytest.fixture(scope="module")
def encoder() -> Iterator[PromptEncoder]:
    encoder = start_prompt_encoder(EchoTokenizer())
    yield encoder
    encoder.close()


def ask(text: str, *, id: str = "r", **fields: object) -> GenerationRequest:  # noqa: A002
    return GenerationRequest(
        id=id,
        model="echo",
        prompts=(TextPrompt(text=text),),
        **fields,  # type: ignore[arg-type]
    )


def long_runner() -> EchoRunner:
    return make_runner(context_tokens=1024)


def steps(engine: Engine, request: GenerationRequest) -> int:
    """How many steps an answer took."""
    engine.send(request)
    engine.run()
    return engine.loop.stats().num_steps


def test_a_copy_takes_few_steps_and_every_token_is_told() -> None:
    text = 4 * TEXT
    request = ask(text, sampling=SamplingParams(logprobs=True))
    plain, speculating = Engine(long_runner()), Engine(long_runner(), speculates=True)
    assert steps(speculating, request) < steps(plain, request) / 4
    for engine in (plain, speculating):
        deltas = engine.deltas("r")
        assert engine.text("r") == text
        assert [entry.chosen.token for d in deltas for entry in d.logprobs] == list(text)
        assert engine.finished("r").usage.completion_tokens == len(text) + 1
        assert engine.is_empty()


def test_what_was_drafted_and_accepted_is_counted() -> None:
    engine = Engine(make_runner(), speculates=True)
    num_steps = steps(engine, ask(TEXT))
    stats = engine.loop.stats()
    assert stats.generation_tokens == len(TEXT) + 1
    assert stats.num_accepted == stats.generation_tokens - num_steps
    assert stats.num_drafted >= stats.num_accepted


def test_a_runner_that_cannot_forget_is_given_no_drafts() -> None:
    runner = make_runner()
    runner.facts = type(runner.facts)(
        model="m", runner="echo", context_tokens=256, vocabulary_size=278, num_slots=1
    )
    engine = Engine(runner, speculates=True)
    steps(engine, ask(TEXT))
    assert engine.loop.stats().num_drafted == 0


@pytest.mark.parametrize("max_tokens", range(1, 40, 3))
def test_a_run_never_goes_over_max_tokens(max_tokens: int) -> None:
    engine = Engine(make_runner(), speculates=True)
    steps(engine, ask(TEXT, stopping=StopConditions(max_tokens=max_tokens)))
    assert engine.text("r") == TEXT[:max_tokens]
    assert engine.finished("r").usage.completion_tokens == max_tokens
    assert engine.reasons("r") == {0: FinishReason.LENGTH}


def test_an_answer_fills_the_context_to_its_last_token() -> None:
    engine = Engine(make_runner(pool=64, context_tokens=64), speculates=True)
    steps(engine, ask(TEXT[:40], stopping=StopConditions(ignores_eos=True)))
    usage = engine.finished("r").usage
    assert usage.prompt_tokens + usage.completion_tokens == 64
    assert engine.reasons("r") == {0: FinishReason.LENGTH}


def test_an_abort_in_the_middle_of_a_copy_leaves_nothing_behind() -> None:
    engine = Engine(make_runner(), speculates=True)
    engine.send(ask(TEXT * 4))
    for _ in range(8):
        engine.step()
    engine.loop.receive(Abort(request_id="r"))
    engine.run()
    assert engine.failure("r").code == "request.cancelled"
    assert engine.is_empty()
    steps(engine, ask(TEXT, id="next"))
    assert engine.text("next") == TEXT


@pytest.mark.parametrize("text", ['{"a": [1, 2, 1, 2, 1, 2, 1]}', '[{"a": 1}, {"a": 1}, {"a": '])
def test_guided_output_stays_valid(encoder: PromptEncoder, text: str) -> None:
    """vllm#9423, vllm#40875: drafts went past the grammar."""
    engine = Engine(make_runner(context_tokens=1024), encoder, speculates=True)
    steps(engine, ask(text, output_format=OutputFormat(kind="json_object")))
    assert isinstance(json.loads(engine.text("r")), dict)
    assert engine.reasons("r") == {0: FinishReason.STOP}


FORMATS = [None, OutputFormat(kind="regex", text=r"(a|b|\n)*c?"), OutputFormat(kind="json_object")]
letters = st.text("abc \n", max_size=6)
requests = st.fixed_dictionaries(
    {
        "text": st.builds(lambda part, times: part * times, letters, st.integers(1, 12)),
        "n": st.integers(1, 2),
        "sampling": st.builds(SamplingParams, logprobs=st.booleans()),
        "output_format": st.sampled_from(FORMATS),
        "stopping": st.builds(
            StopConditions,
            max_tokens=st.integers(1, 60),
            stop=st.sampled_from([(), ("ab",), ("ca", "b a")]),
            stop_token_ids=st.sampled_from([(), (ord("c"),)]),
            min_tokens=st.integers(0, 20),
            ignores_eos=st.booleans(),
        ),
    }
)


def answers(engine: Engine, asked: list[dict[str, object]]) -> list[list[GenerationEvent]]:
    """What each request was told, deltas joined: tokens may come together or one by one."""
    for number, fields in enumerate(asked):
        engine.send(ask(id=str(number), **fields))  # type: ignore[arg-type]
    engine.run()
    assert engine.is_empty()
    told: list[list[GenerationEvent]] = []
    for number in range(len(asked)):
        request_id = str(number)
        usage = engine.finished(request_id).usage
        indices = sorted(engine.reasons(request_id))
        told.append(
            [
                usage.completion_tokens,
                engine.reasons(request_id),
                *(engine.text(request_id, index) for index in indices),
                *([d.logprobs for d in engine.deltas(request_id, index)] for index in indices),
            ]  # type: ignore[list-item]
        )
    return told


@settings(deadline=None, max_examples=60)
@given(st.lists(requests, min_size=1, max_size=6), st.integers(128, 400))
def test_whatever_is_asked_the_answer_is_the_one_without_drafts(
    asked: list[dict[str, object]], pool: int
) -> None:
    """Stops, lengths, grammars and pre-emptions in the middle of accepted runs."""
    plain = answers(Engine(make_runner(context_tokens=128)), asked)
    speculating = Engine(make_runner(context_tokens=128, pool=pool), speculates=True)
    assert answers(speculating, asked) == plain


# How far to draft


def test_certain_guesses_are_drafted_as_far_as_may_be_where_they_are_cheap() -> None:
    assert choose_lengths([[0.99**k for k in range(1, 16)]], cost=0.01) == [15]


@pytest.mark.parametrize("cost", [1.0, 0.96])
def test_nothing_is_drafted_that_costs_as_much_as_it_can_bring(cost: float) -> None:
    assert choose_lengths([[1.0] * 15], cost) == [0]


def test_doubtful_guesses_are_short_or_none() -> None:
    assert choose_lengths([[0.8**k for k in range(1, 16)]], cost=0.45) in ([1], [3])
    assert choose_lengths([[0.4**k for k in range(1, 16)]], cost=0.45) == [0]


def test_only_the_sequences_that_copy_are_drafted_for() -> None:
    copying, not_copying = [0.99**k for k in range(1, 16)], [0.2**k for k in range(1, 16)]
    lengths = choose_lengths([copying, [], not_copying, copying], cost=0.1)
    assert lengths[0] == lengths[3] > 0
    assert lengths[1:3] == [0, 0]


@given(
    st.lists(st.lists(st.floats(0, 1), max_size=15), min_size=1, max_size=4),
    st.floats(0.01, 1.0),
)
def test_drafts_never_make_a_step_slower_than_it_would_be(
    rates: list[list[float]], cost: float
) -> None:
    chances = []
    for each in rates:
        chance = 1.0
        chances.append([chance := chance * rate for rate in each])
    lengths = choose_lengths(chances, cost)
    gain = sum(sum(each[:length]) for each, length in zip(chances, lengths, strict=True))
    assert (len(rates) + gain) / (1 + cost * sum(lengths)) >= len(rates) * 0.999
