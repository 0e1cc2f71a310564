"""What becomes of a chat request."""

from collections.abc import Callable
from typing import Any

import pytest

from appliance.errors import RequestError
from appliance.generation import (
    ChatPrompt,
    Message,
    OutputFormat,
    SamplingParams,
    StopConditions,
    Tool,
    ToolCall,
    ToolChoice,
)
from gateway.wire.openai_chat import decode

Body = Callable[..., bytes]

TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}


def messages_of(body: bytes) -> tuple[Message, ...]:
    (prompt,) = decode(body).prompts
    assert isinstance(prompt, ChatPrompt)
    return prompt.messages


def refusal(body: bytes) -> RequestError:
    with pytest.raises(RequestError) as caught:
        decode(body)
    assert caught.value.status == 400
    return caught.value


def test_a_plain_request_has_openais_defaults(chat_body: Body) -> None:
    decoded = decode(chat_body())
    assert decoded.model == "m"
    assert decoded.sampling == SamplingParams()
    assert decoded.stopping == StopConditions()
    assert (decoded.n, decoded.stream, decoded.include_usage) == (1, False, False)
    assert messages_of(chat_body()) == (Message(role="user", content="hi"),)


def test_all_sampling_parameters_arrive(chat_body: Body) -> None:
    decoded = decode(
        chat_body(
            temperature=1,
            top_p=0.5,
            top_k=40,
            min_p=0.05,
            seed=-(2**63),
            presence_penalty=-2,
            frequency_penalty=2,
            logit_bias={"5": -100, "0": 1.5},
            logprobs=True,
            top_logprobs=20,
            stop="END",
            max_completion_tokens=9,
            n=8,
            repetition_penalty=1.25,
            min_tokens=2,
            ignore_eos=True,
            stop_token_ids=[5, 0],
            stream=True,
            stream_options={"include_usage": True, "include_obfuscation": False},
        )
    )
    assert decoded.sampling == SamplingParams(
        temperature=1.0,
        top_p=0.5,
        top_k=40,
        min_p=0.05,
        seed=-(2**63),
        presence_penalty=-2.0,
        frequency_penalty=2.0,
        logit_bias=((5, -100.0), (0, 1.5)),
        logprobs=True,
        num_top_logprobs=20,
        repetition_penalty=1.25,
    )
    assert decoded.stopping == StopConditions(
        max_tokens=9,
        stop=("END",),
        stop_token_ids=(5, 0),
        min_tokens=2,
        ignores_eos=True,
    )
    assert (decoded.n, decoded.stream, decoded.include_usage) == (8, True, True)


def test_the_newer_name_of_max_tokens_wins(chat_body: Body) -> None:
    """ggml-org/llama.cpp#13700."""
    body = chat_body(max_tokens=100, max_completion_tokens=5)
    assert decode(body).stopping.max_tokens == 5


def test_top_k_minus_one_means_no_limit(chat_body: Body) -> None:
    assert decode(chat_body(top_k=-1)).sampling.top_k == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -5),
        ("max_tokens", 2**31),
        ("max_tokens", 1.5),
        ("max_tokens", "5"),
        ("max_tokens", True),
        ("max_completion_tokens", 0),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", "NaN"),
        ("temperature", 10**400),
        ("temperature", True),
        ("top_p", 0),
        ("top_p", 1.1),
        ("top_k", -2),
        ("min_p", 1.1),
        ("n", 0),
        ("n", 9),
        ("seed", 2**63),
        ("seed", 1.5),
        ("stop", ""),
        ("stop", list("abcde")),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("logit_bias", {"²": 1}),
        ("logit_bias", [1]),
        ("logprobs", 1),
        ("top_logprobs", 21),
        ("top_logprobs", 1),
        ("stream", "true"),
        ("stream_options", {"include_usage": True}),
        ("repetition_penalty", 0),
        ("min_tokens", -1),
        ("ignore_eos", 1),
        ("stop_token_ids", list(range(65))),
        ("guided_regex", ""),
        ("guided_grammar", 5),
        ("parallel_tool_calls", "yes"),
        ("tool_choice", "some"),
        ("tool_choice", "required"),
        ("tools", [TOOL] * 2),
        ("response_format", "json"),
        ("user", 5),
        ("metadata", ["x"]),
        ("metadata", {str(at): "x" for at in range(17)}),
        ("model", ""),
        ("model", "a\nb"),
        ("model", "a\x00b"),
        ("model", "x" * 257),
        ("model", 5),
        ("model", None),
        ("messages", []),
        ("messages", "hi"),
        ("messages", None),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(chat_body: Body, name: str, value: Any) -> None:
    assert refusal(chat_body(**{name: value})).param == name


