"""How an answer looks as Anthropic's message object."""

from typing import Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

from appliance.generation import ChoiceFinished, FinishReason, Usage
from gateway.wire.call import Call
from gateway.wire.parts import Part, PartsAnswer

_REASONS: Final = {
    FinishReason.STOP: "end_turn",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.TOOL_CALLS: "tool_use",
    FinishReason.CONTENT_FILTER: "refusal",
}
_NO_INPUT: Final = Raw(b"{}")


class TextBlock(Struct, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """What the model said."""

    text: str = ""


class ThinkingBlock(Struct, frozen=True, kw_only=True, tag_field="type", tag="thinking"):
    """What the model thought before; nothing signs it."""

    thinking: str = ""
    signature: str = ""


class ToolUseBlock(Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_use"):
    """A call the model wants made. `input` is empty where its JSON is cut or broken."""

    id: str
    name: str
    input: Raw = _NO_INPUT


Block: TypeAlias = TextBlock | ThinkingBlock | ToolUseBlock


class MessageUsage(Struct, frozen=True, kw_only=True):
    """What a request consumed: the three kinds of input tokens add up to the prompt."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int
    output_tokens: int


class WireMessage(Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """A message of the assistant, complete or just begun."""

    id: str
    role: str = "assistant"
    model: str
    content: tuple[Block, ...] = ()
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: MessageUsage


def to_message(answer: PartsAnswer, call: Call) -> WireMessage:
    """The whole answer to that call."""
    return WireMessage(
        id=_id(call),
        model=call.model,
        content=tuple(_to_block(part) for part in answer.parts),
        stop_reason=to_stop_reason(answer.finished),
        stop_sequence=answer.finished.stop,
        usage=to_usage(answer.usage),
    )


def to_begun(call: Call) -> WireMessage:
    """A message that has just begun: what it consumes is told at its end."""
    return WireMessage(id=_id(call), model=call.model, usage=to_usage(Usage()))


def to_empty_block(part: Part) -> Block:
    """A block that has just begun."""
    if part.kind == "tool_call":
        return ToolUseBlock(id=part.id, name=part.name)
    return ThinkingBlock() if part.kind == "reasoning" else TextBlock()


def to_stop_reason(choice: ChoiceFinished) -> str:
    """Why it ended, in Anthropic's words."""
    return "stop_sequence" if choice.stop is not None else _REASONS[choice.finish_reason]


def to_usage(usage: Usage) -> MessageUsage:
    """Usage in Anthropic's words."""
    return MessageUsage(
        input_tokens=usage.prompt_tokens - usage.cached_tokens,
        cache_read_input_tokens=usage.cached_tokens,
        output_tokens=usage.completion_tokens,
    )


def _id(call: Call) -> str:
    return f"msg_{call.id}"


def _to_block(part: Part) -> Block:
    if part.kind == "tool_call":
        return ToolUseBlock(id=part.id, name=part.name, input=_to_input(part.text))
    if part.kind == "reasoning":
        return ThinkingBlock(thinking=part.text)
    return TextBlock(text=part.text)


def _to_input(arguments: str) -> Raw:
    try:
        is_object = isinstance(msgspec.json.decode(arguments), dict)
    except (msgspec.DecodeError, RecursionError):
        return _NO_INPUT
    return Raw(arguments.encode()) if is_object else _NO_INPUT
