"""Requests that need nothing but a field added, and the real clients around the wire."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic
from msgspec import structs
from openai import OpenAI

from appliance.generation import (
    ChoiceFinished,
    Finished,
    FinishReason,
    GenerationEvent,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from gateway.wire import anthropic, openai_chat, openai_completions, openai_responses
from gateway.wire.call import Call

ROUTES = {
    "/v1/chat/completions": openai_chat,
    "/v1/completions": openai_completions,
    "/v1/messages": anthropic,
    "/v1/responses": openai_responses,
}
JSON = {"content-type": "application/json"}
STREAM = {"content-type": "text/event-stream"}


async def _iterate(events: Iterable[GenerationEvent]) -> AsyncIterator[GenerationEvent]:
    for event in events:
        yield event


async def _collect(chunks: AsyncIterator[bytes]) -> list[bytes]:
    return [chunk async for chunk in chunks]


def _transport(events: Iterable[GenerationEvent], call: Call) -> httpx2.MockTransport:
    """A box that decodes every request and answers with these events."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        route = ROUTES[request.url.path]
        decoded = route.decode(request.read())
        asked = structs.replace(
            call, include_usage=decoded.include_usage, repeated=decoded.repeated
        )
        if not decoded.stream:
            whole = asyncio.run(route.encode_whole(_iterate(events), asked))
            return httpx2.Response(200, content=whole, headers=JSON)
        chunks = asyncio.run(_collect(route.encode_stream(_iterate(events), asked)))
        return httpx2.Response(200, content=b"".join(chunks), headers=STREAM)

    return httpx2.MockTransport(answer)


@pytest.fixture
def iterate() -> Callable[[Iterable[GenerationEvent]], AsyncIterator[GenerationEvent]]:
    """A list of events as the engine would send them."""
    return _iterate


@pytest.fixture
def call() -> Call:
    """A call of a model whose name is not Latin."""
    return Call(id="r1", model="名前:7b", created=1_700_000_000)


@pytest.fixture
def chat_body() -> Callable[..., bytes]:
    """The body of a chat request with these fields beside the required ones."""

    def build(**fields: Any) -> bytes:
        plain = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        return json.dumps(plain | fields).encode()

    return build


@pytest.fixture
def completion_body() -> Callable[..., bytes]:
    """The body of a completions request with these fields beside the required ones."""

    def build(**fields: Any) -> bytes:
        return json.dumps({"model": "m", "prompt": "hi"} | fields).encode()

    return build


@pytest.fixture
def response_body() -> Callable[..., bytes]:
    """The body of a responses request with these fields beside the required ones."""

    def build(**fields: Any) -> bytes:
        return json.dumps({"model": "m", "input": "hi"} | fields).encode()

    return build


@pytest.fixture
def message_body() -> Callable[..., bytes]:
    """The body of an Anthropic messages request with these fields beside the required ones."""

    def build(**fields: Any) -> bytes:
        messages = [{"role": "user", "content": "hi"}]
        return json.dumps({"model": "m", "max_tokens": 5, "messages": messages} | fields).encode()

    return build


@pytest.fixture
def thoughts_text_and_calls() -> tuple[GenerationEvent, ...]:
    """One choice with everything an engine can send, and pieces that are held back."""
    return (
        TextDelta(index=0, text="Hm", channel="reasoning"),
        TextDelta(index=0, text="", channel="reasoning"),
        TextDelta(index=0, text="m, 🙂.", channel="reasoning", num_tokens=2),
        TextDelta(index=0, text=""),
        TextDelta(index=0, text="Let me "),
        TextDelta(index=0, text='"look"\n'),
        ToolCallDelta(index=0, call_index=0, id="call_1", name="find"),
        ToolCallDelta(index=0, call_index=0, arguments='{"no":'),
        ToolCallDelta(index=0, call_index=0, arguments=' "417"}'),
        ToolCallDelta(index=0, call_index=1, id="call_2", name="list", arguments="{}"),
        ChoiceFinished(index=0, finish_reason=FinishReason.TOOL_CALLS),
        Finished(usage=Usage(prompt_tokens=9, completion_tokens=20, cached_tokens=4)),
    )


@pytest.fixture
def two_choices() -> tuple[GenerationEvent, ...]:
    """Two choices of one prompt, their pieces mixed as an engine mixes them."""
    return (
        TextDelta(index=1, text="Merhaba "),
        TextDelta(index=0, text='He said "hi"\n'),
        TextDelta(index=1, text=""),
        TextDelta(index=0, text="\u2028ğüşİ 🙂"),
        ChoiceFinished(index=0, finish_reason=FinishReason.STOP),
        TextDelta(index=1, text="dünya"),
        ChoiceFinished(index=1, finish_reason=FinishReason.LENGTH),
        Finished(usage=Usage(prompt_tokens=7, completion_tokens=5, cached_tokens=3)),
    )


@pytest.fixture
def client_of(call: Call) -> Iterator[Callable[..., OpenAI]]:
    """The official client, whose requests are decoded and whose answers are these events.

    It checks every answer against its own types, except where it is told not to: those of a
    completions chunk do not know that `finish_reason` is null until the end.
    """
    clients: list[OpenAI] = []

    def connect(events: Iterable[GenerationEvent], *, is_strict: bool = True) -> OpenAI:
        client = OpenAI(
            api_key="none",
            base_url="http://box/v1",
            max_retries=0,
            http_client=httpx2.Client(transport=_transport(events, call)),
            _strict_response_validation=is_strict,
        )
        clients.append(client)
        return client

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def anthropic_of(call: Call) -> Iterator[Callable[[Iterable[GenerationEvent]], Anthropic]]:
    """Anthropic's own client, whose requests are decoded and whose answers are these events."""
    clients: list[Anthropic] = []

    def connect(events: Iterable[GenerationEvent]) -> Anthropic:
        client = Anthropic(
            api_key="none",
            base_url="http://box",
            max_retries=0,
            http_client=httpx2.Client(transport=_transport(events, call)),
            _strict_response_validation=True,
        )
        clients.append(client)
        return client

    yield connect
    for client in clients:
        client.close()
