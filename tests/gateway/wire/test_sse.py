"""The bytes of a stream."""

import json
from collections.abc import AsyncIterator, Callable, Iterable

from appliance.errors import RequestError
from appliance.generation import ChoiceFinished, FinishReason, GenerationEvent, TextDelta
from gateway.wire import openai_chat, openai_completions
from gateway.wire.call import Call
from gateway.wire.openai_errors import DONE, to_ending
from gateway.wire.sse import HEADERS

Iterate = Callable[[Iterable[GenerationEvent]], AsyncIterator[GenerationEvent]]


async def test_each_event_is_one_line_of_json_and_the_last_is_done(
    iterate: Iterate, call: Call, two_choices: tuple[GenerationEvent, ...]
) -> None:
    for route in (openai_chat, openai_completions):
        chunks = [chunk async for chunk in route.encode_stream(iterate(two_choices), call)]
        *frames, done, rest = b"".join(chunks).split(b"\n\n")
        assert (done, rest) == (b"data: [DONE]", b"")
        for frame in frames:
            assert frame.startswith(b"data: ")
            assert b"\n" not in frame
            assert b"\r" not in frame
            assert "error" not in json.loads(frame.removeprefix(b"data: "))


async def test_text_held_back_is_no_event(iterate: Iterate, call: Call) -> None:
    for route in (openai_chat, openai_completions):
        events = iterate([TextDelta(index=0, text="")])
        chunks = [chunk async for chunk in route.encode_stream(events, call)]
        assert len(chunks) == 1
        assert chunks[0].endswith(DONE)


async def test_an_error_on_the_way_is_sent_in_band(call: Call) -> None:
    async def refused() -> AsyncIterator[GenerationEvent]:
        yield TextDelta(index=0, text="a")
        raise RequestError("guardrails.denied_word", "a denied word", status=400)

    chunks = [chunk async for chunk in openai_chat.encode_stream(refused(), call)]
    error, done, _ = chunks[-1].split(b"\n\n")
    assert json.loads(error.removeprefix(b"data: ")) == {
        "error": {
            "message": "a denied word",
            "type": "invalid_request_error",
            "param": None,
            "code": "content_policy_violation",
        }
    }
    assert done == b"data: [DONE]"


async def test_nothing_follows_the_ending(
    iterate: Iterate, call: Call, two_choices: tuple[GenerationEvent, ...]
) -> None:
    late = ChoiceFinished(index=5, finish_reason=FinishReason.STOP)
    chunks = [
        chunk async for chunk in openai_chat.encode_stream(iterate([*two_choices, late]), call)
    ]
    assert chunks[-1].endswith(DONE)


def test_a_stream_may_be_neither_cached_nor_held_back() -> None:
    assert HEADERS["content-type"].startswith("text/event-stream")
    assert HEADERS["cache-control"] == "no-cache"
    assert HEADERS["x-accel-buffering"] == "no"


def test_a_broken_stream_still_says_done() -> None:
    ending = to_ending(RequestError("request.cancelled", "gone", status=499))
    assert ending.startswith(b'data: {"error":')
    assert ending.endswith(DONE)
