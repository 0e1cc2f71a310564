"""The small default model behind the whole box: what it may write is held to what was asked."""

import json
import re
from collections.abc import Iterator
from typing import Any

import anthropic
import jsonschema
import openai
import pytest

from appliance.catalogue import Library
from appliance.progress import Silent
from appliance.pull import Order, pull
from tests import small_model
from tests.walk.running_box import CONFIG, RunningBox, running_box
from tests.walk.test_tools import FIND, round_trip

pytestmark = pytest.mark.model

MODEL = "smollm2:135m"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["new", "vip", "ğ"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
ENGINE = "[engine]\ncontext_tokens = 1024\nnum_slots = 2\n"


@pytest.fixture(scope="module")
def model_box() -> Iterator[RunningBox]:
    with running_box(CONFIG.replace("[engine]\n", ENGINE)) as box:
        source = f"file:{small_model.PATH}"
        pull(Library(box.home.models), Order(name=MODEL, source=source), Silent())
        yield box


@pytest.fixture
def client(model_box: RunningBox) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{model_box.url}/v1", api_key=model_box.key, max_retries=0, timeout=120
    ) as client:
        yield client


def ask(text: str) -> Any:
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_a_required_call_has_valid_arguments(client: openai.OpenAI, temperature: float) -> None:
    with client.chat.completions.stream(
        model=MODEL,
        messages=ask("Find customer 417."),
        tools=[FIND],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=temperature,
        max_tokens=300,
        seed=1,
    ) as stream:
        (choice,) = stream.get_final_completion().choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.function.name == "find_customer"
    jsonschema.validate(json.loads(call.function.arguments), FIND["function"]["parameters"])


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_an_answer_satisfies_its_schema(client: openai.OpenAI, temperature: float) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=ask("Describe a customer as JSON."),
        response_format={"type": "json_schema", "json_schema": {"name": "c", "schema": SCHEMA}},
        temperature=temperature,
        seed=1,
    )
    (choice,) = answer.choices
    assert choice.finish_reason == "stop"
    jsonschema.validate(json.loads(choice.message.content or ""), SCHEMA)


def test_an_answer_matches_its_expression(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=ask("When was the republic founded?"),
        extra_body={"guided_regex": r"[0-9]{1,2}\.[0-9]{2}\.[0-9]{4}"},
    )
    said = answer.choices[0].message.content or ""
    assert re.fullmatch(r"[0-9]{1,2}\.[0-9]{2}\.[0-9]{4}", said)


def test_the_other_dialects_hold_it_too(client: openai.OpenAI, model_box: RunningBox) -> None:
    response = client.responses.create(
        model=MODEL,
        input="Describe a customer as JSON.",
        text={"format": {"type": "json_schema", "name": "c", "schema": SCHEMA}},
    )
    jsonschema.validate(json.loads(response.output_text), SCHEMA)
    tool: Any = {"name": "find", "input_schema": FIND["function"]["parameters"]}
    with anthropic.Anthropic(base_url=model_box.url, api_key=model_box.key) as other:
        message = other.messages.create(
            model=MODEL,
            max_tokens=300,
            messages=ask("Find customer 417."),
            tools=[tool],
            tool_choice={"type": "tool", "name": "find", "disable_parallel_tool_use": True},
        )
    (block,) = message.content
    assert block.type == "tool_use"
    jsonschema.validate(block.input, FIND["function"]["parameters"])


def test_an_empty_prompt_is_refused_by_name_where_the_model_has_no_first_token(
    client: openai.OpenAI,
) -> None:
    """vllm#7283, vllm#7746: it killed the engine."""
    for prompt, param in (("", "prompt"), (["fine", ""], "prompt[1]")):
        with pytest.raises(openai.BadRequestError) as refused:
            client.completions.create(model=MODEL, prompt=prompt, max_tokens=1)
        assert refused.value.param == param
    assert client.completions.create(model=MODEL, prompt="Hi", max_tokens=1).choices


def test_the_result_of_a_tool_is_sent_back_with_content_null_missing_or_empty(
    model_box: RunningBox,
) -> None:
    """huggingface/text-generation-inference#3198."""
    answers = [
        round_trip(model_box, MODEL, content)
        for content in ({"content": None}, {}, {"content": ""})
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    for answer in answers:
        (choice,) = answer.json()["choices"]
        assert choice["message"].get("content") or choice["message"].get("tool_calls")
    assert len({answer.json()["usage"]["prompt_tokens"] for answer in answers}) == 1
