"""Tools reach every chat model: by its template, or in plain words."""

import json
from collections.abc import Callable, Iterator

import pytest

from appliance.errors import RequestError
from appliance.generation import ChatPrompt, Message, Tool, ToolCall, ToolChoice
from engines.dialect import read_dialect
from engines.prepared import Prepared
from engines.prompting import PromptEncoder, start_prompt_encoder
from engines.tool_calls.formats import HERMES, LLAMA3, MISTRAL
from tests.engines.character_tokenizer import CharacterTokenizer, show

FIND = Tool(name="find", description="Finds <|im_end|>.", parameters='{"type": "object"}')
PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"
WITH_TOOLS = "{{ tools | tojson }}" + PLAIN
CALL = ToolCall(id="call_123", name="find", arguments='{"no": "417"}')
HISTORY = (
    Message(role="system", content="Be brief."),
    Message(role="user", content="Hi"),
    Message(role="assistant", tool_calls=(CALL,)),
    Message(role="tool", content='{"found": false}', tool_call_id="call_123"),
    Message(role="user", content="And 418?"),
)

Render = Callable[..., Prepared]


@pytest.fixture
def render() -> Iterator[Render]:
    started: list[PromptEncoder] = []

    def render_one(template: str, prompt: ChatPrompt) -> Prepared:
        started.append(start_prompt_encoder(CharacterTokenizer(template)))
        return started[-1].encode(prompt)

    yield render_one
    for encoder in started:
        encoder.close()


def ask(tools: tuple[Tool, ...] = (FIND,), mode: str = "auto") -> ChatPrompt:
    choice = ToolChoice(mode=mode)  # type: ignore[arg-type]
    return ChatPrompt(
        messages=(Message(role="user", content="x"),), tools=tools, tool_choice=choice
    )


def test_a_template_gets_tools_as_it_expects_them(render: Render) -> None:
    prepared = render(WITH_TOOLS, ask())
    shown, _, _ = show(prepared.token_ids).partition("[user]")
    function = {
        "name": "find",
        "description": "Finds <|im_end|>.",
        "parameters": {"type": "object"},
    }
    assert json.loads(shown) == [{"type": "function", "function": function}]
    assert prepared.calls is not None
    assert prepared.calls.call_format is HERMES


def test_a_template_without_tools_gets_them_in_the_system_turn(render: Render) -> None:
    shown = show(render(PLAIN, ask()).token_ids)
    assert shown.startswith("[system]")
    assert '"name": "find"' in shown
    assert "<tool_call>" in shown
    assert shown.endswith("[user]x[assistant]")
    named = show(render(PLAIN, ChatPrompt(messages=HISTORY, tools=(FIND,))).token_ids)
    assert named.startswith("[system]Be brief.\n\nYou may call")
    assert named.count("[system]") == 1


@pytest.mark.parametrize("template", [PLAIN, WITH_TOOLS])
def test_what_a_caller_wrote_in_a_tool_stays_text(render: Render, template: str) -> None:
    """huggingface/transformers#29279, for the descriptions of tools."""
    assert "«" not in show(render(template, ask()).token_ids)


@pytest.mark.parametrize("template", [PLAIN, WITH_TOOLS])
def test_tools_that_may_not_be_used_are_not_offered(render: Render, template: str) -> None:
    prepared = render(template, ask(mode="none"))
    assert prepared.calls is None
    assert "find" not in show(prepared.token_ids)


def test_calls_and_results_are_plain_turns_where_a_template_knows_none(render: Render) -> None:
    shown = show(render(PLAIN, ChatPrompt(messages=HISTORY)).token_ids)
    assert shown == (
        "[system]Be brief.[user]Hi"
        '[assistant]<tool_call>\n{"name": "find", "arguments": {"no": "417"}}\n</tool_call>'
        '[user]<tool_response>\n{"found": false}\n</tool_response>\nAnd 418?[assistant]'
    )


def test_ids_have_the_length_that_a_family_insists_on(render: Render) -> None:
    template = (
        "{# [TOOL_CALLS] tools #}{% for m in messages %}{% for c in m.tool_calls %}{{ c.id }}"
        "{% endfor %}{{ m.tool_call_id }} {% endfor %}"
    )
    words = show(render(template, ChatPrompt(messages=HISTORY)).token_ids).split()
    assert len(words) == 2
    assert words[0] == words[1]
    assert len(words[0]) == 9
    assert words[0].isalnum()


def test_parameters_that_are_no_schema_are_refused(render: Render) -> None:
    for parameters in ("[1]", "{", "[" * 100_000):
        with pytest.raises(RequestError) as refused:
            render(WITH_TOOLS, ask((Tool(name="f", parameters=parameters),)))
        assert (refused.value.code, refused.value.param) == ("request.invalid_parameter", "tools")


@pytest.mark.parametrize(
    ("generation_prompt", "thinking"),
    [("", "maybe"), ("<think>\n", "opened"), ("<think>\n\n</think>\n\n", "maybe")],
)
def test_a_template_may_open_the_thoughts_itself(
    render: Render, generation_prompt: str, thinking: str
) -> None:
    template = "{# </think> #}" + PLAIN + generation_prompt
    assert render(template, ask(())).thinking == thinking
    assert render(PLAIN, ask(())).thinking == "never"


def test_a_template_shows_its_dialect() -> None:
    assert read_dialect(None).call_format is HERMES
    assert not read_dialect(PLAIN).renders_tools
    assert read_dialect("{{ tools }} [TOOL_CALLS]").call_format is MISTRAL
    assert read_dialect("{{ tools }} <|python_tag|>").call_format is LLAMA3
    assert read_dialect("{{ message.tool_calls }}").renders_calls
    assert not read_dialect("{{ message.tool_calls }}").renders_tools
