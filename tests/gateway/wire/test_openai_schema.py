"""Every parameter that OpenAI's own client can send is honoured, a label, or refused by name."""

from collections.abc import Callable
from typing import Any

import pytest
from openai.types import completion_create_params as text_params
from openai.types.chat import completion_create_params as chat_params

from appliance.errors import RequestError
from gateway.wire import openai_chat, openai_completions, openai_params
from gateway.wire.call import Decoded

Body = Callable[..., bytes]

TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
SAMPLING: dict[str, Any] = {
    "frequency_penalty": 0.5,
    "logit_bias": {"50256": -100},
    "max_tokens": 3,
    "n": 2,
    "presence_penalty": -0.5,
    "seed": 7,
    "stop": ["\n"],
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 0.0,
    "top_p": 0.1,
    "model": "other",
}
# A value that asks for something, for each parameter that changes what comes out of `decode`.
CHAT_HONOURED = SAMPLING | {
    "logprobs": True,
    "top_logprobs": 2,
    "max_completion_tokens": 4,
    "messages": [{"role": "system", "content": "Be brief."}],
    "parallel_tool_calls": False,
    "response_format": {"type": "json_object"},
    "tool_choice": "none",
    "tools": [TOOL],
}
TEXT_HONOURED = SAMPLING | {"logprobs": 1, "prompt": "ho", "echo": True}
NEEDS = {"stream_options": {"stream": True}, "top_logprobs": {"logprobs": True}}

# Parameters that only label a call.
CHAT_LABELS = {
    "metadata": {"team": "loans"},
    "prompt_cache_key": "k",
    "safety_identifier": "s",
    "user": "u",
}
TEXT_LABELS = {"user": "u", "best_of": 1}

CHAT_REFUSED = {
    "audio": {"format": "wav", "voice": "alloy"},
    "function_call": {"name": "f"},
    "functions": [{"name": "f"}],
    "modalities": ["text", "audio"],
    "moderation": {"model": "omni-moderation-latest"},
    "prediction": {"type": "content", "content": "x"},
    "prompt_cache_options": {"mode": "explicit"},
    "prompt_cache_retention": "24h",
    "reasoning_effort": "high",
    "service_tier": "flex",
    "store": True,
    "verbosity": "low",
    "web_search_options": {},
}
TEXT_REFUSED = {"suffix": "end", "best_of": 2}
# What vLLM takes beside OpenAI's parameters, in the one spelling that is taken here.
VENDOR = {
    "guided_grammar": 'start: "a"',
    "guided_regex": "[0-9]+",
    "ignore_eos": True,
    "min_p": 0.1,
    "min_tokens": 2,
    "repetition_penalty": 1.1,
    "response_format": {"type": "json_object"},
    "stop_token_ids": [7],
    "top_k": 5,
}
VENDOR_NEUTRAL = {
    "ignore_eos": False,
    "min_p": 0.0,
    "min_tokens": 0,
    "repetition_penalty": 1.0,
    "response_format": {"type": "text"},
    "stop_token_ids": [],
    "top_k": -1,
}

CHAT_NEUTRAL = {
    "function_call": ["none", "auto"],
    "functions": [[]],
    "modalities": [["text"]],
    "parallel_tool_calls": [True],
    "prompt_cache_options": [{}],
    "prompt_cache_retention": ["in_memory"],
    "reasoning_effort": ["none"],
    "response_format": [{"type": "text"}],
    "service_tier": ["auto", "default"],
    "store": [False],
    "tool_choice": ["auto"],
    "tools": [[]],
    "verbosity": ["medium"],
}
TEXT_NEUTRAL = {"echo": [False], "suffix": [""]}


def names_of(params: Any) -> set[str]:
    streaming = params.CompletionCreateParamsStreaming
    return set(streaming.__required_keys__ | streaming.__optional_keys__)


def refusal(decode: Callable[[bytes], Decoded], body: bytes) -> RequestError:
    with pytest.raises(RequestError) as caught:
        decode(body)
    assert caught.value.status == 400
    return caught.value


def test_no_parameter_of_openais_schema_is_unknown() -> None:
    known = set(CHAT_HONOURED) | set(CHAT_LABELS) | set(CHAT_REFUSED)
    assert known == names_of(chat_params)
    assert set(CHAT_REFUSED) == set(openai_chat.UNSUPPORTED)

    known = set(TEXT_HONOURED) | set(TEXT_LABELS) | set(TEXT_REFUSED)
    assert known == names_of(text_params)


@pytest.mark.parametrize("name", CHAT_HONOURED)
def test_an_honoured_chat_parameter_has_an_effect(chat_body: Body, name: str) -> None:
    needed = NEEDS.get(name, {})
    asked = chat_body(**needed, **{name: CHAT_HONOURED[name]})
    assert openai_chat.decode(asked) != openai_chat.decode(chat_body(**needed))


