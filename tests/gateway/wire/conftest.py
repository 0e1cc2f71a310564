"""A request that needs nothing but a field added, and the real OpenAI client around the wire."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import httpx2
import pytest
from openai import OpenAI

from appliance.generation import (
    ChoiceFinished,
    Finished,
    FinishReason,
    GenerationEvent,
    TextDelta,
    Usage,
)
from gateway.wire import openai_chat, openai_completions
from gateway.wire.call import Call

ROUTES = {"/v1/chat/completions": openai_chat, "/v1/completions": openai_completions}


async def _iterate(events: Iterable[GenerationEvent]) -> AsyncIterator[GenerationEvent]:
    for event in events:
        yield event


async def _collect(chunks: AsyncIterator[bytes]) -> list[bytes]:
    return [chunk async for chunk in chunks]


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
        def answer(request: httpx2.Request) -> httpx2.Response:
            route = ROUTES[request.url.path]
            decoded = route.decode(request.read())
            asked = Call(
                id=call.id,
                model=call.model,
                created=call.created,
                include_usage=decoded.include_usage,
            )
            if not decoded.stream:
                whole = asyncio.run(route.encode_whole(_iterate(events), asked))
                return httpx2.Response(
                    200, content=whole, headers={"content-type": "application/json"}
                )
            chunks = asyncio.run(_collect(route.encode_stream(_iterate(events), asked)))
            return httpx2.Response(
                200, content=b"".join(chunks), headers={"content-type": "text/event-stream"}
            )

        client = OpenAI(
            api_key="none",
            base_url="http://box/v1",
            max_retries=0,
            http_client=httpx2.Client(transport=httpx2.MockTransport(answer)),
            _strict_response_validation=is_strict,
        )
        clients.append(client)
        return client

    yield connect
    for client in clients:
        client.close()
