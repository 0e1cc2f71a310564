"""How Anthropic's message is streamed: named events, block after block."""

from typing import Any, Final

import msgspec

from appliance.errors import HisarError
from appliance.generation import ChoiceFinished, TextDelta, ToolCallDelta, Usage
from gateway.wire.anthropic_answer import to_begun, to_empty_block, to_stop_reason, to_usage
from gateway.wire.anthropic_errors import to_ending
from gateway.wire.call import Call
from gateway.wire.parts import Closed, Grown, Opened, Parts, Step
from gateway.wire.sse import named_frame

_encode: Final = msgspec.json.Encoder().encode
PING: Final = named_frame("ping", b'{"type":"ping"}')
# How the piece of a block is called, and where in it the text stands.
_DELTAS: Final = {
    "content": ("text_delta", "text"),
    "reasoning": ("thinking_delta", "thinking"),
    "tool_call": ("input_json_delta", "partial_json"),
}


class MessageFrames:
    """The events of one answer."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._parts = Parts()
        self._has_begun = False

    def text(self, delta: TextDelta) -> bytes:
        """New text, or new thoughts."""
        return self._write(self._parts.take(delta))

    def tool_call(self, delta: ToolCallDelta) -> bytes:
        """A piece of a call."""
        return self._write(self._parts.take(delta))

    def finish(self, choice: ChoiceFinished) -> bytes:
        """The end of the last block."""
        return self._write(self._parts.finish(choice))

    def end(self, usage: Usage) -> bytes:
        """Why it ended and what it consumed."""
        finished = self._parts.join(usage).finished
        delta = {"stop_reason": to_stop_reason(finished), "stop_sequence": finished.stop}
        ending = _event("message_delta", delta=delta, usage=to_usage(usage))
        return self._begin() + ending + _event("message_stop")

    def fail(self, error: HisarError) -> bytes:
        """What went wrong."""
        return to_ending(error, self._call.id)

    def _write(self, steps: list[Step]) -> bytes:
        return self._begin() + b"".join(map(_write_step, steps))

    def _begin(self) -> bytes:
        if self._has_begun:
            return b""
        self._has_begun = True
        return _event("message_start", message=to_begun(self._call)) + PING


def _write_step(step: Step) -> bytes:
    match step:
        case Opened(part):
            block = to_empty_block(part)
            return _event("content_block_start", index=part.index, content_block=block)
        case Grown(part, text):
            kind, name = _DELTAS[part.kind]
            delta = {"type": kind, name: text}
            return _event("content_block_delta", index=part.index, delta=delta)
        case Closed(part):
            return _event("content_block_stop", index=part.index)


def _event(name: str, **fields: Any) -> bytes:  # noqa: ANN401
    return named_frame(name, _encode({"type": name, **fields}))
