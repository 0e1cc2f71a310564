"""Tools and the choice among them, as OpenAI's chat completions and responses spell them.

Chat completions put a function inside of a tool; responses make the two one.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from appliance.generation import Tool, ToolChoice
from gateway.wire.json_schema import SchemaObject, to_arguments_text
from gateway.wire.tools import MAX_TOOLS, ToolName, check_names, choose, choose_named

Mode: TypeAlias = Literal["auto", "none", "required"]


class DescribedFunction(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function the model may call."""

    name: ToolName
    description: str | None = None
    parameters: SchemaObject | None = None
    strict: bool | None = None

    def to_tool(self, path: str) -> Tool:
        """The same function in our words; `path` is where it stands, for errors."""
        return Tool(
            name=self.name,
            description=self.description or "",
            parameters=to_arguments_text(self.parameters or {}, f"{path}.parameters"),
            strict=bool(self.strict),
        )


class ChatTool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool of chat completions: there are only functions."""

    type: Literal["function"]
    function: DescribedFunction

    def to_tool(self, path: str) -> Tool:
        """The same tool in our words."""
        return self.function.to_tool(f"{path}.function")


class ResponseTool(DescribedFunction, frozen=True, kw_only=True):
    """A tool of responses: there are only functions."""

    type: Literal["function"]


class NamedFunction(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function by its name alone."""

    name: str


class ChatNamedTool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The one function that chat completions must call."""

    type: Literal["function"]
    function: NamedFunction


class ResponseNamedTool(NamedFunction, frozen=True, kw_only=True):
    """The one function that a response must call."""

    type: Literal["function"]


ChatTools = Annotated[list[ChatTool], Meta(max_length=MAX_TOOLS)]
ResponseTools = Annotated[list[ResponseTool], Meta(max_length=MAX_TOOLS)]
ChatToolChoice: TypeAlias = Mode | ChatNamedTool
ResponseToolChoice: TypeAlias = Mode | ResponseNamedTool


def to_tools(tools: Sequence[ChatTool | ResponseTool] | None) -> tuple[Tool, ...]:
    """The tools in our words. Raises RequestError (400)."""
    return check_names(tool.to_tool(f"tools[{at}]") for at, tool in enumerate(tools or ()))


def to_tool_choice(
    choice: ChatToolChoice | ResponseToolChoice | None, tools: tuple[Tool, ...]
) -> ToolChoice:
    """Whether and which of these tools must be called. Raises RequestError (400)."""
    match choice:
        case ChatNamedTool(function=function):
            return choose_named(function.name, tools, "tool_choice.function.name")
        case ResponseNamedTool(name=name):
            return choose_named(name, tools, "tool_choice.name")
        case None:
            return ToolChoice()
        case _:
            return choose(choice, tools, "tool_choice")