@pytest.mark.parametrize("name", TEXT_HONOURED)
def test_an_honoured_completions_parameter_has_an_effect(completion_body: Body, name: str) -> None:
    needed = NEEDS.get(name, {})
    asked = completion_body(**needed, **{name: TEXT_HONOURED[name]})
    assert openai_completions.decode(asked) != openai_completions.decode(completion_body(**needed))


@pytest.mark.parametrize("name", CHAT_REFUSED)
def test_an_unsupported_chat_parameter_is_refused_by_name(chat_body: Body, name: str) -> None:
    error = refusal(openai_chat.decode, chat_body(**{name: CHAT_REFUSED[name]}))
    assert (error.code, error.param) == ("request.unsupported_parameter", name)


@pytest.mark.parametrize("name", TEXT_REFUSED)
def test_an_unsupported_completions_parameter_is_refused_by_name(
    completion_body: Body, name: str
) -> None:
    error = refusal(openai_completions.decode, completion_body(**{name: TEXT_REFUSED[name]}))
    assert (error.code, error.param) == ("request.unsupported_parameter", name)


@pytest.mark.parametrize("name", sorted(names_of(chat_params) - {"model", "messages"}))
def test_null_chat_parameters_and_documented_defaults_ask_for_nothing(
    chat_body: Body, name: str
) -> None:
    plain = openai_chat.decode(chat_body())
    for value in [None, *CHAT_NEUTRAL.get(name, [])]:
        assert openai_chat.decode(chat_body(**{name: value})) == plain


@pytest.mark.parametrize("name", sorted(names_of(text_params) - {"model", "prompt"}))
def test_null_completions_parameters_and_documented_defaults_ask_for_nothing(
    completion_body: Body, name: str
) -> None:
    plain = openai_completions.decode(completion_body())
    for value in [None, *TEXT_NEUTRAL.get(name, [])]:
        assert openai_completions.decode(completion_body(**{name: value})) == plain


def test_labels_change_nothing_and_are_still_checked(
    chat_body: Body, completion_body: Body
) -> None:
    assert openai_chat.decode(chat_body(**CHAT_LABELS)) == openai_chat.decode(chat_body())
    for name in CHAT_LABELS:
        assert refusal(openai_chat.decode, chat_body(**{name: 5})).param == name
    plain = openai_completions.decode(completion_body())
    assert openai_completions.decode(completion_body(**TEXT_LABELS)) == plain


@pytest.mark.parametrize(
    ("sent", "nearest"),
    [("temprature", "temperature"), ("max_token", "max_tokens"), ("message", "messages")],
)
def test_an_unknown_parameter_is_refused_and_the_nearest_right_one_named(
    chat_body: Body, sent: str, nearest: str
) -> None:
    error = refusal(openai_chat.decode, chat_body(**{sent: None}))
    assert (error.code, error.param) == ("request.unknown_parameter", sent)
    assert error.message.endswith(f"did you mean {nearest}?")


def test_the_prefix_caches_salt_is_never_taken_from_a_body(chat_body: Body) -> None:
    assert refusal(openai_chat.decode, chat_body(cache_salt="x")).param == "cache_salt"


def test_a_name_that_is_no_name_is_not_repeated(chat_body: Body) -> None:
    for name in ("my secret text", "x" * 100_000, "a` - at `$.b"):
        error = refusal(openai_chat.decode, chat_body(**{name: 1}))
        assert error.param is None
        assert name not in error.message


@pytest.mark.parametrize("name", VENDOR)
def test_an_honoured_parameter_of_vllm_has_an_effect_on_both_routes(
    chat_body: Body, completion_body: Body, name: str
) -> None:
    for route, body in ((openai_chat, chat_body), (openai_completions, completion_body)):
        plain = route.decode(body())
        assert route.decode(body(**{name: VENDOR[name]})) != plain
        assert route.decode(body(**{name: None})) == plain
        if name in VENDOR_NEUTRAL:
            assert route.decode(body(**{name: VENDOR_NEUTRAL[name]})) == plain


@pytest.mark.parametrize("name", openai_params.UNSUPPORTED_SPELLINGS)
def test_another_spelling_is_refused_by_name(
    chat_body: Body, completion_body: Body, name: str
) -> None:
    for route, body in ((openai_chat, chat_body), (openai_completions, completion_body)):
        error = refusal(route.decode, body(**{name: {"type": "object"}}))
        assert (error.code, error.param) == ("request.unsupported_parameter", name)


def test_the_older_spelling_of_tools_is_told_the_newer(chat_body: Body) -> None:
    error = refusal(openai_chat.decode, chat_body(functions=[{"name": "f"}]))
    assert "`tools`" in error.message
