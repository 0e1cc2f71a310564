"""What leaves of an answer while it is written (BerriAI/litellm#41936, #38788, api7/aisix#204)."""

from collections.abc import AsyncIterator, Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from appliance.generation import (
    ChoiceFinished,
    ChosenLogprob,
    Failed,
    Finished,
    FinishReason,
    GenerationEvent,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from guardrails.screen import Screen
from guardrails.streaming import screen_output

SCREEN = Screen(["GIZLIKOD", "top secret"])
USAGE = Usage(prompt_tokens=7, completion_tokens=9)


class Engine:
    """An answer, and whether it was read to its end or closed."""

    def __init__(self, events: Iterable[GenerationEvent]) -> None:
        self.events = list(events)
        self.num_read = 0
        self.is_closed = False

    async def __call__(self) -> AsyncIterator[GenerationEvent]:
        try:
            for event in self.events:
                self.num_read += 1
                yield event
        finally:
            self.is_closed = True


def answer(*pieces: str, index: int = 0) -> list[GenerationEvent]:
    deltas: list[GenerationEvent] = [TextDelta(index=index, text=piece) for piece in pieces]
    return [*deltas, ChoiceFinished(index=index, finish_reason=FinishReason.STOP)]


async def screened(
    events: Iterable[GenerationEvent], num_choices: int = 1, screen: Screen = SCREEN
) -> list[GenerationEvent]:
    return [event async for event in screen_output(Engine(events)(), screen, num_choices)]


def text_of(events: Iterable[GenerationEvent], index: int = 0) -> str:
    return "".join(e.text for e in events if isinstance(e, TextDelta) and e.index == index)


def reasons_of(events: Iterable[GenerationEvent]) -> list[tuple[int, str]]:
    return [(e.index, e.finish_reason.value) for e in events if isinstance(e, ChoiceFinished)]


def test_without_words_the_source_itself_is_returned() -> None:
    source = Engine([])()
    assert screen_output(source, Screen([])) is source


async def test_clean_text_passes_piece_by_piece_unchanged() -> None:
    events = [*answer("Hello", " world", "!"), Finished(usage=USAGE)]
    assert await screened(events) == events


async def test_nothing_of_a_denied_word_leaves_and_nothing_follows_it() -> None:
    events = [*answer("say G", "IZ", "LIKOD", " more"), Finished(usage=USAGE)]
    result = await screened(events)
    assert text_of(result) == "say "
    assert reasons_of(result) == [(0, "content_filter")]
    assert isinstance(result[-1], Finished)


async def test_the_engine_is_stopped_when_no_choice_is_left() -> None:
    engine = Engine([*answer("GIZLIKOD ", "a", "b", "c"), Finished(usage=USAGE)])
    result = []
    async for event in screen_output(engine(), SCREEN):
        result.append(event)
        assert engine.is_closed or not isinstance(event, Finished)
    assert engine.num_read == 1
    assert result[-1] == Finished(usage=Usage())


async def test_the_engines_own_count_is_kept_when_the_word_stands_at_the_very_end() -> None:
    result = await screened([*answer("say GIZLIKOD"), Finished(usage=USAGE)])
    assert text_of(result) == "say "
    assert reasons_of(result) == [(0, "content_filter")]
    assert result[-1] == Finished(usage=USAGE)


async def test_other_choices_go_on_after_one_was_blocked() -> None:
    events = [
        TextDelta(index=0, text="GIZLIKOD "),
        TextDelta(index=1, text="fine"),
        TextDelta(index=0, text="hidden"),
        ChoiceFinished(index=0, finish_reason=FinishReason.STOP),
        TextDelta(index=1, text=" indeed"),
        ChoiceFinished(index=1, finish_reason=FinishReason.LENGTH),
        Finished(usage=USAGE),
    ]
    result = await screened(events, num_choices=2)
    assert text_of(result, 0) == ""
    assert text_of(result, 1) == "fine indeed"
    assert reasons_of(result) == [(0, "content_filter"), (1, "length")]
    assert result[-1] == Finished(usage=USAGE)


async def test_an_unfinished_word_leaves_when_the_answer_was_cut_there() -> None:
    result = await screened([*answer("say GIZL"), Finished(usage=USAGE)])
    assert text_of(result) == "say GIZL"


async def test_held_text_leaves_before_a_failure() -> None:
    failed = Failed(code="engine.lost", message="gone")
    result = await screened([TextDelta(index=0, text="say top "), failed])
    assert text_of(result) == "say top "
    assert result[-1] == failed


async def test_tool_call_arguments_are_screened() -> None:
    events = [
        ToolCallDelta(index=0, call_index=0, id="c1", name="find", arguments='{"q": "GIZ'),
        ToolCallDelta(index=0, call_index=0, arguments='LIKOD"}'),
        ChoiceFinished(index=0, finish_reason=FinishReason.TOOL_CALLS),
        Finished(usage=USAGE),
    ]
    result = await screened(events)
    arguments = "".join(e.arguments for e in result if isinstance(e, ToolCallDelta))
    assert arguments == '{"q": "'
    assert reasons_of(result) == [(0, "content_filter")]


WRITTEN = '{"q": "\\u0047\\u0049Z\\u004cIKOD", "r": 1}'


@given(st.sets(st.integers(0, len(WRITTEN)), max_size=8))
async def test_an_escape_hides_no_word_in_arguments(cuts: set[int]) -> None:
    edges = [0, *sorted(cuts), len(WRITTEN)]
    pieces = [WRITTEN[start:end] for start, end in pairwise(edges)]
    events = [
        *(ToolCallDelta(index=0, call_index=0, name="find", arguments=piece) for piece in pieces),
        ChoiceFinished(index=0, finish_reason=FinishReason.TOOL_CALLS),
        Finished(usage=USAGE),
    ]
    result = await screened(events)
    arguments = "".join(e.arguments for e in result if isinstance(e, ToolCallDelta))
    assert arguments == '{"q": "'
    assert reasons_of(result) == [(0, "content_filter")]


async def test_arguments_leave_as_they_were_written() -> None:
    written = '{"q": "\\u0047IZ\\nan\\ud83d\\ude00\\"", "cut": "\\u00'
    events = [
        *(ToolCallDelta(index=0, call_index=0, arguments=character) for character in written),
        ChoiceFinished(index=0, finish_reason=FinishReason.LENGTH),
        Finished(usage=USAGE),
    ]
    result = await screened(events)
    assert "".join(e.arguments for e in result if isinstance(e, ToolCallDelta)) == written


async def test_reasoning_is_screened_apart_from_the_answer() -> None:
    events = [
        TextDelta(index=0, text="think GIZ", channel="reasoning"),
        TextDelta(index=0, text="LIKOD"),
        TextDelta(index=0, text="LIKOD.", channel="reasoning"),
    ]
    result = await screened(events)
    assert [(e.channel, e.text) for e in result if isinstance(e, TextDelta)] == [
        ("reasoning", "think "),
        ("content", "LIKOD"),
    ]
    assert reasons_of(result) == [(0, "content_filter")]


def logprob(token: str, *top: str) -> ChosenLogprob:
    def one(text: str) -> TokenLogprob:
        return TokenLogprob(token=text, token_bytes=text.encode(), logprob=-1.0)

    return ChosenLogprob(chosen=one(token), top=tuple(map(one, top)))


async def test_logprobs_of_held_and_cut_tokens_do_not_leave() -> None:
    events = [
        TextDelta(index=0, text="say", logprobs=(logprob("say", "say", "GIZLIKOD"),)),
        TextDelta(index=0, text="", logprobs=(logprob(" GIZ"),)),
        TextDelta(index=0, text=" GIZLIKOD", logprobs=(logprob("LIKOD"),)),
        ChoiceFinished(index=0, finish_reason=FinishReason.STOP),
        Finished(usage=USAGE),
    ]
    result = await screened(events)
    told = [
        token.token
        for event in result
        if isinstance(event, TextDelta)
        for entry in event.logprobs
        for token in (entry.chosen, *entry.top)
    ]
    assert told == ["say", "say"]
    assert text_of(result) == "say "


async def test_closing_the_screened_stream_closes_the_engine() -> None:
    engine = Engine(answer("a", "b"))
    stream = screen_output(engine(), SCREEN)
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    assert engine.is_closed


_pieces = st.lists(st.sampled_from(["GIZ", "LIKOD", " ", "top", "secret", "a", "", "İ", "\u200b"]))


@given(_pieces, st.booleans())
async def test_the_joined_stream_is_the_same_for_any_pieces(
    pieces: list[str], with_logprobs: bool
) -> None:
    logprobs = (logprob("x"),) if with_logprobs else ()
    deltas = [TextDelta(index=0, text=piece, logprobs=logprobs) for piece in pieces]
    end = [ChoiceFinished(index=0, finish_reason=FinishReason.STOP), Finished(usage=USAGE)]
    result = await screened([*deltas, *end])
    at_once = await screened([TextDelta(index=0, text="".join(pieces)), *end])
    assert text_of(result) == text_of(at_once)
    assert reasons_of(result) == reasons_of(at_once)
    if reasons_of(result) == [(0, "stop")]:
        texts = [event for event in result if isinstance(event, TextDelta)]
        assert sum(event.num_tokens for event in texts) == len(pieces)
        assert sum(len(event.logprobs) for event in texts) == len(pieces) * with_logprobs
