"""Nothing is sent before the engine has said something."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from appliance.errors import EngineError, RequestError
from appliance.generation import Failed, Finished, GenerationEvent, TextDelta, Usage
from gateway.beginning import once_begun


async def stream(*events: GenerationEvent) -> AsyncIterator[GenerationEvent]:
    for event in events:
        yield event


async def test_the_events_are_the_same() -> None:
    events = (TextDelta(index=0, text="a"), Finished(usage=Usage()))
    begun = await once_begun(stream(*events), 5, {})
    assert [event async for event in begun] == list(events)


async def test_a_failure_before_anything_is_raised() -> None:
    too_long = Failed(code="request.context_length_exceeded", message="9 of 8", param="messages")
    with pytest.raises(RequestError) as refused:
        await once_begun(stream(too_long), 5, {})
    assert (refused.value.status, refused.value.param) == (400, "messages")


async def test_what_is_at_fault_is_named_as_the_body_names_it() -> None:
    too_long = Failed(code="request.context_length_exceeded", message="9 of 8", param="messages")
    with pytest.raises(RequestError) as refused:
        await once_begun(stream(too_long), 5, {"messages": "input"})
    assert refused.value.param == "input"


async def test_a_later_failure_is_an_event_like_others() -> None:
    events = (TextDelta(index=0, text="a"), Failed(code="engine.lost", message="gone"))
    begun = await once_begun(stream(*events), 5, {})
    assert [event async for event in begun] == list(events)


async def test_an_engine_that_says_nothing_is_a_timeout() -> None:
    async def silent() -> AsyncIterator[GenerationEvent]:
        await asyncio.Event().wait()
        yield Finished(usage=Usage())

    with pytest.raises(EngineError) as refused:
        await once_begun(silent(), 0.01, {})
    assert refused.value.code == "engine.timeout"
