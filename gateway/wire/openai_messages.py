"""Which chat messages are understood, and what each becomes."""

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from appliance.generation import Message, ToolCall
from gateway.wire.schema import Unsupported, missing_parameter, take_unsupported
from gateway.wire.tools import follow_calls

# What to say where a tag names something unknown.
EXPECTED: Final = {
    "messages[].role": "expected one of system, developer, user, assistant, tool",
    "messages[].content[].type": "expected `text`; pictures, sound and files are not understood",
    "messages[].tool_calls[].type": "expected `function`",
}

_UNSUPPORTED: Final = {
    "audio": Unsupported("messages are text"),
    "annotations": Unsupported("messages are text", ([],)),
    "refusal": Unsupported("send an earlier refusal as `content`"),
    "function_call": Unsupported("send `tool_calls`"),
}
# Clients that write out every field of their own message type send these empty.
_OFTEN_EMPTY: Final = ("name", "tool_calls", "tool_call_id")

Name = Annotated[str, Meta(min_length=1, max_length=256)]


class TextPart(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="text", forbid_unknown_fields=True
):
    """The only kind of content part there is."""

    text: str


Content: TypeAlias = str | Annotated[list[TextPart], Meta(min_length=1)]


class CalledFunction(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The function of a tool call."""

    name: Name
    arguments: str


class FunctionCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call that the assistant made in an earlier turn."""

    id: Name
    function: CalledFunction
    type: Literal["function"] = "function"

    def to_tool_call(self) -> ToolCall:
        """The same call in our words."""
        return ToolCall(id=self.id, name=self.function.name, arguments=self.function.arguments)


class SystemTurn(
    Struct, frozen=True, kw_only=True, tag_field="role", tag="system", forbid_unknown_fields=True
):
    """Instructions."""

    content: Content
    name: Name | None = None

    def to_message(self, path: str) -> Message:  # noqa: ARG002
        """The same turn in our words; `path` is where it stands, for errors."""
        return Message(role="system", content=_join(self.content), name=self.name)


class DeveloperTurn(SystemTurn, frozen=True, kw_only=True, tag="developer"):
    """Instructions, by their newer name: models know them as `system`."""


class UserTurn(
    Struct, frozen=True, kw_only=True, tag_field="role", tag="user", forbid_unknown_fields=True
):
    """What the user said."""

    content: Content
    name: Name | None = None

    def to_message(self, path: str) -> Message:  # noqa: ARG002
        """The same turn in our words."""
        return Message(role="user", content=_join(self.content), name=self.name)


class AssistantTurn(
    Struct, frozen=True, kw_only=True, tag_field="role", tag="assistant", forbid_unknown_fields=True
):
    """What the model said, the calls it made, or both.

    `reasoning_content` is left out: what a model thought in an earlier turn is no part of a later
    prompt.
    """

    content: Content | None = None
    name: Name | None = None
    tool_calls: tuple[FunctionCall, ...] = ()
    reasoning_content: str | None = None

    def to_message(self, path: str) -> Message:
        """The same turn in our words. Empty content beside tool calls is no content."""
        if self.content is None and not self.tool_calls:
            raise missing_parameter(f"{path}.content")
        content = None if self.content is None else _join(self.content)
        return Message(
            role="assistant",
            content=content or None if self.tool_calls else content,
            name=self.name,
            tool_calls=tuple(call.to_tool_call() for call in self.tool_calls),
        )


class ToolTurn(
    Struct, frozen=True, kw_only=True, tag_field="role", tag="tool", forbid_unknown_fields=True
):
    """What a tool answered."""

    content: Content
    tool_call_id: Name
    name: Name | None = None

    def to_message(self, path: str) -> Message:  # noqa: ARG002
        """The same turn in our words."""
        return Message(
            role="tool",
            content=_join(self.content),
            name=self.name,
            tool_call_id=self.tool_call_id,
        )


Turn: TypeAlias = SystemTurn | DeveloperTurn | UserTurn | AssistantTurn | ToolTurn


def tidy_messages(messages: object) -> None:
    """Take out, in place, what asks for nothing; refuse what is unsupported (400)."""
    for at, fields in enumerate(messages if isinstance(messages, list) else ()):
        if not isinstance(fields, dict):
            continue
        take_unsupported(fields, _UNSUPPORTED, f"messages[{at}].")
        for name in _OFTEN_EMPTY:
            if name in fields and fields[name] in (None, []):
                del fields[name]


def to_messages(turns: list[Turn]) -> tuple[Message, ...]:
    """The conversation in our words. Raises RequestError (400)."""
    messages = []
    called: set[str] = set()
    for at, turn in enumerate(turns):
        message = turn.to_message(f"messages[{at}]")
        follow_calls(message, called, f"messages[{at}].tool_call_id")
        messages.append(message)
    return tuple(messages)


def _join(content: Content) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)
