"""How an answer begins: nothing is sent before the engine has said something.

Until then whatever goes wrong has an HTTP status of its own; after it, only a place in the stream.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import TypeVar

from appliance.errors import EngineError
from appliance.generation import Failed, GenerationEvent
from gateway.wire.errors import from_failed

T = TypeVar("T")


async def in_time(said: Awaitable[T], timeout_s: float) -> T:
    """What an engine says. Raises EngineError `engine.timeout` where that takes too long."""
    try:
        async with asyncio.timeout(timeout_s):
            return await said
    except TimeoutError:
        raise EngineError(
            "engine.timeout", f"no answer began within {timeout_s:g} seconds"
        ) from None


async def once_begun(
    events: AsyncIterator[GenerationEvent], timeout_s: float, param_names: Mapping[str, str]
) -> AsyncIterator[GenerationEvent]:
    """The same events once the first is there; until then an error has a status of its own."""
    first = await in_time(anext(events), timeout_s)
    if isinstance(first, Failed):
        raise from_failed(first, param_names)
    return _chain(first, events)


async def _chain(
    first: GenerationEvent, rest: AsyncIterator[GenerationEvent]
) -> AsyncIterator[GenerationEvent]:
    yield first
    async for event in rest:
        yield event
