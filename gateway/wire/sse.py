"""How an answer is cut into server-sent events.

How a stream ends is its dialect's; where something goes wrong on the way it ends in an error, and
no choice is given a finish reason it did not reach.
(WHATWG HTML, section 9.2, "Server-sent events".)
"""

from collections.abc import AsyncIterator
from typing import Final, Protocol

from appliance.errors import HisarError
from appliance.generation import (
    ChoiceFinished,
    Failed,
    Finished,
    GenerationEvent,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from gateway.wire.answer import VISIBLE_REASONS, cut_answer
from gateway.wire.errors import from_failed

HEADERS: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    # A reverse proxy that buffers would hold the tokens back.
    "x-accel-buffering": "no",
}
PING: Final = b": ping\n\n"


class Frames(Protocol):
    """How one route writes the pieces of an answer: whole events, or nothing."""

    def text(self, delta: TextDelta) -> bytes: ...

    def tool_call(self, delta: ToolCallDelta) -> bytes: ...

    def finish(self, choice: ChoiceFinished) -> bytes: ...

    def end(self, usage: Usage) -> bytes: ...

    def fail(self, error: HisarError) -> bytes: ...


def frame(data: bytes) -> bytes:
    """One event without a name."""
    return b"data: " + data + b"\n\n"


def named_frame(name: str, data: bytes) -> bytes:
    """One event with a name."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


async def encode_events(
    events: AsyncIterator[GenerationEvent], frames: Frames
) -> AsyncIterator[bytes]:
    """Events to frames. A HisarError on the way is sent in band, and ends the stream."""
    try:
        async for event in events:
            chunk = _encode_event(event, frames)
            if chunk:
                yield chunk
            if isinstance(event, Finished):
                return
        raise cut_answer()
    except HisarError as error:
        yield frames.fail(error)


def _encode_event(event: GenerationEvent, frames: Frames) -> bytes:
    match event:
        case TextDelta():
            return frames.text(event)
        case ToolCallDelta():
            return frames.tool_call(event)
        case ChoiceFinished():
            if event.finish_reason not in VISIBLE_REASONS:
                raise cut_answer()
            return frames.finish(event)
        case Finished():
            return frames.end(event.usage)
        case Failed():
            raise from_failed(event)
