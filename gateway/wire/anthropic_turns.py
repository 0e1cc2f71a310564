"""Which turns of Anthropic's messages are understood, and what messages they become.

Blocks of text are joined as they stand. A turn of the user that holds tool results becomes one
message for each result, and one for the text between them. Thoughts of earlier turns are left out:
they are no part of a later prompt. `is_error` is left to the result's own words, and
`cache_control` asks for what is done anyway: every prefix is cached.
"""

import json
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from appliance.generation import Message, ToolCall
from gateway.wire.schema import invalid_parameter, unsupported_parameter
from gateway.wire.tools import follow_calls

_BLOCKS: Final = "expected text, tool_use or tool_result; pictures and files are not understood"
_TEXT_ALONE: Final = "expected `text`; pictures and files are not understood"

# What to say where a tag names something unknown.
EXPECTED: Final = {
    "messages[].role": "expected one of user, assistant, system",
    "messages[].content[].type": _BLOCKS,
    "messages[].content[].content[].type": _TEXT_ALONE,
    "system[].type": _TEXT_ALONE,
}

Name = Annotated[str, Meta(min_length=1, max_length=256)]


class CacheControl(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A wish for what is done anyway."""

    type: str
    ttl: str | None = None


class Block(Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    """What all blocks may carry."""

    cache_control: CacheControl | None = None


class TextBlock(Block, frozen=True, kw_only=True, tag="text"):
    """Text."""

    text: str
    citations: Annotated[list[Any], Meta(max_length=0)] = []


class ToolUseBlock(Block, frozen=True, kw_only=True, tag="tool_use"):
    """A call the model made."""

    id: Name
    name: Name
    input: dict[str, Any]

    def to_tool_call(self) -> ToolCall:
        """The same call in our words."""
        arguments = json.dumps(self.input, ensure_ascii=False)
        return ToolCall(id=self.id, name=self.name, arguments=arguments)


class ToolResultBlock(Block, frozen=True, kw_only=True, tag="tool_result"):
    """What a tool answered."""

    tool_use_id: Name
    content: str | list[TextBlock] = ""
    is_error: bool = False

    def to_message(self) -> Message:
        """The same in our words."""
        return Message(role="tool", content=join_text(self.content), tool_call_id=self.tool_use_id)


class ThinkingBlock(Block, frozen=True, kw_only=True, tag="thinking"):
    """What the model thought in an earlier turn."""

    thinking: str
    signature: str = ""


class RedactedThinkingBlock(Block, frozen=True, kw_only=True, tag="redacted_thinking"):
    """The same, unreadable."""

    data: str


AnyBlock: TypeAlias = (
    TextBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock | RedactedThinkingBlock
)
Text: TypeAlias = str | list[TextBlock]


class Turn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one side said."""

    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[AnyBlock], Meta(min_length=1)]


def tidy_turns(turns: object) -> None:
    """Take nulls out of blocks, in place: clients that send an answer back write them out."""
    for turn in turns if isinstance(turns, list) else ():
        blocks = turn.get("content") if isinstance(turn, dict) else None
        for block in blocks if isinstance(blocks, list) else ():
            if isinstance(block, dict):
                for name in [name for name, value in block.items() if value is None]:
                    del block[name]


def to_messages(system: Text | None, turns: list[Turn]) -> tuple[Message, ...]:
    """The conversation in our words. Raises RequestError (400)."""
    if turns[-1].role == "assistant":
        raise unsupported_parameter("messages", "an answer that is begun for it is not continued")
    messages = [Message(role="system", content=join_text(system))] if system else []
    called: set[str] = set()
    for at, turn in enumerate(turns):
        path = f"messages[{at}]"
        for message in _to_messages(turn, path):
            follow_calls(message, called, f"{path}.content[].tool_use_id")
            messages.append(message)
    return tuple(messages)


def join_text(text: Text) -> str:
    """Text, whether it came in blocks or not."""
    return text if isinstance(text, str) else "".join(block.text for block in text)


def _to_messages(turn: Turn, path: str) -> list[Message]:
    if isinstance(turn.content, str):
        return [Message(role=turn.role, content=turn.content)]
    if turn.role == "assistant":
        return [_to_answer(turn.content, path)]
    return _to_questions(turn.role, turn.content, path)


def _to_answer(blocks: list[AnyBlock], path: str) -> Message:
    texts, calls = [], []
    for at, block in enumerate(blocks):
        match block:
            case TextBlock():
                texts.append(block.text)
            case ToolUseBlock():
                calls.append(block.to_tool_call())
            case ToolResultBlock():
                raise invalid_parameter(f"{path}.content[{at}]", "a result belongs to the user")
            case _:
                pass
    text = "".join(texts)
    return Message(
        role="assistant", content=text or None if calls else text, tool_calls=tuple(calls)
    )


def _to_questions(
    role: Literal["user", "system"], blocks: list[AnyBlock], path: str
) -> list[Message]:
    messages: list[Message] = []
    texts: list[str] = []
    for at, block in enumerate(blocks):
        match block:
            case TextBlock(text=text):
                texts.append(text)
            case ToolResultBlock() if role == "user":
                messages += _to_question(role, texts)
                messages.append(block.to_message())
            case _:
                raise invalid_parameter(f"{path}.content[{at}]", f"not a block of the {role}")
    return messages + _to_question(role, texts)


def _to_question(role: Literal["user", "system"], texts: list[str]) -> list[Message]:
    """One message of the texts, if there are any, which are used up."""
    if not texts:
        return []
    message = Message(role=role, content="".join(texts))
    texts.clear()
    return [message]
