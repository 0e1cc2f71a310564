"""Pieces of running streams travel together; nothing else waits, and nothing is lost."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.generation import (
    ChoiceFinished,
    EngineEvent,
    Failed,
    Finished,
    FinishReason,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from engines.outbox import Outbox
from engines.step_loop import Batch

EVERY_S = 0.016


def piece(request_id: str = "a", text: str = "x") -> tuple[str, EngineEvent]:
    return request_id, TextDelta(index=0, text=text, num_tokens=1)


def speaking(request_id: str = "a") -> Outbox:
    """An outbox whose request was heard of at 100 s."""
    outbox = Outbox(EVERY_S)
    outbox.put((piece(request_id),))
    assert outbox.take(100.0, is_last=False)
    return outbox


def test_the_first_piece_of_an_answer_is_told_at_once() -> None:
    outbox = speaking("a")
    outbox.put((piece("b"),))
    assert outbox.take(100.001, is_last=False) == (piece("b"),)


def test_pieces_of_a_running_stream_wait_for_each_other() -> None:
    outbox = speaking()
    outbox.put((piece(text="y"),))
    assert outbox.take(100.010, is_last=False) == ()
    outbox.put((piece(text="z"),))
    assert outbox.take(100.020, is_last=False) == (piece(text="y"), piece(text="z"))
    assert outbox.take(200.0, is_last=True) == ()


def test_a_slow_stream_waits_for_nothing() -> None:
    outbox = speaking()
    outbox.put((piece(),))
    assert outbox.take(100.0 + EVERY_S, is_last=False) == (piece(),)


def test_endings_failures_and_calls_take_what_waits_along() -> None:
    for event in (
        ChoiceFinished(index=0, finish_reason=FinishReason.STOP),
        Finished(usage=Usage()),
        Failed(code="engine.row_failed", message="not a number"),
    ):
        outbox = speaking()
        outbox.put((piece(),))
        outbox.put((("a", event),))
        assert outbox.take(100.001, is_last=False) == (piece(), ("a", event))
    call = ToolCallDelta(index=0, call_index=0, id="call_1", name="f", arguments="")
    fresh = Outbox(EVERY_S)
    fresh.put((("a", call),))
    assert fresh.take(0.0, is_last=False) == (("a", call),)


def test_what_is_last_does_not_wait_for_a_step_that_never_comes() -> None:
    outbox = speaking()
    outbox.put((piece(),))
    assert outbox.take(100.001, is_last=True) == (piece(),)


def test_a_name_used_again_begins_anew() -> None:
    outbox = speaking("a")
    outbox.put((("a", Finished(usage=Usage())),))
    outbox.take(100.001, is_last=False)
    outbox.put((piece("a"),))
    assert outbox.take(100.002, is_last=False) == (piece("a"),)


def test_without_a_time_every_step_is_told() -> None:
    outbox = Outbox(0.0)
    for _ in range(3):
        outbox.put((piece(),))
        assert outbox.take(1.0, is_last=False) == (piece(),)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 0.03)), max_size=60))
def test_everything_is_told_once_in_order(steps: list[tuple[str, float]]) -> None:
    outbox, now = Outbox(EVERY_S), 100.0
    put: list[tuple[str, EngineEvent]] = []
    told: list[Batch] = []
    for number, (request_id, seconds) in enumerate(steps):
        now += seconds
        event = piece(request_id, str(number))
        put.append(event)
        outbox.put((event,))
        told.append(outbox.take(now, is_last=False))
    told.append(outbox.take(now, is_last=True))
    assert [event for batch in told for event in batch] == put
