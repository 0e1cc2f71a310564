"""Request records are kept in order, whole, and once, on every database."""

from datetime import UTC, datetime

from appliance.audit.record import Completed, Outcome, Received
from appliance.generation import Timings, Usage
from appliance.store.store import Store

NOW = datetime(2026, 3, 4, 5, 6, 7, 891011, tzinfo=UTC)


def received(request_id: str = "r1", principal_id: str = "key1") -> Received:
    return Received(
        request_id=request_id,
        at=NOW,
        tenant_id="bank",
        principal_id=principal_id,
        route="/v1/chat/completions",
        model="smollm2:135m",
    )


def completed(request_id: str = "r1", completion_tokens: int = 5) -> Completed:
    return Completed(
        request_id=request_id,
        at=NOW,
        outcome=Outcome.OK,
        finish_reasons=("stop", "length"),
        usage=Usage(prompt_tokens=10, completion_tokens=completion_tokens, cached_tokens=3),
        timings=Timings(queue_s=0.5, prefill_s=0.25, decode_s=1.5),
    )


async def test_records_come_back_as_they_were_kept_in_order(store: Store) -> None:
    await store.requests.append([received(), received("r2"), completed()])
    assert await store.requests.find("r1") == (received(), completed())
    assert await store.requests.find("r3") == ()


async def test_a_group_given_twice_is_kept_once(store: Store) -> None:
    """Nobody knows whether a commit went through whose answer was lost."""
    group = [received(), completed()]
    await store.requests.append(group)
    await store.requests.append([*group, received("r2")])
    assert await store.requests.find("r1") == (received(), completed())
    assert await store.requests.find("r2") == (received("r2"),)


async def test_characters_that_no_database_keeps_are_kept_as_escapes(store: Store) -> None:
    """BerriAI/litellm#21290, #21883: a NUL made PostgreSQL refuse the row, and it was lost."""
    odd = Received(
        request_id="r\0\ud800",
        at=NOW,
        tenant_id="t\0",
        principal_id="p\0",
        route="/\0",
        model="ğ\0\udfff",
    )
    await store.requests.append([received(), odd, received("r2")])
    (kept,) = await store.requests.find("r\0\ud800")
    assert isinstance(kept, Received)
    assert kept.model == "ğ\\u0000\\udfff"
    assert await store.requests.find("r2") == (received("r2"),)


async def test_requests_lost_in_a_crash_are_closed_once(store: Store) -> None:
    await store.requests.append([received("lost"), received("done"), completed("done")])
    assert await store.requests.close_lost(NOW) == 1
    assert await store.requests.close_lost(NOW) == 0
    _, ending = await store.requests.find("lost")
    assert isinstance(ending, Completed)
    assert (ending.outcome, ending.code) == (Outcome.ERROR, "request.lost_in_crash")
    assert (await store.requests.find("done"))[1] == completed("done")


async def test_use_is_summed_over_a_principals_completed_requests(store: Store) -> None:
    await store.requests.append([received("a"), completed("a", 5), received("b"), received("c")])
    await store.requests.append([completed("b", 7), received("x", "key2"), completed("x", 100)])
    used = await store.requests.usage_of("key1")
    assert used.num_requests == 2
    assert used.usage == Usage(prompt_tokens=20, completion_tokens=12, cached_tokens=6)
    assert (await store.requests.usage_of("nobody")).num_requests == 0
