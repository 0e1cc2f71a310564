"""Responses through the whole box, asked for by the official `openai` client."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.walk.running_box import RunningBox

FIND: Any = {
    "type": "function",
    "name": "find",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"no": {"type": "string"}},
        "required": ["no"],
        "additionalProperties": False,
    },
}
CALL = '<tool_call>\n{"name": "find", "arguments": {"no": "417"}}\n</tool_call>'


class City(BaseModel):
    """What an answer must look like."""

    name: str


@pytest.fixture
def client(box: RunningBox) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{box.url}/v1", api_key=box.key, max_retries=0) as client:
        yield client


def test_a_response(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="house", input="Merhaba", instructions="Be brief.")
    assert (answer.output_text, answer.status, answer.model) == ("Merhaba", "completed", "house")
    assert answer.instructions == "Be brief."
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens


def test_a_streamed_response(client: openai.OpenAI) -> None:
    with client.responses.stream(model="echo", input="hello world") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == "hello world"
    assert [event.type for event in (events[0], events[-1])] == [
        "response.created",
        "response.completed",
    ]


def test_a_call_and_its_result(client: openai.OpenAI) -> None:
    with client.responses.stream(model="echo", input=f"Look.{CALL}", tools=[FIND]) as stream:
        said, call = stream.get_final_response().output
    assert said.type == "message"
    assert call.type == "function_call"
    assert json.loads(call.arguments) == {"no": "417"}
    history: Any = [
        {"role": "user", "content": "Find 417."},
        call.to_dict(exclude_none=True),
        {"type": "function_call_output", "call_id": call.call_id, "output": "none"},
    ]
    history[1].pop("parsed_arguments", None)
    answer = client.responses.create(model="echo", input=history, tools=[FIND])
    assert answer.output_text == "Find 417."


def test_an_answer_is_parsed_into_its_type(client: openai.OpenAI) -> None:
    answer = client.responses.parse(
        model="echo", input='{"name": "Van"}', text_format=City, max_output_tokens=100
    )
    assert answer.output_parsed == City(name="Van")


def test_thoughts_are_an_item_of_their_own(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="echo", input="<think>Hmm.</think>Yes.")
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    assert answer.output_text == "Yes."


def test_errors_become_the_clients_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="nothing", input="hi")
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model="echo", input="hi", previous_response_id="resp_1")
    assert refused.value.param == "previous_response_id"
    with pytest.raises(openai.BadRequestError) as too_long:
        client.responses.create(model="echo", input="x" * 500_000, stream=True)
    assert too_long.value.param == "input"
