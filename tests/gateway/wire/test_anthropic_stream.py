"""Messages, whole and as events, and what went wrong, as Anthropic's own client reads them."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from anthropic import Anthropic, APIStatusError
from anthropic.types import Message as AnthropicMessage
from litestar.exceptions import NotFoundException

from appliance.errors import EngineError, RequestError, StoreError
from appliance.generation import (
    ChoiceFinished,
    Failed,
    Finished,
    FinishReason,
    GenerationEvent,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from gateway.wire.anthropic_errors import to_answer

Events = tuple[GenerationEvent, ...]
ClientOf = Callable[[Events], Anthropic]

ASKED: dict[str, Any] = {
    "model": "m",
    "max_tokens": 5,
    "messages": [{"role": "user", "content": "hi"}],
}


def answer(reason: FinishReason, stop: str | None = None) -> Events:
    return (
        TextDelta(index=0, text="Once"),
        ChoiceFinished(index=0, finish_reason=reason, stop=stop),
        Finished(usage=Usage(prompt_tokens=9, completion_tokens=1, cached_tokens=4)),
    )


def facts_of(message: AnthropicMessage) -> dict[str, Any]:
    return message.to_dict(exclude_none=True)


def test_a_stream_amounts_to_the_whole_answer(
    anthropic_of: ClientOf, thoughts_text_and_calls: Events
) -> None:
    client = anthropic_of(thoughts_text_and_calls)
    whole = client.messages.create(**ASKED)
    with client.messages.stream(**ASKED) as stream:
        accumulated = stream.get_final_message()
    assert facts_of(accumulated) == facts_of(whole)
    thoughts, said, first, second = whole.content
    assert thoughts.type == "thinking"
    assert thoughts.thinking == "Hmm, 🙂."
    assert said.type == "text"
    assert said.text == 'Let me "look"\n'
    assert first.type == second.type == "tool_use"
    assert (first.id, first.name, first.input) == ("call_1", "find", {"no": "417"})
    assert (second.id, second.name, second.input) == ("call_2", "list", {})
    assert (whole.id, whole.model, whole.stop_reason) == ("msg_r1", "名前:7b", "tool_use")


def test_the_events_come_in_their_order(
    anthropic_of: ClientOf, thoughts_text_and_calls: Events
) -> None:
    events = list(anthropic_of(thoughts_text_and_calls).messages.create(**ASKED, stream=True))
    start, delta, stop = "content_block_start", "content_block_delta", "content_block_stop"
    assert [event.type for event in events] == [
        "message_start",
        *[start, delta, delta, stop] * 3,
        *[start, delta, stop],
        "message_delta",
        "message_stop",
    ]
    assert [event.index for event in events if event.type == start] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("reason", "stop", "stop_reason"),
    [
        (FinishReason.STOP, None, "end_turn"),
        (FinishReason.STOP, "END", "stop_sequence"),
        (FinishReason.LENGTH, None, "max_tokens"),
        (FinishReason.TOOL_CALLS, None, "tool_use"),
        (FinishReason.CONTENT_FILTER, None, "refusal"),
    ],
)
def test_why_it_ended_and_what_it_consumed(
    anthropic_of: ClientOf, reason: FinishReason, stop: str | None, stop_reason: str
) -> None:
    """apache/apisix#13662: input tokens are told once, and the kinds of them add up."""
    client = anthropic_of(answer(reason, stop))
    whole = client.messages.create(**ASKED)
    assert (whole.stop_reason, whole.stop_sequence) == (stop_reason, stop)
    with client.messages.stream(**ASKED) as stream:
        assert facts_of(stream.get_final_message()) == facts_of(whole)
    assert (whole.usage.input_tokens, whole.usage.cache_read_input_tokens) == (5, 4)
    assert whole.usage.output_tokens == 1


@pytest.mark.parametrize("arguments", ['{"no": "4', "[1]", "", "[" * 5000, '{"a":NaN}'])
def test_a_call_whose_json_is_cut_or_broken_has_no_input(
    anthropic_of: ClientOf, arguments: str
) -> None:
    events = (
        ToolCallDelta(index=0, call_index=0, id="call_1", name="find", arguments=arguments),
        ChoiceFinished(index=0, finish_reason=FinishReason.LENGTH),
        Finished(usage=Usage()),
    )
    whole = anthropic_of(events).messages.create(**ASKED)
    (call,) = whole.content
    assert call.type == "tool_use"
    assert (call.input, whole.stop_reason) == ({}, "max_tokens")


@pytest.mark.parametrize(
    ("ending", "kind"),
    [
        ((Failed(code="engine.replica_lost", message="x", retry_after_s=1.0),), "overloaded_error"),
        ((Failed(code="engine.row_failed", message="x"),), "api_error"),
        ((Failed(code="request.context_length_exceeded", message="x"),), "invalid_request_error"),
        ((), "api_error"),
        ((Finished(usage=Usage()),), "api_error"),
        ((ChoiceFinished(index=0, finish_reason=FinishReason.CANCELLED),), "api_error"),
    ],
)
def test_a_stream_that_breaks_raises_in_the_client(
    anthropic_of: ClientOf, ending: Events, kind: str
) -> None:
    """BerriAI/litellm#33404, open-webui/open-webui#29628: broken streams passed for complete."""
    client = anthropic_of((TextDelta(index=0, text="half an ans"), *ending))
    seen: list[str] = []
    with pytest.raises(APIStatusError) as caught:
        seen.extend(event.type for event in client.messages.create(**ASKED, stream=True))
    assert "content_block_delta" in seen
    assert not {"message_delta", "message_stop"} & set(seen)
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["request_id"] == "r1"
    assert caught.value.body["error"]["type"] == kind


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (RequestError("request.invalid_json", "cut", status=400), 400, "invalid_request_error"),
        (RequestError("auth.key_unknown", "no", status=401), 401, "authentication_error"),
        (RequestError("auth.forbidden", "no", status=403), 403, "permission_error"),
        (RequestError("model.not_found", "no", status=404), 404, "not_found_error"),
        (RequestError("request.body_timeout", "slow", status=408), 408, "invalid_request_error"),
        (RequestError("request.body_too_large", "big", status=413), 413, "request_too_large"),
        (RequestError("limits.tokens_per_minute", "later", status=429), 429, "rate_limit_error"),
        (RequestError("limits.queue_full", "busy", status=503), 529, "overloaded_error"),
        (StoreError("audit.unavailable", "x"), 529, "overloaded_error"),
        (EngineError("engine.timeout", "slow"), 504, "timeout_error"),
        (EngineError("engine.row_failed", "x"), 500, "api_error"),
        (NotFoundException("x"), 404, "not_found_error"),
        (RuntimeError("x"), 500, "api_error"),
    ],
)
def test_an_error_has_anthropics_status_and_kind(error: Exception, status: int, kind: str) -> None:
    seen = to_answer(error, "r1")
    body = json.loads(seen.body)
    assert (seen.status, body["type"], body["error"]["type"]) == (status, "error", kind)
    assert (body["request_id"], set(body["error"])) == ("r1", {"type", "message"})
    assert ("retry-after" in seen.headers) == (status == 529)
