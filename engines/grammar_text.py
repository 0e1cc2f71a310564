"""What an answer must look like, as the text of one llguidance grammar.

A grammar is Lark with llguidance's extensions (`%json`, `[lazy]`, `<[id]>` for a control token).
It covers the whole answer: a think block where the model may write one, then tool calls in the
family's form, then what the output format asks for, or any text.

Space is bounded everywhere: a model that has only space left to choose would never end.
"""

import json
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from appliance.errors import RequestError
from appliance.generation import ChatPrompt, OutputFormat, Tool
from engines.reasoning import THINK_END, THINK_START, Thinking
from engines.tool_calls.formats import CallFormat
from engines.tool_calls.offering import parse_parameters

_SPACE: Final = r"[ \t\n\r]{0,8}"
_ANY: Final = r"/(.|\n)*/"
_CALL_ID: Final = "[a-zA-Z0-9]{9}"
_SPACES: Final = r"SPACE: /[ \t\n\r]{1,8}/"


class Calls(Struct, frozen=True, kw_only=True):
    """The calls an answer may or must hold."""

    call_format: CallFormat
    tools: tuple[Tool, ...]
    is_required: bool
    takes_many: bool


class AnswerShape(Struct, frozen=True, kw_only=True):
    """Everything that the grammar of an answer depends on."""

    thinking: Thinking = "never"
    calls: Calls | None = None
    output_format: OutputFormat | None = None

    @property
    def is_free(self) -> bool:
        """Any text will do: no grammar is needed."""
        return self.output_format is None and (self.calls is None or not _is_enforced(self.calls))


def to_calls(prompt: ChatPrompt, call_format: CallFormat) -> Calls | None:
    """The calls that a prompt allows; None where it offers no tools.

    Raises RequestError `request.invalid_parameter` where the named function is none of them.
    """
    choice = prompt.tool_choice
    if not prompt.tools or choice.mode == "none":
        return None
    tools = prompt.tools
    if choice.mode == "named":
        tools = tuple(tool for tool in tools if tool.name == choice.name)
        if not tools:
            raise RequestError(
                "request.invalid_parameter",
                "tool_choice names a function that is not among the tools",
                status=400,
                param="tool_choice",
            )
    return Calls(
        call_format=call_format,
        tools=tools,
        is_required=choice.mode in {"required", "named"},
        takes_many=prompt.parallel_tool_calls and choice.mode != "named",
    )


def write_grammar(shape: AnswerShape, control_ids: Mapping[str, int]) -> str:
    """The grammar's text, for a vocabulary with these control tokens."""
    writer = _Writer(control_ids)
    start = f"start: {writer.think(shape.thinking)} answer"
    lark = "\n".join(["%llguidance {}", start, *writer.rules(shape), _SPACES])
    grammars = [{"name": "whole", "lark_grammar": lark}]
    if shape.output_format is not None and shape.output_format.kind == "grammar":
        grammars.append({"name": "wanted", "lark_grammar": shape.output_format.text})
    return json.dumps({"grammars": grammars})


