"""Which input items of a response are understood, and what messages they become.

The model's own calls follow its text: they make one turn with it. A `reasoning` item is left out:
what a model thought in an earlier turn is no part of a later prompt.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from appliance.generation import Message, ToolCall
from gateway.wire.tools import follow_calls

# What to say where a tag names something unknown.
EXPECTED: Final = {
    "input[].type": "expected message, function_call, function_call_output or reasoning",
    "input[].role": "expected one of system, developer, user, assistant",
    "input[].status": "expected in_progress, completed or incomplete",
    "input[].phase": "expected commentary or final_answer",
    "input[].content[].type": "expected text; pictures and files are not understood",
    "input[].output[].type": "expected `input_text`; pictures and files are not understood",
}

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Status: TypeAlias = Literal["in_progress", "completed", "incomplete"]


class InputText(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="type",
    tag="input_text",
    forbid_unknown_fields=True,
):
    """Text for the model."""

    text: str


class OutputText(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="type",
    tag="output_text",
    forbid_unknown_fields=True,
):
    """Text the model wrote, as an answer holds it."""

    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


Content: TypeAlias = str | Annotated[list[InputText | OutputText], Meta(min_length=1)]
Output: TypeAlias = str | list[InputText]


class MessageItem(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="message", forbid_unknown_fields=True
):
    """What somebody said. `id`, `status` and `phase` are those of an answer that is sent back."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    id: str | None = None
    status: Status | None = None
    phase: Literal["commentary", "final_answer"] | None = None

    def to_message(self) -> Message:
        """The same in our words."""
        return Message(
            role="system" if self.role == "developer" else self.role, content=_join(self.content)
        )


class CallItem(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="type",
    tag="function_call",
    forbid_unknown_fields=True,
):
    """A call the model made."""

    call_id: Name
    name: Name
    arguments: str
    id: str | None = None
    status: Status | None = None

    def to_message(self) -> Message:
        """The same in our words."""
        call = ToolCall(id=self.call_id, name=self.name, arguments=self.arguments)
        return Message(role="assistant", tool_calls=(call,))


class CallOutputItem(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="type",
    tag="function_call_output",
    forbid_unknown_fields=True,
):
    """What a called function answered."""

    call_id: Name
    output: Output
    id: str | None = None
    status: Status | None = None

    def to_message(self) -> Message:
        """The same in our words."""
        return Message(role="tool", content=_join(self.output), tool_call_id=self.call_id)


class ReasoningItem(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning", forbid_unknown_fields=True
):
    """What the model thought in an earlier turn."""

    id: str | None = None
    summary: list[Any] | None = None
    content: list[Any] | None = None
    encrypted_content: str | None = None
    status: Status | None = None


Item: TypeAlias = MessageItem | CallItem | CallOutputItem | ReasoningItem


def tidy_items(items: object) -> None:
    """Name the type of messages that come without, and take out nulls, which ask for nothing."""
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict):
            for name in [name for name, value in item.items() if value is None]:
                del item[name]
            if "role" in item:
                item.setdefault("type", "message")


def to_messages(items: str | list[Item]) -> tuple[Message, ...]:
    """The conversation in our words. Raises RequestError (400)."""
    if isinstance(items, str):
        return (Message(role="user", content=items),)
    turns: list[list[Message]] = []
    called: set[str] = set()
    for at, item in enumerate(items):
        if isinstance(item, ReasoningItem):
            continue
        message = item.to_message()
        follow_calls(message, called, f"input[{at}].call_id")
        if isinstance(item, CallItem) and turns and turns[-1][0].role == "assistant":
            turns[-1].append(message)
        else:
            turns.append([message])
    return tuple(map(_join_calls, turns))


def _join_calls(turn: list[Message]) -> Message:
    """A message and the calls that follow it as one."""
    first, *calls = turn
    if not calls:
        return first
    return Message(
        role="assistant",
        content=first.content or None,
        tool_calls=tuple(call for message in turn for call in message.tool_calls),
    )


def _join(content: str | list[InputText | OutputText] | list[InputText]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)
