"""How OpenAI's response is streamed: named, numbered events, part after part.

created, in_progress, then for each part: item added, content added, deltas, text done, content
done, item done (a call has arguments in place of content), and at last the response as a whole.
"""

from typing import Any, Final

import msgspec

from appliance.errors import HisarError
from appliance.generation import ChoiceFinished, TextDelta, ToolCallDelta, Usage
from gateway.wire.call import Call
from gateway.wire.openai_logprobs import to_chosen
from gateway.wire.openai_responses_answer import (
    Content,
    OutputText,
    ReasoningText,
    to_begun,
    to_empty_item,
    to_failed,
    to_item,
    to_item_id,
    to_output_text,
    to_response,
)
from gateway.wire.parts import Closed, Grown, Opened, Part, Parts, Step
from gateway.wire.sse import named_frame

_encode: Final = msgspec.json.Encoder().encode


class ResponseFrames:
    """The events of one answer."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._parts = Parts()
        self._num_events = 0

    def text(self, delta: TextDelta) -> bytes:
        """New text, or new thoughts."""
        return self._write(self._parts.take(delta))

    def tool_call(self, delta: ToolCallDelta) -> bytes:
        """A piece of a call."""
        return self._write(self._parts.take(delta))

    def finish(self, choice: ChoiceFinished) -> bytes:
        """The end of the last part."""
        return self._write(self._parts.finish(choice))

    def end(self, usage: Usage) -> bytes:
        """The response as a whole, complete or cut."""
        response = to_response(self._parts.join(usage), self._call)
        return self._begin() + self._event(f"response.{response.status}", response=response)

    def fail(self, error: HisarError) -> bytes:
        """What there is of the response, and what went wrong."""
        response = to_failed(error, self._parts.closed, self._call)
        return self._begin() + self._event("response.failed", response=response)

    def _write(self, steps: list[Step]) -> bytes:
        return self._begin() + b"".join(map(self._write_step, steps))

    def _begin(self) -> bytes:
        if self._num_events:
            return b""
        response = to_begun(self._call)
        created = self._event("response.created", response=response)
        return created + self._event("response.in_progress", response=response)

    def _write_step(self, step: Step) -> bytes:
        match step:
            case Opened(part):
                return self._open(part)
            case Grown(part, text, logprobs):
                wire = [to_chosen(logprob) for logprob in logprobs]
                more = {"logprobs": wire} if part.kind == "content" else {}
                return self._part_event(part, f"{_stem(part)}.delta", delta=text, **more)
            case Closed(part):
                return self._close(part)

    def _open(self, part: Part) -> bytes:
        item = to_empty_item(part, self._call)
        added = self._event("response.output_item.added", output_index=part.index, item=item)
        if part.kind == "tool_call":
            return added
        empty = _to_content(Part(kind=part.kind))
        return added + self._part_event(part, "response.content_part.added", part=empty)

    def _close(self, part: Part) -> bytes:
        item = to_item(part, self._call)
        return self._close_content(part) + self._event(
            "response.output_item.done", output_index=part.index, item=item
        )

    def _close_content(self, part: Part) -> bytes:
        name = f"{_stem(part)}.done"
        if part.kind == "tool_call":
            return self._part_event(part, name, name=part.name, arguments=part.text)
        content = _to_content(part)
        more = {"logprobs": content.logprobs} if isinstance(content, OutputText) else {}
        done = self._part_event(part, name, text=content.text, **more)
        return done + self._part_event(part, "response.content_part.done", part=content)

    def _part_event(self, part_: Part, event: str, **fields: Any) -> bytes:  # noqa: ANN401
        place: dict[str, Any] = {
            "item_id": to_item_id(part_, self._call),
            "output_index": part_.index,
        }
        if part_.kind != "tool_call":
            place["content_index"] = 0
        return self._event(event, **place, **fields)

    def _event(self, event: str, **fields: Any) -> bytes:  # noqa: ANN401
        data = {"type": event, "sequence_number": self._num_events, **fields}
        self._num_events += 1
        return named_frame(event, _encode(data))


def _stem(part: Part) -> str:
    return {
        "content": "response.output_text",
        "reasoning": "response.reasoning_text",
        "tool_call": "response.function_call_arguments",
    }[part.kind]


def _to_content(part: Part) -> Content:
    return ReasoningText(text=part.text) if part.kind == "reasoning" else to_output_text(part)
