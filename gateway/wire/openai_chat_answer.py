"""How an answer looks as OpenAI's chat completion, whole and in chunks."""

from typing import Any, Final

import msgspec
from msgspec import Struct

from appliance.errors import HisarError
from appliance.generation import (
    ChoiceFinished,
    ChosenLogprob,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from gateway.wire.answer import Answer, Choice
from gateway.wire.call import Call
from gateway.wire.openai_errors import DONE, to_ending
from gateway.wire.openai_logprobs import WireChosenLogprob, to_chosen
from gateway.wire.openai_usage import CompletionUsage, to_usage
from gateway.wire.sse import frame

_encode: Final = msgspec.json.Encoder().encode
_FIELDS: Final = {"content": b"content", "reasoning": b"reasoning_content"}


class WireLogprobs(Struct, frozen=True):
    """Logprobs of a choice or of a piece of it."""

    content: list[WireChosenLogprob]
    refusal: None = None


class WireFunction(Struct, frozen=True):
    """The function of a tool call."""

    name: str
    arguments: str


class WireToolCall(Struct, frozen=True, tag_field="type", tag="function"):
    """One whole tool call."""

    id: str
    function: WireFunction


class WireMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the assistant said. `content` is null only beside tool calls.

    `reasoning_content` is what it thought before; it is not OpenAI's, and is spelled as most
    servers of open models spell it.
    """

    role: str
    content: str | None
    refusal: None
    tool_calls: list[WireToolCall] = []
    reasoning_content: str = ""


class WireChoice(Struct, frozen=True, kw_only=True):
    """One choice of a whole answer."""

    index: int
    message: WireMessage
    logprobs: WireLogprobs | None
    finish_reason: str


class ChatCompletion(Struct, frozen=True, kw_only=True):
    """A whole answer."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[WireChoice]
    usage: CompletionUsage
    system_fingerprint: None = None


def to_chat_completion(answer: Answer, call: Call) -> ChatCompletion:
    """The whole answer to that call."""
    return ChatCompletion(
        id=_id(call),
        created=call.created,
        model=call.model,
        choices=[_to_choice(choice) for choice in answer.choices],
        usage=to_usage(answer.usage),
    )


class ChatFrames:
    """The chunks of one answer. Remembers which choices have been opened with a role."""

    def __init__(self, call: Call) -> None:
        head = _encode(
            {
                "id": _id(call),
                "object": "chat.completion.chunk",
                "created": call.created,
                "model": call.model,
                "system_fingerprint": None,
            }
        )
        # A token costs three joins and one string to escape: everything else is written once.
        self._head = head.removesuffix(b"}") + b',"choices":['
        self._tail = b'],"usage":null}' if call.include_usage else b"]}"
        self._wants_usage = call.include_usage
        self._opened: set[int] = set()

    def text(self, delta: TextDelta) -> bytes:
        """New text; a delta of neither text nor logprobs (held back text) is no chunk."""
        if not delta.text and not delta.logprobs:
            return b""
        logprobs = _encode(_to_logprobs(delta.logprobs)) if delta.logprobs else b"null"
        piece = b'{"%b":%b}' % (_FIELDS[delta.channel], _encode(delta.text))
        return self._chunk(delta.index, piece, logprobs=logprobs)

    def tool_call(self, delta: ToolCallDelta) -> bytes:
        """A piece of a tool call; the first one sent has id, type, name and no arguments yet."""
        chunks = b""
        if delta.id:
            function = {"name": delta.name, "arguments": ""}
            chunks = self._call(delta, {"id": delta.id, "type": "function", "function": function})
        if delta.arguments:
            chunks += self._call(delta, {"function": {"arguments": delta.arguments}})
        return chunks

    def finish(self, choice: ChoiceFinished) -> bytes:
        """The end of one choice."""
        return self._chunk(choice.index, b"{}", finish_reason=_encode(choice.finish_reason))

    def end(self, usage: Usage) -> bytes:
        """The end of the stream, after a chunk of usage for those who asked for it."""
        if not self._wants_usage:
            return DONE
        return frame(b'%b],"usage":%b}' % (self._head, _encode(to_usage(usage)))) + DONE

    def fail(self, error: HisarError) -> bytes:
        """The end of a stream in which something went wrong."""
        return to_ending(error)

    def _call(self, delta: ToolCallDelta, fields: dict[str, Any]) -> bytes:
        piece = {"index": delta.call_index, **fields}
        return self._chunk(delta.index, _encode({"tool_calls": [piece]}))

    def _chunk(
        self, index: int, delta: bytes, logprobs: bytes = b"null", finish_reason: bytes = b"null"
    ) -> bytes:
        chunk = b'data: %b{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":%b}%b\n\n' % (
            self._head,
            index,
            delta,
            logprobs,
            finish_reason,
            self._tail,
        )
        if index in self._opened:
            return chunk
        self._opened.add(index)
        return self._chunk(index, b'{"role":"assistant","content":""}') + chunk


def _id(call: Call) -> str:
    return f"chatcmpl-{call.id}"


def _to_choice(choice: Choice) -> WireChoice:
    has_calls = bool(choice.tool_calls)
    return WireChoice(
        index=choice.index,
        message=WireMessage(
            role="assistant",
            content=None if has_calls and not choice.text else choice.text,
            refusal=None,
            tool_calls=[_to_tool_call(call) for call in choice.tool_calls],
            reasoning_content=choice.reasoning,
        ),
        logprobs=_to_logprobs(choice.logprobs) if choice.logprobs else None,
        finish_reason=choice.finish_reason,
    )


def _to_tool_call(call: ToolCall) -> WireToolCall:
    return WireToolCall(call.id, WireFunction(call.name, call.arguments))


def _to_logprobs(logprobs: tuple[ChosenLogprob, ...]) -> WireLogprobs:
    return WireLogprobs([to_chosen(logprob) for logprob in logprobs])
