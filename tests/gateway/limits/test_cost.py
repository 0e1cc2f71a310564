"""What a prompt is taken to cost before it is tokenised."""

from appliance.generation import ChatPrompt, Message, TextPrompt, TokenPrompt, ToolCall
from gateway.limits.cost import estimate_prompt_tokens


def test_text_costs_a_token_for_three_bytes() -> None:
    assert estimate_prompt_tokens((TextPrompt(text="abcd"),)) == 2
    assert estimate_prompt_tokens((TextPrompt(text="ğüş"),)) == 2


def test_token_ids_cost_themselves() -> None:
    assert estimate_prompt_tokens((TokenPrompt(token_ids=(1, 2, 3)), TextPrompt(text="abc"))) == 4


def test_a_message_costs_its_frame_its_text_and_its_calls() -> None:
    call = ToolCall(id="1", name="f", arguments="{  }  ")
    messages = (
        Message(role="user", content="abc"),
        Message(role="assistant", tool_calls=(call,)),
    )
    assert estimate_prompt_tokens((ChatPrompt(messages=messages),)) == 8 + 1 + 8 + 1 + 2
