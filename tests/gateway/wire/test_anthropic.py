"""What becomes of a request of Anthropic's messages."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from anthropic.types import message_create_params as params

from appliance.errors import RequestError
from appliance.generation import (
    ChatPrompt,
    Message,
    SamplingParams,
    StopConditions,
    Tool,
    ToolCall,
    ToolChoice,
)
from gateway.wire.anthropic import UNSUPPORTED, decode

Body = Callable[..., bytes]

TOOL = {"name": "find", "input_schema": {"type": "object"}}
SCHEMA = {"type": "json_schema", "schema": {"type": "object"}}
HONOURED: dict[str, Any] = {
    "max_tokens": 7,
    "messages": [{"role": "user", "content": "ho"}],
    "model": "other",
    "output_config": {"format": SCHEMA},
    "stop_sequences": ["END"],
    "stream": True,
    "system": "Be brief.",
    "tool_choice": {"type": "none"},
    "tools": [TOOL],
}
# Newer clients no longer offer these; older ones send them.
SAMPLING = {"temperature": 0.5, "top_k": 4, "top_p": 0.5}
LABELS = {"cache_control": {"type": "ephemeral"}, "metadata": {"user_id": "u"}}
REFUSED = {
    "container": "c",
    "diagnostics": {"previous_message_id": "msg_1"},
    "inference_geo": "us",
    "service_tier": "priority",
    "speed": "fast",
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "user_profile_id": "p",
    "workspace_id": "w",
}
NEUTRAL = {
    "output_config": [{}, {"format": None, "effort": None}],
    "service_tier": ["auto", "standard_only"],
    "speed": ["standard"],
    "stop_sequences": [[]],
    "system": ["", []],
    "thinking": [{"type": "disabled"}, {"type": "adaptive"}],
    "tool_choice": [{"type": "auto"}],
    "tools": [[]],
}


def names() -> set[str]:
    streaming = params.MessageCreateParamsStreaming
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


def test_no_parameter_of_anthropics_schema_is_unknown() -> None:
    assert set(HONOURED) | set(LABELS) | set(REFUSED) == names()
    assert set(REFUSED) == set(UNSUPPORTED)


@pytest.mark.parametrize("name", HONOURED | SAMPLING)
def test_an_honoured_parameter_has_an_effect(message_body: Body, name: str) -> None:
    assert decode(message_body(**{name: (HONOURED | SAMPLING)[name]})) != decode(message_body())


@pytest.mark.parametrize("name", REFUSED)
def test_an_unsupported_parameter_is_refused_by_name(message_body: Body, name: str) -> None:
    error = refusal(message_body(**{name: REFUSED[name]}))
    assert (error.code, error.param) == ("request.unsupported_parameter", name)


@pytest.mark.parametrize("name", sorted(names() - {"model", "messages", "max_tokens"}))
def test_null_and_documented_defaults_ask_for_nothing(message_body: Body, name: str) -> None:
    plain = decode(message_body())
    for value in [None, *NEUTRAL.get(name, [])]:
        assert decode(message_body(**{name: value})) == plain


def test_labels_change_nothing_and_are_still_checked(message_body: Body) -> None:
    assert decode(message_body(**LABELS)) == decode(message_body())
    for name in LABELS:
        assert refusal(message_body(**{name: 5})).param == name


@pytest.mark.parametrize("name", ["model", "max_tokens", "messages"])
def test_what_is_missing_is_named(message_body: Body, name: str) -> None:
    fields = json.loads(message_body())
    del fields[name]
    error = refusal(json.dumps(fields).encode())
    assert (error.code, error.param) == ("request.missing_parameter", name)


def test_sampling_and_stopping_arrive(message_body: Body) -> None:
    decoded = decode(message_body(**SAMPLING, max_tokens=0, stop_sequences=["a", "b"]))
    assert decoded.sampling == SamplingParams(temperature=0.5, top_k=4, top_p=0.5)
    assert decoded.stopping == StopConditions(max_tokens=0, stop=("a", "b"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", -1),
        ("max_tokens", None),
        ("temperature", 1.1),
        ("top_p", 0),
        ("top_k", -1),
        ("stop_sequences", "END"),
        ("system", 5),
        ("messages", []),
        ("model", "a\nb"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(message_body: Body, name: str, value: Any) -> None:
    assert refusal(message_body(**{name: value})).param == name


def test_a_tool_round_trip_becomes_our_messages(message_body: Body) -> None:
    """An answer comes back as the official client writes it out, nulls included."""
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "Find 4", "cache_control": None}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm", "signature": ""},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "Look", "citations": None},
                {"type": "text", "text": "ing", "citations": []},
                {
                    "type": "tool_use",
                    "id": "toolu_1",
                    "name": "find",
                    "input": {"z": "ğ", "a": 1.0},
                    "caller": None,
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "found"},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [{"type": "text", "text": "lost"}],
                    "is_error": True,
                },
                {"type": "tool_result", "tool_use_id": "toolu_1"},
                {"type": "text", "text": "And "},
                {"type": "text", "text": "now?", "cache_control": {"type": "ephemeral"}},
            ],
        },
    ]
    system = [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]
    assert prompt_of(message_body(messages=turns, system=system)).messages == (
        Message(role="system", content="Be brief."),
        Message(role="user", content="Find 4"),
        Message(
            role="assistant",
            content="Looking",
            tool_calls=(ToolCall(id="toolu_1", name="find", arguments='{"z": "ğ", "a": 1.0}'),),
        ),
        Message(role="tool", content="found", tool_call_id="toolu_1"),
        Message(role="tool", content="lost", tool_call_id="toolu_1"),
        Message(role="tool", content="", tool_call_id="toolu_1"),
        Message(role="user", content="And now?"),
    )


TEXT = {"type": "text", "text": "x"}
RESULT = {"type": "tool_result", "tool_use_id": "t"}
USE = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}


@pytest.mark.parametrize(
    ("turn", "place"),
    [
        ({"role": "user", "content": [TEXT, IMAGE]}, ".content[1].type"),
        ({"role": "user", "content": [RESULT | {"content": [IMAGE]}]}, ".content[0].content[0]"),
        ({"role": "user", "content": [{"type": "document"}]}, ".content[0].type"),
        ({"role": "user", "content": [TEXT, USE]}, ".content[1]"),
        ({"role": "assistant", "content": [TEXT, RESULT]}, ".content[1]"),
        ({"role": "system", "content": [RESULT]}, ".content[0]"),
        ({"role": "user", "content": []}, ".content"),
        ({"role": "user", "content": None}, ".content"),
        ({"role": "user"}, ".content"),
        ({"role": "tool", "content": "x"}, ".role"),
        ({"role": "user", "content": "x", "name": "n"}, ".name"),
        ({"role": "assistant", "content": [USE | {"input": "{}"}]}, ".content[0].input"),
        ({"role": "user", "content": [TEXT | {"citations": [{}]}]}, ".content[0].citations"),
        ("x", ""),
    ],
)
def test_a_turn_that_cannot_be_honoured_is_refused_by_its_path(
    message_body: Body, turn: Any, place: str
) -> None:
    user = {"role": "user", "content": "hi"}
    param = refusal(message_body(messages=[user, turn, user])).param or ""
    assert param.startswith(f"messages[1]{place}")


def test_an_answer_that_is_begun_is_not_continued(message_body: Body) -> None:
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "The answer is ("}]
    assert refusal(message_body(messages=turns)).code == "request.unsupported_parameter"


@pytest.mark.parametrize(
    ("choice", "chosen", "is_parallel"),
    [
        ({"type": "auto"}, ToolChoice(), True),
        ({"type": "any"}, ToolChoice(mode="required"), True),
        ({"type": "none"}, ToolChoice(mode="none"), True),
        (
            {"type": "tool", "name": "find", "disable_parallel_tool_use": True},
            ToolChoice(mode="named", name="find"),
            False,
        ),
    ],
)
def test_tools_and_the_choice_among_them(
    message_body: Body, choice: dict[str, Any], chosen: ToolChoice, is_parallel: bool
) -> None:
    tool = TOOL | {"type": "custom", "description": "Finds.", "strict": True}
    prompt = prompt_of(message_body(tools=[tool], tool_choice=choice))
    assert prompt.tools == (Tool(name="find", description="Finds.", strict=True),)
    assert (prompt.tool_choice, prompt.parallel_tool_calls) == (chosen, is_parallel)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "w"}]}, "tools[0].type"),
        ({"tools": [TOOL | {"type": "bash_20250124"}]}, "tools[0].type"),
        ({"tools": [TOOL | {"name": "a b"}]}, "tools[0].name"),
        ({"tools": [TOOL | {"input_schema": {"type": "string"}}]}, "tools[0].input_schema"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"output_config": {"effort": "high"}}, "output_config.effort"),
        ({"output_config": {"format": SCHEMA | {"type": "xml"}}}, "output_config.format.type"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(
    message_body: Body, fields: dict[str, Any], param: str
) -> None:
    assert refusal(message_body(**fields)).param == param


def test_a_schema_reaches_the_engine(message_body: Body) -> None:
    output_format = decode(message_body(output_config={"format": SCHEMA})).output_format
    assert output_format is not None
    assert (output_format.kind, output_format.text) == ("json_schema", '{"type":"object"}')
