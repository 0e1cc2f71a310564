"""What becomes of a call, as its lease sees it."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from appliance.audit.record import Outcome
from appliance.errors import EngineError, HisarError, RequestError
from appliance.generation import (
    Begun,
    ChoiceFinished,
    Failed,
    Finished,
    FinishReason,
    GenerationEvent,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from appliance.metrics import Metrics
from gateway.context import RequestContext
from gateway.exchange import client_gone
from gateway.lease import Lease

USAGE = Usage(prompt_tokens=3, completion_tokens=9)


def lease() -> Lease:
    opened = Lease(RequestContext(id="r", arrived_at=0.0), "/v1", Metrics(), lambda: 1.0)
    opened.tally(Begun(prompt_tokens=5))
    return opened


async def follow(opened: Lease, *events: GenerationEvent) -> None:
    async def stream() -> AsyncIterator[GenerationEvent]:
        for event in events:
            opened.tally(event)
            yield event

    *passed, last = [event async for event in opened.follow(stream())]
    assert passed == list(events[:-1])
    told = events[-1]
    assert last == (replace(told, usage=opened.usage) if isinstance(told, Finished) else told)


async def test_an_answer_that_ended_is_ok_with_the_engines_own_count() -> None:
    opened = lease()
    await follow(
        opened,
        TextDelta(index=0, text="a", num_tokens=2),
        ChoiceFinished(index=0, finish_reason=FinishReason.STOP),
        Finished(usage=USAGE),
    )
    assert (opened.outcome, opened.code, opened.usage) == (Outcome.OK, "", USAGE)
    assert opened.finish_reasons == ["stop"]
    assert opened.first_delta_at == 1.0


async def test_an_answer_cut_off_counts_the_prompt_and_what_was_seen() -> None:
    opened = lease()
    await follow(opened, *(TextDelta(index=0, text="a", num_tokens=2) for _ in range(3)))
    opened.error = client_gone()
    assert opened.outcome is Outcome.CANCELLED
    assert opened.usage == Usage(prompt_tokens=5, completion_tokens=6)


async def test_an_answer_cut_short_by_a_guardrail_is_charged_and_told_what_was_seen() -> None:
    opened = lease()
    seen = (TextDelta(index=0, text="a", num_tokens=2), ToolCallDelta(index=0, call_index=0))
    await follow(opened, *seen, Finished(usage=Usage()))
    assert opened.usage == Usage(prompt_tokens=5, completion_tokens=3)


async def test_what_came_and_was_not_read_yet_is_counted() -> None:
    opened = lease()
    opened.tally(TextDelta(index=0, text="ab", num_tokens=2))
    opened.error = client_gone()
    assert opened.usage == Usage(prompt_tokens=5, completion_tokens=2)
    assert opened.first_delta_at is None


async def test_a_caller_who_leaves_in_the_middle_of_a_call_is_charged_for_it() -> None:
    opened = lease()
    call = ToolCallDelta(index=0, call_index=0, id="1", name="f")
    piece = ToolCallDelta(index=0, call_index=0, arguments="{", num_tokens=2)
    await follow(opened, call, piece, piece)
    opened.error = client_gone()
    assert opened.usage == Usage(prompt_tokens=5, completion_tokens=5)
    assert opened.first_delta_at == 1.0


async def test_a_failure_without_a_count_keeps_what_was_seen() -> None:
    opened = lease()
    await follow(opened, TextDelta(index=0, text="a"), Failed(code="engine.host_lost", message="x"))
    assert opened.usage == Usage(prompt_tokens=5, completion_tokens=1)


async def test_a_call_that_was_left_before_its_answer_began_used_its_prompt() -> None:
    opened = lease()
    opened.error = client_gone()
    assert opened.usage == Usage(prompt_tokens=5)


async def test_an_answer_that_begins_again_on_another_host_counts_once() -> None:
    opened = lease()
    opened.tally(Begun(prompt_tokens=5))
    await follow(opened, TextDelta(index=0, text="a"), Failed(code="engine.host_lost", message="x"))
    assert opened.usage == Usage(prompt_tokens=5, completion_tokens=1)


async def test_an_engine_that_failed_is_an_error_also_when_it_was_told_in_the_stream() -> None:
    opened = lease()
    await follow(opened, Failed(code="engine.host_lost", message="gone", usage=USAGE))
    assert (opened.outcome, opened.code, opened.usage) == (Outcome.ERROR, "engine.host_lost", USAGE)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (RequestError("limits.queue_full", "busy", status=503), Outcome.REFUSED),
        (RequestError("auth.invalid_key", "no", status=401), Outcome.REFUSED),
        (EngineError("engine.unreachable", "none"), Outcome.ERROR),
        (HisarError("gateway.internal_error", "bug"), Outcome.ERROR),
        (client_gone(), Outcome.CANCELLED),
    ],
)
def test_errors_have_one_outcome_each(error: HisarError, outcome: Outcome) -> None:
    opened = lease()
    opened.error = error
    assert opened.outcome is outcome


async def test_events_that_just_stop_are_an_error() -> None:
    opened = lease()
    await follow(opened, TextDelta(index=0, text="a"))
    assert (opened.outcome, opened.code) == (Outcome.ERROR, "engine.answer_cut")