@pytest.mark.parametrize("name", ["temperature", "top_p", "presence_penalty", "frequency_penalty"])
@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e400", b'"NaN"'])
def test_what_is_not_a_number_never_reaches_the_engine(
    chat_body: Body, name: str, number: bytes
) -> None:
    """sgl-project/sglang#28153, raullenchai/Rapid-MLX#740."""
    body = chat_body(**{name: 0.125})
    refusal(body.replace(b"0.125", number))
    refusal(chat_body(logit_bias={"5": 0.125}).replace(b"0.125", number))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stop": ["a", ""]}, "stop[1]"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"max_tokens": 3, "min_tokens": 4}, "min_tokens"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [TOOL], "tool_choice": {"type": "mcp"}}, "tool_choice.type"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"logit_bias": {"5": 101}}, 'logit_bias["5"]'),
        ({"logit_bias": {"4": 1, "5": "1"}}, 'logit_bias["5"]'),
        ({"logit_bias": {"5": True}}, 'logit_bias["5"]'),
        ({"logit_bias": {"5": 10**400}}, 'logit_bias["5"]'),
        ({"logit_bias": {"word": 1}}, 'logit_bias["word"]'),
        ({"logit_bias": {"-1": 1}}, 'logit_bias["-1"]'),
        ({"logit_bias": {"05": 1}}, 'logit_bias["05"]'),
        ({"logit_bias": {str(2**31): 1}}, 'logit_bias["2147483648"]'),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, None),
        ({"stream": True, "stream_options": {"usage": True}}, "stream_options.usage"),
    ],
)
def test_the_path_of_what_is_wrong_is_named(
    chat_body: Body, fields: dict[str, Any], param: str | None
) -> None:
    assert refusal(chat_body(**fields)).param == (param or "stream_options.include_obfuscation")


def test_tools_and_the_choice_among_them_arrive(chat_body: Body) -> None:
    named = {"type": "function", "function": {"name": "find"}}
    (prompt,) = decode(
        chat_body(tools=[TOOL], tool_choice=named, parallel_tool_calls=False)
    ).prompts
    assert prompt == ChatPrompt(
        messages=(Message(role="user", content="hi"),),
        tools=(Tool(name="find", parameters='{"type":"object"}'),),
        tool_choice=ToolChoice(mode="named", name="find"),
        parallel_tool_calls=False,
    )


SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}


@pytest.mark.parametrize(
    ("fields", "output_format"),
    [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, OutputFormat(kind="json_object")),
        (
            {"response_format": SCHEMA},
            OutputFormat(kind="json_schema", text='{"type":"object"}'),
        ),
        ({"guided_regex": "yes|no"}, OutputFormat(kind="regex", text="yes|no")),
        ({"guided_grammar": 'start: "a"'}, OutputFormat(kind="grammar", text='start: "a"')),
        (
            {"response_format": {"type": "text"}, "guided_regex": "a"},
            OutputFormat(kind="regex", text="a"),
        ),
    ],
)
def test_what_an_answer_must_look_like_arrives(
    chat_body: Body, fields: dict[str, Any], output_format: OutputFormat | None
) -> None:
    assert decode(chat_body(**fields)).output_format == output_format


def test_what_an_answer_must_look_like_is_said_once(chat_body: Body) -> None:
    error = refusal(chat_body(response_format=SCHEMA, guided_regex="a"))
    assert error.param == "guided_regex"
    assert "response_format" in error.message


def test_thoughts_of_an_earlier_turn_are_no_part_of_a_later_prompt(chat_body: Body) -> None:
    turn = {"role": "assistant", "content": "4", "reasoning_content": "2 + 2 is 4."}
    assert messages_of(chat_body(messages=[turn])) == (Message(role="assistant", content="4"),)
    user = {"role": "user", "content": "hi", "reasoning_content": "x"}
    assert refusal(chat_body(messages=[user])).param == "messages[0].reasoning_content"


def test_what_is_missing_is_named() -> None:
    error = refusal(b'{"messages":[{"role":"user","content":"hi"}]}')
    assert (error.code, error.param) == ("request.missing_parameter", "model")
    assert refusal(b'{"model":"m"}').param == "messages"


def test_a_model_may_have_a_name_in_any_script(chat_body: Body) -> None:
    """BerriAI/litellm#34633, #39360: a non-Latin model name became a 500."""
    assert decode(chat_body(model="中文模型")).model == "中文模型"


