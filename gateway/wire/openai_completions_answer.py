"""How an answer looks as OpenAI's text completion, whole and in chunks (both have one shape)."""

import math
from typing import Final

import msgspec
from msgspec import Struct

from appliance.errors import HisarError
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
from gateway.wire.openai_errors import DONE, to_ending
from gateway.wire.openai_logprobs import finite
from gateway.wire.openai_usage import CompletionUsage, to_usage
from gateway.wire.sse import frame

_encode: Final = msgspec.json.Encoder().encode


class WireLogprobs(Struct, frozen=True):
    """Token by token. `text_offset` counts characters from the start of the choice's text.

    A prompt that is echoed is part of that text; its first token has no logprob and no rivals.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
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
                choice.reasoning + choice.text,
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

    def end(self, usage: Usage) -> bytes:
        """The end of the stream, after a chunk of usage for those who asked for it."""
        if not self._wants_usage:
            return DONE
        return frame(b'%b],"usage":%b}' % (self._head, _encode(to_usage(usage)))) + DONE

    def fail(self, error: HisarError) -> bytes:
        """The end of a stream in which something went wrong."""
        return to_ending(error)

    def _logprobs(self, delta: TextDelta) -> bytes:
        start = self._offsets.get(delta.index, 0)
        tokens = (logprob.chosen.token_bytes for logprob in delta.logprobs)
        self._offsets[delta.index] = start + sum(map(_num_chars, tokens))
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
        is_first = math.isnan(chosen.logprob)
        wire.tokens.append(chosen.token)
        wire.token_logprobs.append(None if is_first else finite(chosen.logprob))
        wire.top_logprobs.append(None if is_first else _to_rivals(logprob))
        # A token that starts inside of a character belongs to that character.
        wire.text_offset.append(max(0, start - _starts_inside(chosen.token_bytes)))
        start += _num_chars(chosen.token_bytes)
    return wire


def _to_rivals(logprob: ChosenLogprob) -> dict[str, float]:
    # Two tokens of equal text (halves of one character) share a key: the likelier one stays.
    rivals = reversed((*logprob.top, logprob.chosen)) if logprob.top else ()
    return {rival.token: finite(rival.logprob) for rival in rivals}


def _num_chars(token: bytes) -> int:
    """How many characters begin in these bytes of UTF-8."""
    return len(token) - sum(map(_is_continuation, token))


def _starts_inside(token: bytes) -> bool:
    return bool(token) and _is_continuation(token[0])


def _is_continuation(byte: int) -> bool:
    return byte & 0xC0 == 0x80
