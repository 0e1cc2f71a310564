"""What the guardrails are shown."""

import pytest

from appliance.errors import RequestError
from appliance.generation import (
    ChatPrompt,
    Message,
    OutputFormat,
    Prompt,
    TextPrompt,
    TokenPrompt,
    Tool,
    ToolCall,
)
from gateway.screening import check_input
from gateway.wire.call import Asked
from guardrails.screen import Screen

SCREEN = Screen(["secret"])
CALL = ToolCall(id="1", name="f", arguments='{"a": "secret"}')


def asked(*prompts: Prompt, form: OutputFormat | None = None) -> Asked:
    return Asked(model="m", prompts=prompts, output_format=form)


def chat(**message: object) -> ChatPrompt:
    return ChatPrompt(messages=(Message(role="user", **message),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "prompt",
    [
        TextPrompt(text="a Secret"),
        TextPrompt(text="x " * 20_000 + "secret"),
        chat(content="the secret"),
        chat(content="hi", name="secret"),
        chat(tool_calls=(CALL,)),
        chat(tool_calls=(ToolCall(id="1", name="f", arguments='{"a": "s\\u0065cret"}'),)),
        chat(tool_calls=(ToolCall(id="1", name="f", arguments='{"a": "so:\\nsecret"}'),)),
        ChatPrompt(messages=(), tools=(Tool(name="f", parameters='{"a": "\\u0073ecret"}'),)),
        ChatPrompt(messages=(), tools=(Tool(name="f", description="a secret"),)),
        ChatPrompt(messages=(), tools=(Tool(name="f", parameters='{"title": "secret"}'),)),
        TokenPrompt(token_ids=(1, 2)),
    ],
)
async def test_every_text_is_judged_and_what_cannot_be_is_refused(prompt: Prompt) -> None:
    with pytest.raises(RequestError) as refused:
        await check_input(SCREEN, asked(TextPrompt(text="fine"), prompt))
    assert refused.value.status == 400
    assert refused.value.should_retry is False
    assert "secret" not in str(refused.value).lower()


async def test_what_an_answer_must_look_like_is_judged() -> None:
    form = OutputFormat(kind="json_schema", text='{"const": "a secret"}')
    with pytest.raises(RequestError) as refused:
        await check_input(SCREEN, asked(TextPrompt(text="fine"), form=form))
    assert refused.value.code == "guardrails.blocked"


async def test_what_is_allowed_passes() -> None:
    fine = OutputFormat(kind="regex", text="yes|no")
    await check_input(SCREEN, asked(chat(content="secretary"), TextPrompt(text=""), form=fine))


async def test_a_box_without_guardrails_takes_token_ids() -> None:
    await check_input(Screen(), asked(TokenPrompt(token_ids=(1,))))
