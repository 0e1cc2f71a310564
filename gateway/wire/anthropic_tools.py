"""Tools and the choice among them, as Anthropic's messages spell them."""

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from appliance.generation import Tool, ToolChoice
from gateway.wire.anthropic_turns import CacheControl
from gateway.wire.json_schema import SchemaObject, to_arguments_text
from gateway.wire.tools import MAX_TOOLS, check_names, choose, choose_named

EXPECTED: Final = {
    "tools[].type": "expected `custom`: there are no tools of the box's own",
    "tool_choice.type": "expected one of auto, any, tool, none",
}

ToolName = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,128}\Z")]


class AnthropicTool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function the model may call."""

    name: ToolName
    input_schema: SchemaObject
    description: str | None = None
    strict: bool | None = None
    type: Literal["custom"] | None = None
    cache_control: CacheControl | None = None

    def to_tool(self, path: str) -> Tool:
        """The same tool in our words; `path` is where it stands, for errors."""
        return Tool(
            name=self.name,
            description=self.description or "",
            parameters=to_arguments_text(self.input_schema, f"{path}.input_schema"),
            strict=bool(self.strict),
        )


class _Choice(Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    disable_parallel_tool_use: bool | None = None


class AutoChoice(_Choice, frozen=True, kw_only=True, tag="auto"):
    """The model decides."""


class AnyChoice(_Choice, frozen=True, kw_only=True, tag="any"):
    """Some tool must be called."""


class OneChoice(_Choice, frozen=True, kw_only=True, tag="tool"):
    """This tool must be called."""

    name: str


class NoneChoice(_Choice, frozen=True, kw_only=True, tag="none"):
    """No tool may be called."""


Choice: TypeAlias = AutoChoice | AnyChoice | OneChoice | NoneChoice
Tools = Annotated[list[AnthropicTool], Meta(max_length=MAX_TOOLS)]


def to_tools(tools: list[AnthropicTool] | None) -> tuple[Tool, ...]:
    """The tools in our words. Raises RequestError (400)."""
    return check_names(tool.to_tool(f"tools[{at}]") for at, tool in enumerate(tools or ()))


def to_tool_choice(choice: Choice | None, tools: tuple[Tool, ...]) -> ToolChoice:
    """Whether and which of these tools must be called. Raises RequestError (400)."""
    match choice:
        case OneChoice(name=name):
            return choose_named(name, tools, "tool_choice.name")
        case AnyChoice():
            return choose("required", tools, "tool_choice")
        case NoneChoice():
            return choose("none", tools, "tool_choice")
        case _:
            return ToolChoice()
