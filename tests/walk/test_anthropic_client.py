"""The official `anthropic` client, unchanged."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest

from appliance.identity import Limits
from tests.walk.raw import connect, head, read_answer
from tests.walk.running_box import CONFIG, RunningBox, running_box

FIND: Any = {
    "name": "find",
    "input_schema": {
        "type": "object",
        "properties": {"no": {"type": "string"}},
        "required": ["no"],
        "additionalProperties": False,
    },
}
CALL = '<tool_call>\n{"name": "find", "arguments": {"no": "417"}}\n</tool_call>'


@pytest.fixture
def client(box: RunningBox) -> Iterator[anthropic.Anthropic]:
    with client_of(box, box.key) as client:
        yield client


def client_of(box: RunningBox, key: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(
        base_url=box.url, api_key=key, max_retries=0, _strict_response_validation=True
    )


def user(text: str) -> Any:
    return [{"role": "user", "content": text}]


def test_a_message(client: anthropic.Anthropic) -> None:
    answer = client.messages.create(
        model="house", max_tokens=50, system="Be brief.", messages=user("Merhaba dünya")
    )
    (block,) = answer.content
    assert block.type == "text"
    assert (block.text, answer.stop_reason, answer.model) == ("Merhaba dünya", "end_turn", "house")
    assert answer.usage.input_tokens > 0
    assert answer._request_id
    assert answer.id.endswith(answer._request_id)


def test_a_streamed_message(client: anthropic.Anthropic) -> None:
    with client.messages.stream(
        model="echo", max_tokens=50, messages=user("hello world"), stop_sequences=["wor"]
    ) as stream:
        assert "".join(stream.text_stream) == "hello "
        final = stream.get_final_message()
    assert (final.stop_reason, final.stop_sequence) == ("stop_sequence", "wor")
    assert final.usage.output_tokens > 0


def test_a_call_and_its_result(client: anthropic.Anthropic) -> None:
    asked = user(f"Look.{CALL}")
    whole = client.messages.create(model="echo", max_tokens=200, messages=asked, tools=[FIND])
    with client.messages.stream(
        model="echo", max_tokens=200, messages=asked, tools=[FIND]
    ) as stream:
        streamed = stream.get_final_message()
    for answer in (whole, streamed):
        said, call = answer.content
        assert said.type == "text"
        assert call.type == "tool_use"
        assert (call.name, call.input, answer.stop_reason) == ("find", {"no": "417"}, "tool_use")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "none"}
    history = [*asked, {"role": "assistant", "content": streamed.content}]
    told = client.messages.create(
        model="echo",
        max_tokens=200,
        messages=[*history, {"role": "user", "content": [result]}],
        tools=[FIND],
    )
    assert told.stop_reason == "tool_use"


def test_a_call_can_be_required(client: anthropic.Anthropic) -> None:
    answer = client.messages.create(
        model="echo",
        max_tokens=200,
        messages=user("no call in here"),
        tools=[FIND],
        tool_choice={"type": "any"},
    )
    assert [block.type for block in answer.content] == ["tool_use"]


def test_errors_become_the_clients_own(client: anthropic.Anthropic, box: RunningBox) -> None:
    asked: Any = {"model": "echo", "max_tokens": 5, "messages": user("hi")}
    with pytest.raises(anthropic.NotFoundError) as unknown:
        client.messages.create(**{**asked, "model": "nothing"})
    assert unknown.value.request_id
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(**{**asked, "messages": []})
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(**{**asked, "messages": user("to Zeytinburnu")}, stream=True)
    with pytest.raises(anthropic.AuthenticationError), client_of(box, "wrong") as stranger:
        stranger.messages.create(**asked)
    tight = box.make_key("tight messages", limits=Limits(tokens_per_minute=5))
    with pytest.raises(anthropic.RateLimitError), client_of(box, tight) as poor:
        poor.messages.create(**{**asked, "max_tokens": 50})
    with pytest.raises(anthropic.RequestTooLargeError):
        client.messages.create(**{**asked, "messages": user("x" * 3_000_000)})


def refused(answer: httpx.Response) -> dict[str, Any]:
    body: dict[str, Any] = answer.json()
    assert set(body) == {"type", "error", "request_id"}
    assert set(body["error"]) == {"type", "message"}
    assert body["type"] == "error"
    assert body["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]
    error: dict[str, Any] = body["error"]
    return error


def test_every_error_of_the_address_wears_its_envelope(box: RunningBox) -> None:
    with box.client() as client:
        assert refused(client.post("/v1/messages", content=b"{"))["type"] == "invalid_request_error"
        assert refused(client.get("/v1/messages"))["type"] == "invalid_request_error"
        assert "POST" in client.get("/v1/messages").headers["allow"]
        options = client.options("/v1/messages", headers={"origin": "https://evil.example"})
        assert refused(options)["type"] == "permission_error"
    assert refused(httpx.post(f"{box.url}/v1/messages"))["type"] == "authentication_error"


def test_a_box_that_is_not_called_so_says_it_in_that_envelope(box: RunningBox) -> None:
    connection = connect(box.port)
    connection.sendall(head("POST", "/v1/messages", host="evil.example"))
    answer = read_answer(connection)
    connection.close()
    assert (answer.status, json.loads(answer.body)["type"]) == (400, "error")


def test_silence_is_filled_with_named_pings() -> None:
    config = CONFIG.replace("drain_s = 1.0", "drain_s = 1.0\nping_s = 0.001")
    with running_box(config) as box, client_of(box, box.key) as client:
        stream = client.messages.create(
            model="echo", max_tokens=100, messages=user("x" * 50), stream=True
        )
        events = [event.type for event in stream]
    assert events[-1] == "message_stop"