class _Writer:
    """Writes rules; a marker is a control token where the vocabulary has it as one."""

    def __init__(self, control_ids: Mapping[str, int]) -> None:
        self._control_ids = control_ids

    def think(self, thinking: Thinking) -> str:
        """What may stand before the answer."""
        if thinking == "never":
            return ""
        if thinking == "opened":
            return "think_end SPACE?"
        return f"({self._marker(THINK_START)} think_end SPACE?)?"

    def rules(self, shape: AnswerShape) -> list[str]:
        """The rules of the answer and of all it is made of."""
        rules = self._text_rules(shape.thinking)
        content = "ANY"
        if shape.output_format is not None:
            content = "wanted"
            rules += _wanted_rules(shape.output_format)
        if shape.calls is None:
            return [*rules, f"answer: {content}"]
        return [*rules, *self._answer_rules(shape.calls, content), *self._call_rules(shape.calls)]

    def _text_rules(self, thinking: Thinking) -> list[str]:
        """Any text; of a model that thinks, any in which no think block opens."""
        if thinking == "never":
            return [f"ANY: {_ANY}"]
        think_end = self._until("think_end", THINK_END, text="THOUGHTS")
        block = rf"/(.|\n)*{THINK_START}(.|\n)*/"
        return [f"THOUGHTS: {_ANY}", think_end, f"ANY: {_ANY} & ~{block}"]

    def _answer_rules(self, calls: Calls, content: str) -> list[str]:
        """Calls and nothing else; or calls or `content`; or calls anywhere in any text."""
        family = calls.call_format
        repeated = "*" if calls.takes_many else "?"
        block = [f"block: {self._opening(family)} rest", f"rest: {self._rest(calls)}"]
        has_blocks = calls.takes_many and not family.separator
        only_calls = f"SPACE? block {'(SPACE? block)*' if has_blocks else ''}"
        if calls.is_required:
            return [f"answer: {only_calls}", *block]
        if family.opens_bare and content == "ANY":
            return [f"answer: {only_calls} | UNBRACED?", *block, r"UNBRACED: /[^{ \t\n\r](.|\n)*/"]
        if content != "ANY":
            return [f"answer: {only_calls} | {content}", *block]
        head = self._until("head", family.opening)
        return [f"answer: (head rest){repeated} ANY", head, block[1]]

    def _opening(self, family: CallFormat) -> str:
        if not family.opens_bare:
            return self._marker(family.opening)
        return f"{self._marker(family.opening)}?" if family.opening in self._control_ids else ""

    def _rest(self, calls: Calls) -> str:
        """What follows the opening of a block."""
        family = calls.call_format
        separator, closing = _quote(family.separator), family.closing
        more = f"(SPACE? {separator} SPACE? call)*" if separator and calls.takes_many else ""
        prefix = f"SPACE? {_quote(family.prefix)}" if family.prefix else ""
        return f"{prefix} SPACE? call {more} {f'SPACE? {self._marker(closing)}' if closing else ''}"

    def _call_rules(self, calls: Calls) -> list[str]:
        """A rule for each function, so that a schema's references keep their root."""
        numbers = range(len(calls.tools))
        rules = [f"call: {' | '.join(f'call_{number}' for number in numbers)}"]
        for number, tool in zip(numbers, calls.tools, strict=True):
            rules.append(f"call_{number}: {self._call(calls.call_format, tool.name, number)}")
            schema = {"type": "object", **parse_parameters(tool)}
            rules.append(f"arguments_{number}: {_json_rule(schema, is_lenient=not tool.strict)}")
        return rules

    def _call(self, family: CallFormat, name: str, number: int) -> str:
        """A call of one function, around the rule of its arguments."""
        if family.arguments_marker:
            call_id = f"({self._marker(family.id_marker)} /{_CALL_ID}/)?"
            marker = self._marker(family.arguments_marker)
            return f"{_quote(name)} {call_id} {marker} SPACE? arguments_{number}"
        colon = 'SPACE? ":" SPACE?'
        named = f"{_json_quote('name')} {colon} {_json_quote(name)}"
        arguments = f"{_json_quote(family.arguments_key)} {colon} arguments_{number}"
        return f'"{{" SPACE? {named} SPACE? "," SPACE? {arguments} SPACE? "}}"'

    def _until(self, rule: str, marker: str, *, text: str = "ANY") -> str:
        """A rule for text up to and with the first occurrence of a marker."""
        lazy = "" if marker in self._control_ids else "[lazy]"
        return f"{rule}{lazy}: {text} {self._marker(marker)}"

    def _marker(self, marker: str) -> str:
        token_id = self._control_ids.get(marker)
        return _quote(marker) if token_id is None else f"<[{token_id}]>"


def _wanted_rules(output_format: OutputFormat) -> list[str]:
    match output_format.kind:
        case "json_object":
            return [f"wanted: {_json_rule({'type': 'object'})}"]
        case "json_schema":
            return [f"wanted: {_json_rule(_parse_schema(output_format.text))}"]
        case "regex":
            return ["wanted: WANTED", f"WANTED: /{_to_lark(output_format.text)}/"]
        case "grammar":
            return ["wanted: @wanted"]


def _json_rule(schema: dict[str, object], *, is_lenient: bool = False) -> str:
    """JSON of a schema. Its own `x-guidance` would loosen ours, so it is replaced."""
    options = {"whitespace_pattern": _SPACE, "whitespace_flexible": True, "lenient": is_lenient}
    return f"%json {json.dumps({**schema, 'x-guidance': options})}"


def _parse_schema(text: str) -> dict[str, object]:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        schema = None
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        raise refusal("the schema is no JSON object")
    return schema


def _to_lark(pattern: str) -> str:
    """A pattern for between Lark's slashes. It covers the whole answer in any case, so anchors at
    its ends say nothing new.
    """
    import llguidance

    pattern = pattern.removeprefix("^")
    if pattern.endswith("$") and not pattern.endswith("\\$"):
        pattern = pattern[:-1]
    return llguidance.regex_to_lark(pattern)


def _is_enforced(calls: Calls) -> bool:
    """Whether a grammar watches over the calls.

    Where a call needs no opening, any answer that starts with a brace would have to be one: that
    is asked of a model only where the calls are required or a function is strict.
    """
    is_strict = any(tool.strict for tool in calls.tools)
    return calls.is_required or is_strict or not calls.call_format.opens_bare


def _quote(text: str) -> str:
    """A Lark string."""
    return json.dumps(text) if text else ""


def _json_quote(text: str) -> str:
    """A JSON string as a Lark string."""
    return _quote(json.dumps(text))


def refusal(reason: str, param: str = "response_format") -> RequestError:
    """What a caller is told whose schema or grammar cannot be held to."""
    return RequestError(
        "request.grammar_refused",
        f"no answer can be held to this: {reason}",
        status=400,
        param=param,
    )