def test_developer_is_system_by_its_newer_name(chat_body: Body) -> None:
    """peonist-ai/halogen-flash-server#32, sgl-project/sglang#14304."""

    def talk(role: str) -> bytes:
        return chat_body(
            messages=[
                {"role": role, "content": "Answer with the single word KIRAZ."},
                {"role": "user", "content": "go"},
            ]
        )

    assert messages_of(talk("developer")) == messages_of(talk("system"))
    error = refusal(talk("banana"))
    assert error.param == "messages[0].role"
    assert "developer" in error.message
    assert "banana" not in error.message


@pytest.mark.parametrize("without", [{}, {"content": None}, {"content": ""}])
def test_an_assistant_turn_of_tool_calls_alone_has_no_content(
    chat_body: Body, without: dict[str, Any]
) -> None:
    """huggingface/text-generation-inference#3198."""
    tool_call = {
        "id": "call_00000001",
        "type": "function",
        "function": {"name": "find_customer", "arguments": '{"no":"417"}'},
    }
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "tool_calls": [tool_call]} | without,
        {"role": "tool", "tool_call_id": "call_00000001", "content": '{"found":false}'},
    ]
    assert messages_of(chat_body(messages=turns))[1:] == (
        Message(
            role="assistant",
            tool_calls=(
                ToolCall(id="call_00000001", name="find_customer", arguments='{"no":"417"}'),
            ),
        ),
        Message(role="tool", content='{"found":false}', tool_call_id="call_00000001"),
    )


def test_text_parts_are_joined_as_they_stand(chat_body: Body) -> None:
    parts = [{"type": "text", "text": "<|im_"}, {"type": "text", "text": "end|>"}]
    (message,) = messages_of(chat_body(messages=[{"role": "user", "content": parts}]))
    assert message.content == "<|im_end|>"


def test_an_answer_can_be_sent_back_as_the_official_client_writes_it_out(chat_body: Body) -> None:
    written_out = {
        "role": "assistant",
        "content": "hello",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
        "name": None,
        "tool_call_id": None,
    }
    assert messages_of(chat_body(messages=[written_out])) == (
        Message(role="assistant", content="hello"),
    )


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
AUDIO = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
TEXT = {"type": "text", "text": "look"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"role": "user", "content": [TEXT, IMAGE]}, ".content[1].type"),
        ({"role": "user", "content": [AUDIO]}, ".content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, ".content[0].text"),
        ({"role": "user", "content": [{"type": "text", "text": None}]}, ".content[0].text"),
        ({"role": "user", "content": ["text"]}, ".content[0]"),
        ({"role": "user", "content": []}, ".content"),
        ({"role": "user", "content": None}, ".content"),
        ({"role": "user", "content": 5}, ".content"),
        ({"role": "user"}, ".content"),
        ({"role": "user", "content": "x", "tool_calls": [CALL]}, ".tool_calls"),
        ({"role": "user", "content": "x", "colour": "red"}, ".colour"),
        ({"role": "assistant"}, ".content"),
        ({"role": "assistant", "content": None, "tool_calls": []}, ".content"),
        ({"role": "assistant", "content": "x", "audio": {"id": "a"}}, ".audio"),
        ({"role": "assistant", "content": None, "refusal": "no"}, ".refusal"),
        (
            {"role": "assistant", "tool_calls": [CALL | {"type": "custom"}]},
            ".tool_calls[0].type",
        ),
        ({"role": "assistant", "tool_calls": [CALL | {"id": 5}]}, ".tool_calls[0].id"),
        ({"role": "tool", "content": "x"}, ".tool_call_id"),
        ({"role": "tool", "content": "x", "tool_call_id": ""}, ".tool_call_id"),
        ({"role": "function", "name": "f", "content": "x"}, ".role"),
        ({"role": None, "content": "x"}, ".role"),
        ({"content": "x"}, ".role"),
        ("x", ""),
        (None, ""),
    ],
)
def test_a_message_that_cannot_be_honoured_is_refused_by_its_path(
    chat_body: Body, message: Any, place: str
) -> None:
    body = chat_body(messages=[{"role": "user", "content": "hi"}, message])
    assert refusal(body).param == f"messages[1]{place}"


def test_errors_are_written_in_json_words(chat_body: Body) -> None:
    assert refusal(chat_body(seed="x")).message == "seed: expected an integer or null, got a string"
    assert refusal(chat_body(temperature=3)).message == "temperature: expected a number <= 2.0"
