"""How tools reach a model: as Hugging Face templates take them; or, where a template knows of no
tools, in plain words in the system turn, with calls and results as plain turns (the Hermes way).

https://huggingface.co/docs/transformers/chat_extras, https://github.com/NousResearch/Hermes-Function-Calling
"""

import json
from hashlib import blake2b
from typing import Final, cast

from msgspec.structs import replace

from appliance.errors import RequestError
from appliance.generation import Message, Tool, ToolCall
from engines.control_text import Json
from engines.tool_calls.formats import CallFormat

_INSTRUCTION: Final = """\
You may call functions to answer the user. Here are their signatures, each a JSON object:
<tools>
{tools}
</tools>
To call one, write its name and arguments as JSON inside of <tool_call> tags:
<tool_call>
{{"name": <name>, "arguments": <object of arguments>}}
</tool_call>"""
_RESULT_END: Final = "\n</tool_response>"


def to_template_tools(tools: tuple[Tool, ...]) -> list[Json]:
    """Tools as templates expect them."""
    return [_to_template_tool(tool) for tool in tools]


def _to_template_tool(tool: Tool) -> Json:
    function: dict[str, Json] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = cast("Json", parse_parameters(tool))
    return {"type": "function", "function": function}


def parse_parameters(tool: Tool) -> dict[str, object]:
    """A tool's JSON Schema. Raises RequestError `request.invalid_parameter`."""
    try:
        schema = json.loads(tool.parameters)
    except (ValueError, RecursionError):
        schema = None
    if not isinstance(schema, dict):
        raise RequestError(
            "request.invalid_parameter",
            "the parameters of a tool are no JSON Schema object",
            status=400,
            param="tools",
        )
    return schema


def with_template_ids(messages: tuple[Message, ...], call_format: CallFormat) -> list[Message]:
    """The messages with call ids of the length that the family's templates insist on."""
    length = call_format.template_id_length
    if not length:
        return list(messages)
    return [_with_ids(message, length) for message in messages]


def _with_ids(message: Message, length: int) -> Message:
    calls = tuple(replace(call, id=_short_id(call.id, length)) for call in message.tool_calls)
    answered = message.tool_call_id
    return replace(
        message,
        tool_calls=calls,
        tool_call_id=None if answered is None else _short_id(answered, length),
    )


def _short_id(call_id: str, length: int) -> str:
    return blake2b(call_id.encode(errors="replace")).hexdigest()[:length]


def with_tools_in_words(messages: list[Message], tools: tuple[Tool, ...]) -> list[Message]:
    """The conversation with the tools named in its system turn."""
    shown = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in to_template_tools(tools))
    instruction = _INSTRUCTION.format(tools=shown)
    if messages and messages[0].role == "system":
        content = f"{messages[0].content or ''}\n\n{instruction}".lstrip()
        return [replace(messages[0], content=content), *messages[1:]]
    return [Message(role="system", content=instruction), *messages]


def with_calls_in_words(messages: list[Message]) -> list[Message]:
    """Calls as text of the assistant; results, with what the user says next, as one user turn."""
    turns: list[list[Message]] = []
    for message in map(_with_call_as_text, messages):
        if turns and message.role == "user" and _is_result(turns[-1][-1]):
            turns[-1].append(message)
        else:
            turns.append([message])
    return list(map(_to_one, turns))


def _with_call_as_text(message: Message) -> Message:
    if message.role == "tool":
        content = f"<tool_response>\n{message.content or ''}{_RESULT_END}"
        return Message(role="user", content=content)
    if not message.tool_calls:
        return message
    parts = [message.content] if message.content else []
    content = "\n".join([*parts, *map(_to_text, message.tool_calls)])
    return replace(message, content=content, tool_calls=())


def _is_result(message: Message) -> bool:
    return message.role == "user" and (message.content or "").endswith(_RESULT_END)


def _to_one(messages: list[Message]) -> Message:
    if len(messages) == 1:
        return messages[0]
    return Message(role="user", content="\n".join(message.content or "" for message in messages))


def _to_text(call: ToolCall) -> str:
    name = json.dumps(call.name, ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {call.arguments}}}\n</tool_call>'
