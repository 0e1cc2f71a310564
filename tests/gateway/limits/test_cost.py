"""What a request is taken to cost before its prompts are tokenised."""

from appliance.generation import (
    ChatPrompt,
    Message,
    OutputFormat,
    Prompt,
    SamplingParams,
    StopConditions,
    TextPrompt,
    TokenPrompt,
    Tool,
    ToolCall,
)
from gateway.limits.cost import estimate_prompt_tokens, worst_case_tokens
from gateway.wire.call import Asked, Decoded

ABC = TextPrompt(text="abc")


def estimate(*prompts: Prompt) -> int:
    return estimate_prompt_tokens(Asked(model="m", prompts=prompts))


def generation(max_tokens: int | None, n: int = 1) -> Decoded:
    return Decoded(
        model="m",
        prompts=(ABC, ABC),
        sampling=SamplingParams(),
        stopping=StopConditions(max_tokens=max_tokens),
        n=n,
        stream=False,
        include_usage=False,
    )


def test_text_costs_a_token_for_three_bytes() -> None:
    assert estimate(TextPrompt(text="abcd")) == 2
    assert estimate(TextPrompt(text="ğüş")) == 2


def test_token_ids_cost_themselves() -> None:
    assert estimate(TokenPrompt(token_ids=(1, 2, 3)), ABC) == 4


def test_a_message_costs_its_frame_its_text_and_its_calls() -> None:
    call = ToolCall(id="1", name="f", arguments="{  }  ")
    messages = (
        Message(role="user", content="abc"),
        Message(role="assistant", tool_calls=(call,)),
    )
    assert estimate(ChatPrompt(messages=messages)) == 8 + 1 + 8 + 1 + 2


def test_tools_and_what_an_answer_must_look_like_cost_their_text() -> None:
    tool = Tool(name="fin", description="finds.", parameters='{"a":1}')
    assert estimate(ChatPrompt(messages=(), tools=(tool,))) == 1 + 2 + 3
    form = OutputFormat(kind="regex", text="yes|no")
    assert estimate_prompt_tokens(Asked(model="m", prompts=(ABC,), output_format=form)) == 1 + 2


def test_every_choice_may_run_to_its_end() -> None:
    assert worst_case_tokens(generation(10, n=3), context_tokens=100, limit=1000) == 2 + 6 * 10
    assert worst_case_tokens(generation(500), context_tokens=100, limit=1000) == 2 + 2 * 98
    assert worst_case_tokens(generation(0), context_tokens=100, limit=1000) == 2
    assert worst_case_tokens(generation(None), context_tokens=100, limit=50) == 50


def test_what_writes_no_text_costs_its_input() -> None:
    asked = Asked(model="m", prompts=(ABC, TokenPrompt(token_ids=(1, 2))))
    assert worst_case_tokens(asked, context_tokens=100, limit=1000) == 3
