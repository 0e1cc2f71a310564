"""How events become parts, whatever pieces they come in."""

from collections.abc import AsyncIterator, Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.errors import EngineError, RequestError
from appliance.generation import (
    ChoiceFinished,
    Failed,
    Finished,
    FinishReason,
    GenerationEvent,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from gateway.wire.parts import Closed, Grown, Opened, Parts, gather

Iterate = Callable[[Iterable[GenerationEvent]], AsyncIterator[GenerationEvent]]

texts = st.text(max_size=3)
spans = st.one_of(
    st.tuples(st.sampled_from(["content", "reasoning"]), st.lists(texts, min_size=1, max_size=3)),
    st.tuples(st.just("tool_call"), st.lists(texts, max_size=3)),
)


def to_deltas(spans_: list[tuple[str, list[str]]]) -> list[TextDelta | ToolCallDelta]:
    deltas: list[TextDelta | ToolCallDelta] = []
    num_calls = 0
    for kind, pieces in spans_:
        if kind == "tool_call":
            head = ToolCallDelta(index=0, call_index=num_calls, id=f"c{num_calls}", name="f")
            deltas.append(head)
            deltas += [
                ToolCallDelta(index=0, call_index=num_calls, arguments=piece) for piece in pieces
            ]
            num_calls += 1
        else:
            channel = "content" if kind == "content" else "reasoning"
            deltas += [TextDelta(index=0, text=piece, channel=channel) for piece in pieces]  # type: ignore[arg-type]
    return deltas


@given(st.lists(spans, max_size=6))
def test_parts_open_grow_and_close_in_turn_and_lose_nothing(
    spans_: list[tuple[str, list[str]]],
) -> None:
    parts = Parts()
    steps = [step for delta in to_deltas(spans_) for step in parts.take(delta)]
    steps += parts.finish(ChoiceFinished(index=0, finish_reason=FinishReason.STOP))
    grown: dict[int, str] = {}
    open_index: int | None = None
    for step in steps:
        match step:
            case Opened(part):
                assert open_index is None
                assert part.index == len(grown)
                open_index = part.index
                grown[open_index] = ""
            case Grown(part, text):
                assert part.index == open_index
                grown[part.index] += text
            case Closed(part):
                assert part.index == open_index
                assert part.text == grown[part.index]
                open_index = None
    assert open_index is None
    for kind in ("content", "reasoning", "tool_call"):
        sent = "".join("".join(pieces) for own, pieces in spans_ if own == kind)
        assert "".join(part.text for part in parts.closed if part.kind == kind) == sent
    calls = [part for part in parts.closed if part.kind == "tool_call"]
    assert [part.id for part in calls] == [f"c{at}" for at in range(len(calls))]


async def test_only_the_last_part_is_cut_by_length(iterate: Iterate) -> None:
    answer = await gather(
        iterate(
            [
                TextDelta(index=0, text="a", channel="reasoning", num_tokens=3),
                TextDelta(index=0, text="b"),
                ChoiceFinished(index=0, finish_reason=FinishReason.LENGTH),
                Finished(usage=Usage(completion_tokens=4)),
            ]
        )
    )
    assert [part.is_cut for part in answer.parts] == [False, True]
    assert (answer.num_reasoning_tokens, answer.usage.completion_tokens) == (3, 4)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [TextDelta(index=0, text="half")],
        [TextDelta(index=0, text="half"), Finished(usage=Usage())],
        [ChoiceFinished(index=0, finish_reason=FinishReason.ERROR), Finished(usage=Usage())],
    ],
)
async def test_an_answer_is_never_made_up_from_half_of_one(
    iterate: Iterate, events: list[GenerationEvent]
) -> None:
    with pytest.raises(EngineError) as caught:
        await gather(iterate(events))
    assert caught.value.code == "engine.answer_cut"


async def test_a_failure_is_raised(iterate: Iterate) -> None:
    with pytest.raises(RequestError) as caught:
        await gather(iterate([Failed(code="request.context_length_exceeded", message="9 > 8")]))
    assert caught.value.status == 400
