"""What becomes of a responses request."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from openai.types.responses import response_create_params as params

from appliance.errors import RequestError
from appliance.generation import (
    ChatPrompt,
    Message,
    OutputFormat,
    Tool,
    ToolCall,
    ToolChoice,
)
from gateway.wire.openai_responses import UNSUPPORTED, decode

Body = Callable[..., bytes]

TOOL = {"type": "function", "name": "find", "parameters": {"type": "object"}, "strict": True}
HONOURED: dict[str, Any] = {
    "include": ["message.output_text.logprobs"],
    "input": "ho",
    "instructions": "Be brief.",
    "max_output_tokens": 3,
    "model": "other",
    "parallel_tool_calls": False,
    "stream": True,
    "temperature": 0.0,
    "text": {"format": {"type": "json_object"}},
    "tool_choice": "none",
    "tools": [TOOL],
    "top_logprobs": 2,
    "top_p": 0.1,
}
# Parameters that only label a call; the answer repeats the first two.
LABELS = {
    "metadata": {"team": "loans"},
    "user": "u",
    "prompt_cache_key": "k",
    "safety_identifier": "s",
}
REFUSED = {
    "access_programs": {"cyber": "standard"},
    "background": True,
    "background_options": {"completion_window": "soonest"},
    "context_management": [{"type": "compaction"}],
    "conversation": "conv_1",
    "image": {"context_compression": "enabled"},
    "max_tool_calls": 3,
    "moderation": {"model": "omni-moderation-latest"},
    "previous_response_id": "resp_1",
    "prompt": {"id": "pmpt_1"},
    "prompt_cache_options": {"mode": "explicit"},
    "prompt_cache_retention": "24h",
    "reasoning": {"effort": "high"},
    "service_tier": "flex",
    "store": True,
    "stream_options": {"include_obfuscation": True},
    "truncation": "auto",
}
NEUTRAL = {
    "background": [False],
    "background_options": [{}],
    "context_management": [[]],
    "image": [{}],
    "include": [[], ["reasoning.encrypted_content"]],
    "parallel_tool_calls": [True],
    "prompt_cache_options": [{}],
    "prompt_cache_retention": ["in_memory"],
    "reasoning": [{}, {"effort": "none"}],
    "service_tier": ["auto", "default"],
    "store": [False],
    "stream_options": [{}, {"include_obfuscation": False}],
    "text": [{}, {"format": {"type": "text"}}, {"verbosity": "medium"}],
    "tool_choice": ["auto"],
    "tools": [[]],
    "truncation": ["disabled"],
}


def names() -> set[str]:
    streaming = params.ResponseCreateParamsStreaming
    return set(streaming.__required_keys__ | streaming.__optional_keys__)


def prompt_of(body: bytes) -> ChatPrompt:
    (prompt,) = decode(body).prompts
    assert isinstance(prompt, ChatPrompt)
    return prompt


def refusal(body: bytes) -> RequestError:
    with pytest.raises(RequestError) as caught:
        decode(body)
    assert caught.value.status == 400
    return caught.value


def test_no_parameter_of_openais_schema_is_unknown() -> None:
    assert set(HONOURED) | set(LABELS) | set(REFUSED) == names()
    assert set(REFUSED) == set(UNSUPPORTED)


@pytest.mark.parametrize("name", HONOURED)
def test_an_honoured_parameter_has_an_effect(response_body: Body, name: str) -> None:
    assert decode(response_body(**{name: HONOURED[name]})) != decode(response_body())


@pytest.mark.parametrize("name", REFUSED)
def test_an_unsupported_parameter_is_refused_by_name(response_body: Body, name: str) -> None:
    error = refusal(response_body(**{name: REFUSED[name]}))
    assert (error.code, error.param) == ("request.unsupported_parameter", name)


@pytest.mark.parametrize("name", sorted(names() - {"model", "input"}))
def test_null_and_documented_defaults_ask_for_nothing(response_body: Body, name: str) -> None:
    plain = decode(response_body())
    for value in [None, *NEUTRAL.get(name, [])]:
        assert decode(response_body(**{name: value})) == plain


def test_labels_are_checked_and_change_nothing_but_what_is_repeated(response_body: Body) -> None:
    labelled = decode(response_body(**LABELS))
    assert labelled.prompts == decode(response_body()).prompts
    assert labelled.repeated["metadata"] == LABELS["metadata"]
    for name in LABELS:
        assert refusal(response_body(**{name: 5})).param == name


def test_a_text_is_one_turn_of_the_user_after_the_instructions(response_body: Body) -> None:
    prompt = prompt_of(response_body(input="hi", instructions="Be brief."))
    assert prompt == ChatPrompt(
        messages=(
            Message(role="system", content="Be brief."),
            Message(role="user", content="hi"),
        )
    )


def test_a_whole_conversation_comes_as_items(response_body: Body) -> None:
    items = [
        {"role": "developer", "content": "Be kind."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Find 4"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"any": "thing"}]},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "phase": None,
            "content": [
                {"type": "output_text", "text": "Loo", "annotations": [], "logprobs": None},
                {"type": "output_text", "text": "king", "annotations": []},
            ],
        },
        {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "find", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "list", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "found"},
        {
            "type": "function_call_output",
            "call_id": "b",
            "output": [{"type": "input_text", "text": "none"}],
        },
    ]
    assert prompt_of(response_body(input=items)).messages == (
        Message(role="system", content="Be kind."),
        Message(role="user", content="Find 4"),
        Message(
            role="assistant",
            content="Looking",
            tool_calls=(
                ToolCall(id="a", name="find", arguments="{}"),
                ToolCall(id="b", name="list", arguments="{}"),
            ),
        ),
        Message(role="tool", content="found", tool_call_id="a"),
        Message(role="tool", content="none", tool_call_id="b"),
    )


@pytest.mark.parametrize(
    ("item", "place"),
    [
        ({"type": "item_reference", "id": "msg_1"}, "[0].type"),
        ({"role": "banana", "content": "x"}, "[0].role"),
        ({"role": "user", "content": [{"type": "input_image"}]}, "[0].content[0].type"),
        ({"role": "user", "content": []}, "[0].content"),
        ({"role": "user"}, "[0].content"),
        ({"role": "user", "content": "x", "colour": "red"}, "[0].colour"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "[0].call_id"),
        ({"type": "function_call_output", "call_id": "a", "output": 5}, "[0].output"),
        ({}, "[0].type"),
        ("x", "[0]"),
    ],
)
def test_an_item_that_cannot_be_honoured_is_refused_by_its_path(
    response_body: Body, item: Any, place: str
) -> None:
    assert refusal(response_body(input=[item])).param == f"input{place}"


def test_a_conversation_without_a_turn_is_refused(response_body: Body) -> None:
    assert refusal(response_body(input=[])).param == "input"
    assert refusal(b'{"model":"m"}').param == "input"


def test_tools_and_the_choice_among_them(response_body: Body) -> None:
    prompt = prompt_of(
        response_body(
            tools=[TOOL | {"description": "Finds."}, {"type": "function", "name": "list"}],
            tool_choice={"type": "function", "name": "list"},
            parallel_tool_calls=False,
        )
    )
    assert prompt.tools == (
        Tool(name="find", description="Finds.", parameters='{"type":"object"}', strict=True),
        Tool(name="list"),
    )
    assert prompt.tool_choice == ToolChoice(mode="named", name="list")
    assert not prompt.parallel_tool_calls


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [TOOL | {"name": "a b"}]}, "tools[0].name"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "mcp", "name": "x"}}, "tool_choice.type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"include": ["file_search_call.results"]}, "include[0]"),
        ({"temperature": 2.1}, "temperature"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"model": "a\nb"}, "model"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(
    response_body: Body, fields: dict[str, Any], param: str
) -> None:
    assert refusal(response_body(**fields)).param == param


def test_a_schema_reaches_the_engine_as_it_was_sent(response_body: Body) -> None:
    schema = {"type": "object", "properties": {"z": {}, "a": {"enum": [1.0, 10**30, "ğ"]}}}
    format_ = {"type": "json_schema", "name": "answer", "schema": schema, "strict": None}
    decoded = decode(response_body(text={"format": format_}))
    assert decoded.output_format is not None
    assert json.loads(decoded.output_format.text) == schema
    assert decoded.output_format.text.index('"z"') < decoded.output_format.text.index('"a"')
    any_json = decode(response_body(text={"format": {"type": "json_object"}}))
    assert any_json.output_format == OutputFormat(kind="json_object")
