"""What the choices of one request have in common, and what sets them apart."""

import pytest

from appliance.errors import RequestError
from appliance.generation import GenerationRequest, SamplingParams, StopConditions, TextPrompt
from engines.echo.tokenizer import EchoTokenizer
from engines.live_request import LiveRequest
from engines.prepared import Prepared


def live_request(
    *, n: int = 1, seed: int | None = None, max_tokens: int | None = None, num_prompts: int = 1
) -> LiveRequest:
    request = GenerationRequest(
        id="r",
        model="m",
        prompts=(TextPrompt(text="any"),) * num_prompts,
        sampling=SamplingParams(seed=seed),
        stopping=StopConditions(max_tokens=max_tokens),
        n=n,
    )
    live = LiveRequest(request, arrived_at=1.0)
    live.open([Prepared(token_ids=[1, 2, 3])] * num_prompts, EchoTokenizer(), context_tokens=10)
    return live


def seeds(live: LiveRequest) -> list[int]:
    return [choice.sequence.seed for choice in live.choices]


def test_choices_have_distinct_seeds_that_a_given_seed_reproduces() -> None:
    """vllm#39647, vllm#10852: n=4 with a seed gave four equal answers."""
    assert len(set(seeds(live_request(n=4, seed=7)))) == 4
    assert seeds(live_request(n=4, seed=7)) == seeds(live_request(n=4, seed=7))


def test_more_choices_or_prompts_do_not_change_a_seed() -> None:
    alone = seeds(live_request(seed=7))
    assert alone == [7]
    assert seeds(live_request(n=4, seed=7, num_prompts=2)) == seeds(live_request(n=4, seed=7)) * 2


def test_without_a_seed_two_requests_differ() -> None:
    assert seeds(live_request()) != seeds(live_request())


def test_choices_of_one_prompt_follow_its_first() -> None:
    first, second, third, fourth = (c.sequence for c in live_request(n=2, num_prompts=2).choices)
    assert [s.index for s in (first, second, third, fourth)] == [0, 1, 2, 3]
    assert (first.leader, second.leader) == (None, first)
    assert (third.leader, fourth.leader) == (None, third)
    assert first.token_ids is not second.token_ids


@pytest.mark.parametrize(("asked", "given"), [(None, 7), (3, 3), (7, 7), (8, 7), (0, 0)])
def test_max_tokens_is_bounded_by_the_room_in_the_context(asked: int | None, given: int) -> None:
    (choice,) = live_request(max_tokens=asked).choices
    assert choice.sequence.max_tokens == given


def test_one_prompt_that_is_too_long_refuses_the_whole_request() -> None:
    live = live_request(num_prompts=2)
    live.choices.clear()
    prompts = [Prepared(token_ids=[1]), Prepared(token_ids=[2] * 10)]
    with pytest.raises(RequestError) as refusal:
        live.open(prompts, EchoTokenizer(), context_tokens=10)
    assert refusal.value.code == "request.context_length_exceeded"
    assert live.choices == []


def test_a_request_that_never_ran_spent_its_time_waiting() -> None:
    timings = live_request().timings(now=4.0)
    assert (timings.queue_s, timings.prefill_s, timings.decode_s) == (3.0, 0.0, 0.0)
