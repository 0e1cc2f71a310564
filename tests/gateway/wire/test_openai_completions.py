"""What becomes of a completions request."""

from collections.abc import Callable
from typing import Any

import pytest

from appliance.errors import RequestError
from appliance.generation import Prompt, TextPrompt, TokenPrompt
from gateway.wire.openai_completions import DEFAULT_MAX_TOKENS, MAX_CHOICES, decode

Body = Callable[..., bytes]


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("hi", (TextPrompt(text="hi"),)),
        (["hi", "ho"], (TextPrompt(text="hi"), TextPrompt(text="ho"))),
        ([1, 2], (TokenPrompt(token_ids=(1, 2)),)),
        ([[1, 2], [3]], (TokenPrompt(token_ids=(1, 2)), TokenPrompt(token_ids=(3,)))),
    ],
)
def test_a_prompt_comes_in_four_shapes(
    completion_body: Body, prompt: Any, prompts: tuple[Prompt, ...]
) -> None:
    assert decode(completion_body(prompt=prompt)).prompts == prompts


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ("", "prompt"),
        ([], "prompt"),
        (None, "prompt"),
        (5, "prompt"),
        ({}, "prompt"),
        (["a", 1], "prompt"),
        ([[1], 1], "prompt"),
        (["hi", ""], "prompt[1]"),
        ([[]], "prompt[0]"),
        ([[1, -1]], "prompt[0][1]"),
        ([1.5], "prompt[0]"),
        ([True], "prompt[0]"),
        ([2**31], "prompt[0]"),
        ([["a"]], "prompt[0][0]"),
    ],
)
def test_any_other_prompt_is_refused_by_its_path(
    completion_body: Body, prompt: Any, param: str
) -> None:
    with pytest.raises(RequestError) as caught:
        decode(completion_body(prompt=prompt))
    assert (caught.value.status, caught.value.param) == (400, param)


def test_a_missing_prompt_is_named() -> None:
    with pytest.raises(RequestError) as caught:
        decode(b'{"model":"m"}')
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(
    ("name", "value"),
    [("logprobs", 6), ("logprobs", True), ("best_of", 0), ("max_tokens", -1), ("messages", [])],
)
def test_a_value_out_of_range_is_refused_by_name(
    completion_body: Body, name: str, value: Any
) -> None:
    with pytest.raises(RequestError) as caught:
        decode(completion_body(**{name: value}))
    assert (caught.value.status, caught.value.param) == (400, name)


def test_the_default_length_is_openais(completion_body: Body) -> None:
    assert decode(completion_body()).stopping.max_tokens == DEFAULT_MAX_TOKENS == 16
    assert decode(completion_body(max_tokens=3)).stopping.max_tokens == 3


def test_a_prompt_alone_can_be_asked_for(completion_body: Body) -> None:
    """vllm-project/vllm#6521, ggml-org/llama.cpp#4047: no new token, and the prompt's logprobs."""
    decoded = decode(completion_body(max_tokens=0, echo=True, logprobs=1))
    assert decoded.stopping.max_tokens == 0
    assert decoded.echoes_prompt
    assert (decoded.sampling.logprobs, decoded.sampling.num_top_logprobs) == (True, 1)


def test_the_least_number_of_tokens_is_not_more_than_the_default(completion_body: Body) -> None:
    assert decode(completion_body(min_tokens=DEFAULT_MAX_TOKENS)).stopping.min_tokens == 16
    with pytest.raises(RequestError) as caught:
        decode(completion_body(min_tokens=DEFAULT_MAX_TOKENS + 1))
    assert caught.value.param == "min_tokens"


@pytest.mark.parametrize("num_logprobs", [0, 5])
def test_logprobs_are_a_number_here(completion_body: Body, num_logprobs: int) -> None:
    sampling = decode(completion_body(logprobs=num_logprobs)).sampling
    assert (sampling.logprobs, sampling.num_top_logprobs) == (True, num_logprobs)


def test_best_of_is_fine_where_it_changes_nothing(completion_body: Body) -> None:
    assert decode(completion_body(n=2, best_of=2)).n == 2
    with pytest.raises(RequestError, match="best_of"):
        decode(completion_body(n=2, best_of=3))


def test_prompts_times_samples_are_bounded(completion_body: Body) -> None:
    prompts = ["hi"] * (MAX_CHOICES // 2)
    assert len(decode(completion_body(prompt=prompts, n=2)).prompts) == len(prompts)
    with pytest.raises(RequestError) as caught:
        decode(completion_body(prompt=[*prompts, "hi"], n=2))
    assert caught.value.param == "prompt"
