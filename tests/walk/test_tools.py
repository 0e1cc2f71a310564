"""Tools and output formats through the whole box, asked for by the official `openai` client."""

import json
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel

from tests.walk.running_box import RunningBox

FIND: Any = {
    "type": "function",
    "function": {
        "name": "find_customer",
        "description": "Find a customer.",
        "parameters": {
            "type": "object",
            "properties": {"no": {"type": "string"}},
            "required": ["no"],
            "additionalProperties": False,
        },
    },
}
# Echo answers with what the user wrote.
CALL = '<tool_call>\n{"name": "find_customer", "arguments": {"no": "417"}}\n</tool_call>'


class Customer(BaseModel):
    """What an answer must look like."""

    name: str
    kind: Literal["new", "old"]


@pytest.fixture
def client(box: RunningBox) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{box.url}/v1",
        api_key=box.key,
        max_retries=0,
        _strict_response_validation=True,
    ) as client:
        yield client


def test_a_call_whole(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="echo", messages=[{"role": "user", "content": f"Look.{CALL}"}], tools=[FIND]
    )
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Look.")
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert call.function.name == "find_customer"
    assert json.loads(call.function.arguments) == {"no": "417"}
    assert answer.usage is not None
    assert answer.usage.completion_tokens > len("417")


def test_a_call_streamed_amounts_to_the_same(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="echo",
        messages=[{"role": "user", "content": f"Look.{CALL}{CALL}"}],
        tools=[FIND],
        stream_options={"include_usage": True},
    ) as stream:
        answer = stream.get_final_completion()
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Look.")
    calls = choice.message.tool_calls or []
    assert [json.loads(call.function.arguments) for call in calls] == [{"no": "417"}] * 2
    assert len({call.id for call in calls}) == 2
    assert answer.usage is not None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "find_customer"}}]
)
def test_a_call_can_be_required(box: RunningBox, choice: Any, stream: bool) -> None:
    answer = box.chat("no call in here", tools=[FIND], tool_choice=choice, stream=stream)
    assert answer.status_code == 200
    assert '"finish_reason":"tool_calls"' in answer.text


def test_without_a_choice_of_tools_markup_is_text(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="echo",
        messages=[{"role": "user", "content": CALL}],
        tools=[FIND],
        tool_choice="none",
    )
    assert answer.choices[0].message.content == CALL
    assert answer.choices[0].message.tool_calls is None


@pytest.mark.parametrize("content", [{"content": None}, {}, {"content": ""}])
def test_the_result_of_a_tool_is_sent_back(box: RunningBox, content: dict[str, None]) -> None:
    """huggingface/text-generation-inference#3198: content null beside calls broke the template."""
    told = round_trip(box, "echo", content)
    assert told.status_code == 200
    assert told.json()["choices"][0]["message"]["content"] == "Hi"
    usage = round_trip(box, "echo", {"content": None}).json()["usage"]
    assert told.json()["usage"]["prompt_tokens"] == usage["prompt_tokens"]


def round_trip(box: RunningBox, model: str, content: dict[str, Any]) -> Any:
    """A conversation that goes on after a tool has answered."""
    function = {"name": "find_customer", "arguments": '{"no":"417"}'}
    call = {"id": "call_00000001", "type": "function", "function": function}
    messages = [
        {"role": "system", "content": "Kısa yanıt ver."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", **content, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_00000001", "content": '{"found":false}'},
    ]
    body = {"model": model, "max_tokens": 32, "tools": [FIND], "messages": messages}
    with box.client() as client:
        return client.post("/v1/chat/completions", json=body)


def test_an_answer_is_parsed_into_its_type(client: openai.OpenAI) -> None:
    for text in ('{"name": "Ayşe", "kind": "new"}', "nothing of the kind"):
        answer = client.chat.completions.parse(
            model="echo",
            messages=[{"role": "user", "content": text}],
            response_format=Customer,
            max_tokens=200,
        )
        parsed = answer.choices[0].message.parsed
        assert parsed is not None
    assert answer.choices[0].finish_reason == "stop"


def test_an_answer_cut_by_length_says_so(client: openai.OpenAI) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(
            model="echo",
            messages=[{"role": "user", "content": '{"name": "Ayşe", "kind": "new"}'}],
            response_format=Customer,
            max_tokens=5,
        )


def test_any_object_an_expression_or_a_grammar(box: RunningBox) -> None:
    def said(text: str, **fields: object) -> str:
        answer = box.chat(text, max_tokens=100, **fields).json()
        content: str = answer["choices"][0]["message"]["content"]
        return content

    assert isinstance(json.loads(said("an object", response_format={"type": "json_object"})), dict)
    assert said("yes", guided_regex="yes|no") == "yes"
    assert said("maybe", guided_regex="yes|no") in ("yes", "no")
    assert said("b", guided_grammar='start: "a" | "b"') == "b"


IMPOSSIBLE = {"type": "string", "pattern": "a{3}", "maxLength": 1}


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (
            "/v1/chat/completions",
            {
                "messages": [{"role": "user", "content": "hi"}],
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "schema": IMPOSSIBLE},
                },
            },
            "response_format",
        ),
        (
            "/v1/chat/completions",
            {
                "messages": [{"role": "user", "content": "hi"}],
                "tools": [
                    {
                        "type": "function",
                        "function": {
                            "name": "f",
                            "strict": True,
                            "parameters": {"type": "object", "$ref": "#/nowhere"},
                        },
                    }
                ],
            },
            "tools",
        ),
        ("/v1/completions", {"prompt": "hi", "guided_regex": "a("}, "guided_regex"),
        ("/v1/completions", {"prompt": "hi", "guided_grammar": "start: b"}, "guided_grammar"),
        (
            "/v1/responses",
            {
                "input": "hi",
                "text": {"format": {"type": "json_schema", "name": "a", "schema": IMPOSSIBLE}},
            },
            "text.format",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_no_answer_can_be_held_to_is_400_with_the_name_of_it(
    box: RunningBox, path: str, fields: dict[str, Any], param: str, stream: bool
) -> None:
    with box.client() as client:
        answer = client.post(path, json={"model": "echo", "stream": stream, **fields})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("request.grammar_refused", param)
    assert box.chat("hi").status_code == 200


def test_the_prompt_alone_with_its_logprobs(box: RunningBox) -> None:
    """vllm-project/vllm#6521, ggml-org/llama.cpp#4047."""
    body = {"model": "echo", "prompt": "once upon", "max_tokens": 0, "echo": True, "logprobs": 1}
    with box.client() as client:
        answer = client.post("/v1/completions", json=body).json()
    (choice,) = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("once upon", "length")
    assert "".join(choice["logprobs"]["tokens"][1:]) == "once upon"
    assert choice["logprobs"]["token_logprobs"][:2] == [None, 0.0]
    assert answer["usage"]["completion_tokens"] == 0


def test_stop_ids_least_lengths_and_ends_that_are_ignored(box: RunningBox) -> None:
    def ask(**fields: object) -> tuple[str, str]:
        body = {"model": "echo", "prompt": "abc", **fields}
        with box.client() as client:
            (choice,) = client.post("/v1/completions", json=body).json()["choices"]
        return choice["text"], choice["finish_reason"]

    assert ask() == ("abc", "stop")
    assert ask(stop_token_ids=[ord("b")]) == ("a", "stop")
    assert ask(ignore_eos=True, max_tokens=9)[1] == "length"
    assert ask(min_tokens=6)[0].startswith("abc")
    assert len(ask(min_tokens=6)[0]) > len("abc")
