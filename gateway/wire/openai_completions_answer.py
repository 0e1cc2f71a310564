"""How an answer looks as OpenAI's text completion, whole and in chunks (both have one shape)."""

from typing import Final

import msgspec
from msgspec import Struct

from appliance.generation import (
    ChoiceFinished,
    ChosenLogprob,
    FinishReason,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from gateway.wire.answer import Answer
from gateway.wire.call import Call
from gateway.wire.openai_usage import CompletionUsage, finite, to_usage
from gateway.wire.sse import frame

_encode: Final = msgspec.json.Encoder().encode


class WireLogprobs(Struct, frozen=True):
    """Token by token. `text_offset` counts characters from the start of the choice's text."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class WireChoice(Struct, frozen=True):
    """One choice of a whole answer."""

    index: int
    text: str
    logprobs: WireLogprobs | None
    finish_reason: str


class TextCompletion(Struct, frozen=True, kw_only=True):
    """A whole answer."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[WireChoice]
    usage: CompletionUsage
    system_fingerprint: None = None


def to_completion(answer: Answer, call: Call) -> TextCompletion:
    """The whole answer to that call."""
    return TextCompletion(
        id=_id(call),
        created=call.created,
        model=call.model,
        choices=[
            WireChoice(
                choice.index,
                choice.text,
                _to_logprobs(choice.logprobs, 0) if choice.logprobs else None,
                _to_reason(choice.finish_reason),
            )
            for choice in answer.choices
        ],
        usage=to_usage(answer.usage),
    )


class CompletionFrames:
    """The chunks of one answer. Remembers how long each choice's tokens have become."""

    def __init__(self, call: Call) -> None:
        head = _encode(
            {
                "id": _id(call),
                "object": "text_completion",
                "created": call.created,
                "model": call.model,
                "system_fingerprint": None,
            }
        )
        self._head = head.removesuffix(b"}") + b',"choices":['
        self._tail = b'],"usage":null}' if call.include_usage else b"]}"
        self._wants_usage = call.include_usage
        self._offsets: dict[int, int] = {}

    def text(self, delta: TextDelta) -> bytes:
        """New text; a delta of neither text nor logprobs (held back text) is no chunk."""
        if delta.logprobs:
            return self._chunk(delta.index, delta.text, self._logprobs(delta))
        return self._chunk(delta.index, delta.text) if delta.text else b""

    def tool_call(self, delta: ToolCallDelta) -> bytes:  # noqa: ARG002
        """Completions have no tools, so no engine sends this."""
        return b""

    def finish(self, choice: ChoiceFinished) -> bytes:
        """The end of one choice."""
        return self._chunk(choice.index, "", reason=_encode(_to_reason(choice.finish_reason)))

    def usage(self, usage: Usage) -> bytes:
        """The last chunk, for those who asked for it."""
        if not self._wants_usage:
            return b""
        return frame(b'%b],"usage":%b}' % (self._head, _encode(to_usage(usage))))

    def _logprobs(self, delta: TextDelta) -> bytes:
        start = self._offsets.get(delta.index, 0)
        tokens = (logprob.chosen.token for logprob in delta.logprobs)
        self._offsets[delta.index] = start + sum(map(len, tokens))
        return _encode(_to_logprobs(delta.logprobs, start))

    def _chunk(
        self, index: int, text: str, logprobs: bytes = b"null", reason: bytes = b"null"
    ) -> bytes:
        return b'data: %b{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b}%b\n\n' % (
            self._head,
            index,
            _encode(text),
            logprobs,
            reason,
            self._tail,
        )


def _id(call: Call) -> str:
    return f"cmpl-{call.id}"


def _to_reason(reason: FinishReason) -> str:
    return "stop" if reason is FinishReason.TOOL_CALLS else reason


def _to_logprobs(logprobs: tuple[ChosenLogprob, ...], start: int) -> WireLogprobs:
    wire = WireLogprobs([], [], [], [])
    for logprob in logprobs:
        chosen = logprob.chosen
        wire.tokens.append(chosen.token)
        wire.token_logprobs.append(finite(chosen.logprob))
        # Two tokens of equal text (halves of one character) share a key: the likelier one stays.
        rivals = reversed((*logprob.top, chosen)) if logprob.top else ()
        wire.top_logprobs.append({rival.token: finite(rival.logprob) for rival in rivals})
        wire.text_offset.append(start)
        start += len(chosen.token)
    return wire
