"""Which tools and schemas a client may send, in OpenAI's spelling of chat completions."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.errors import RequestError
from appliance.generation import OutputFormat, Tool, ToolChoice
from gateway.wire.json_schema import (
    MAX_SCHEMA_BYTES,
    MAX_SCHEMA_DEPTH,
    to_arguments_text,
    to_schema_text,
)
from gateway.wire.openai_formats import ChatFormat
from gateway.wire.openai_tools import (
    ChatNamedTool,
    ChatTool,
    ChatToolChoice,
    ChatTools,
    to_tool_choice,
    to_tools,
)
from gateway.wire.tools import MAX_TOOLS


def tool(name: str = "find", **function: Any) -> ChatTool:
    return msgspec.convert({"type": "function", "function": {"name": name} | function}, ChatTool)


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth - 1):
        schema = {"items": schema}
    return schema


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), json_values))
def test_a_schemas_text_holds_all_of_it_in_its_order(schema: dict[str, Any]) -> None:
    read = json.loads(to_schema_text(schema, "schema"))
    assert read == schema
    assert list(read) == list(schema)


def test_a_schema_is_bounded_in_depth_and_size() -> None:
    to_schema_text(nested(MAX_SCHEMA_DEPTH), "schema")
    with pytest.raises(RequestError, match="nested levels"):
        to_schema_text(nested(MAX_SCHEMA_DEPTH + 1), "schema")
    fitting = MAX_SCHEMA_BYTES - len('{"title":""}')
    to_schema_text({"title": "x" * fitting}, "schema")
    with pytest.raises(RequestError, match="bytes") as caught:
        to_schema_text({"title": "ğ" * fitting}, "schema")
    assert caught.value.param == "schema"


def test_arguments_are_always_an_object() -> None:
    assert to_arguments_text({}, "p") == '{"type":"object"}'
    assert to_arguments_text({"properties": {}}, "p") == '{"type":"object","properties":{}}'
    for kind in ("string", ["object", "null"], None):
        with pytest.raises(RequestError):
            to_arguments_text({"type": kind}, "p")


def test_a_function_may_leave_out_all_but_its_name() -> None:
    nothing: dict[str, Any] = {"description": None, "parameters": None, "strict": None}
    assert to_tools([tool(), tool("list", **nothing)]) == (Tool(name="find"), Tool(name="list"))
    assert to_tools(None) == to_tools([]) == ()
    full = tool(description="Finds.", parameters={"properties": {}}, strict=True)
    assert to_tools([full]) == (
        Tool(
            name="find",
            description="Finds.",
            parameters='{"type":"object","properties":{}}',
            strict=True,
        ),
    )


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ğ", "x" * 65, "a\n"])
def test_a_functions_name_is_short_and_plain(name: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        tool(name)


def test_there_are_not_too_many_tools_and_no_two_of_one_name() -> None:
    with pytest.raises(RequestError) as caught:
        to_tools([tool(), tool()])
    assert caught.value.param == "tools"
    wire = [{"type": "function", "function": {"name": f"f{at}"}} for at in range(MAX_TOOLS + 1)]
    assert len(to_tools(msgspec.convert(wire[1:], ChatTools))) == MAX_TOOLS
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wire, ChatTools)


def test_a_bad_schema_is_named_by_its_place() -> None:
    with pytest.raises(RequestError) as caught:
        to_tools([tool(), tool("list", parameters={"type": "array"})])
    assert caught.value.param == "tools[1].function.parameters"


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        (None, ToolChoice()),
        ("auto", ToolChoice()),
        ("none", ToolChoice(mode="none")),
        ("required", ToolChoice(mode="required")),
        (
            {"type": "function", "function": {"name": "find"}},
            ToolChoice(mode="named", name="find"),
        ),
    ],
)
def test_the_choice_among_tools(choice: Any, chosen: ToolChoice) -> None:
    wire = msgspec.convert(choice, ChatToolChoice | None)
    assert to_tool_choice(wire, (Tool(name="find"),)) == chosen


def test_only_what_is_there_can_be_required() -> None:
    assert to_tool_choice("none", ()) == ToolChoice(mode="none")
    with pytest.raises(RequestError) as caught:
        to_tool_choice("required", ())
    assert caught.value.param == "tool_choice"
    named = msgspec.convert({"type": "function", "function": {"name": "x"}}, ChatNamedTool)
    with pytest.raises(RequestError) as caught:
        to_tool_choice(named, (Tool(name="find"),))
    assert caught.value.param == "tool_choice.function.name"


@pytest.mark.parametrize(
    ("wire", "output_format"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, OutputFormat(kind="json_object")),
        (
            {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "array"}}},
            OutputFormat(kind="json_schema", text='{"type":"array"}'),
        ),
    ],
)
def test_what_an_answer_must_look_like(
    wire: dict[str, Any], output_format: OutputFormat | None
) -> None:
    parsed = msgspec.convert(wire, ChatFormat)
    assert parsed.to_output_format("response_format") == output_format


@pytest.mark.parametrize(
    "schema",
    [
        {"name": "a"},
        {"name": "a", "schema": True},
        {"name": "a", "schema": []},
        {"name": "a b", "schema": {}},
        {"schema": {}},
    ],
)
def test_a_schema_is_an_object_with_a_plain_name(schema: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"type": "json_schema", "json_schema": schema}, ChatFormat)
