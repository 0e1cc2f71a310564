"""What holds for tools in every dialect: how many, each name once, which may be asked for, and that
a result answers a call.
"""

from collections.abc import Iterable
from typing import Annotated, Final, Literal

from msgspec import Meta

from appliance.generation import Message, Tool, ToolChoice
from gateway.wire.schema import invalid_parameter

MAX_TOOLS: Final = 128

ToolName = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}\Z")]


def check_names(tools: Iterable[Tool], param: str = "tools") -> tuple[Tool, ...]:
    """The same tools. Raises RequestError (400) when two share a name."""
    checked = tuple(tools)
    if len({tool.name for tool in checked}) < len(checked):
        raise invalid_parameter(param, "expected names that differ from each other")
    return checked


def choose(
    mode: Literal["auto", "none", "required"], tools: tuple[Tool, ...], param: str
) -> ToolChoice:
    """A choice that names no tool; one can be required only where there is one."""
    if mode == "required" and not tools:
        raise invalid_parameter(param, "a call can be required only beside `tools`")
    return ToolChoice(mode=mode)


def choose_named(name: str, tools: tuple[Tool, ...], param: str) -> ToolChoice:
    """The choice of one tool, which must be among them."""
    if name not in {tool.name for tool in tools}:
        raise invalid_parameter(param, "expected the name of one of `tools`")
    return ToolChoice(mode="named", name=name)


def follow_calls(message: Message, called: set[str], param: str) -> None:
    """Note the calls that a message makes; refuse (400) the result of a call that nobody made.

    A call without a result is taken as it stands: people interrupt their tools.
    """
    called.update(call.id for call in message.tool_calls)
    if message.role == "tool" and message.tool_call_id not in called:
        raise invalid_parameter(param, "expected the id of a call that an earlier message makes")
