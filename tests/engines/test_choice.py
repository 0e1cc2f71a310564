"""A choice tells what its tokens say, also where markup comes as tokens without a text."""

import pytest

from appliance.generation import (
    FinishReason,
    SamplingParams,
    StopConditions,
    TextDelta,
    Tool,
    ToolCallDelta,
)
from engines.choice import Choice, Delta
from engines.echo.tokenizer import EchoTokenizer
from engines.grammar_text import Calls
from engines.prepared import Prepared
from engines.runner import Logprob, Sampled
from engines.sequence import Sequence
from engines.tool_calls.formats import HERMES

# What this vocabulary has as control tokens, by ids that EchoTokenizer does not know.
MARKUP = {900: "<tool_call>", 901: "</tool_call>", 902: "<think>", 903: "</think>"}


class MarkupTokenizer(EchoTokenizer):
    """The echo vocabulary with control tokens for markup."""

    def piece(self, token_id: int) -> bytes:
        return b"" if token_id in MARKUP else super().piece(token_id)

    def ends_generation(self, token_id: int) -> bool:
        return token_id not in MARKUP and super().ends_generation(token_id)


def make_choice(*, max_tokens: int = 1000, stop: tuple[str, ...] = ()) -> Choice:
    sequence = Sequence(
        request_id="r",
        index=0,
        num_prompt_tokens=1,
        token_ids=[0],
        max_tokens=max_tokens,
        sampling=SamplingParams(),
        seed=0,
    )
    calls = Calls(call_format=HERMES, tools=(Tool(name="f"),), is_required=False, takes_many=True)
    prepared = Prepared(token_ids=[0], thinking="maybe", calls=calls, markup=MARKUP)
    return Choice(sequence, MarkupTokenizer(), StopConditions(stop=stop), prepared)


def say(choice: Choice, *parts: int | str) -> tuple[list[Delta], FinishReason | None]:
    """Push tokens, by id or by text, until the choice ends."""
    told: list[Delta] = []
    for part in parts:
        for token_id in [part] if isinstance(part, int) else part.encode():
            choice.sequence.token_ids.append(token_id)
            logprob = Logprob(token_id=token_id, logprob=-1.0)
            deltas, reason = choice.push(Sampled(token_id=token_id, logprob=logprob))
            told += deltas
            if reason is not None:
                return told, reason
    return told, None


END = EchoTokenizer().encode("<|im_end|>", markers=True)[0]


def test_markup_that_comes_as_control_tokens_is_seen() -> None:
    told, reason = say(
        make_choice(), 902, "hm", 903, "\nOk", 900, '{"name": "f", "arguments": {"a": 1}}', 901, END
    )
    assert reason is FinishReason.TOOL_CALLS
    texts = {"reasoning": "", "content": ""}
    arguments = ""
    for delta in told:
        if isinstance(delta, TextDelta):
            texts[delta.channel] += delta.text
        else:
            arguments += delta.arguments
    assert texts == {"reasoning": "hm", "content": "Ok"}
    assert arguments == '{"a": 1}'


def test_markup_has_no_logprobs_and_its_tokens_count() -> None:
    told, _ = say(make_choice(), 902, "hm", 903, "\nOk", END)
    deltas = [delta for delta in told if isinstance(delta, TextDelta)]
    names = ["".join(entry.chosen.token for entry in delta.logprobs) for delta in deltas]
    assert names[-2:] == ["O", "k"]
    assert sum(delta.num_tokens for delta in deltas) == 7


@pytest.mark.parametrize("num_tokens", range(2, 40))
def test_a_cut_answer_never_says_tool_calls(num_tokens: int) -> None:
    """vllm#48702."""
    answer = '{"name": "f", "arguments": {"a": "some text"}}'
    told, reason = say(make_choice(max_tokens=num_tokens), 900, answer, 901, END)
    assert reason is FinishReason.LENGTH
    assert not any(delta.text for delta in told if isinstance(delta, TextDelta))


@pytest.mark.parametrize("num_tokens", range(1, len("Ok <tool_call>")))
def test_nothing_of_a_marker_is_shown_where_an_answer_is_cut_inside_of_it(num_tokens: int) -> None:
    told, reason = say(make_choice(max_tokens=num_tokens), "Ok <tool_call>")
    assert reason is FinishReason.LENGTH
    deltas = [delta for delta in told if isinstance(delta, TextDelta)]
    assert "".join(delta.text for delta in deltas).rstrip() == "Ok"[:num_tokens]
    assert sum(delta.num_tokens for delta in deltas) == num_tokens
    named = "".join(entry.chosen.token for delta in deltas for entry in delta.logprobs)
    assert "<" not in named


def test_half_a_marker_that_the_model_itself_ended_with_is_content() -> None:
    told, reason = say(make_choice(), "a <tool_", END)
    assert reason is FinishReason.STOP
    assert "".join(delta.text for delta in told if isinstance(delta, TextDelta)) == "a <tool_"


def test_an_end_inside_a_call_is_a_cut() -> None:
    _, reason = say(make_choice(), 900, '{"name": "f", "arguments": {"a"', END)
    assert reason is FinishReason.LENGTH


def test_a_stop_string_is_looked_for_in_content_alone() -> None:
    told, reason = say(
        make_choice(stop=("a",)),
        902,
        "a",
        903,
        900,
        '{"name": "f", "arguments": {"a": 1}}',
        901,
        "ba",
    )
    assert reason is FinishReason.STOP
    assert isinstance(told[-2], ToolCallDelta)
    assert isinstance(told[-1], TextDelta)
    assert told[-1].text == "b"
