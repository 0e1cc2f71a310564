"""Admitting and settling as one: whatever is taken stands in the grant, and goes back."""

import asyncio

import pytest

from appliance.config import LimitsConfig
from appliance.errors import RequestError
from appliance.generation import SamplingParams, StopConditions, TextPrompt
from appliance.identity import Limits, Principal, Scope
from gateway.limits.limiter import Grant, Limiter
from gateway.wire.call import Decoded


def who(**limits: int) -> Principal:
    return Principal(id="p", tenant_id="t", scopes=(Scope.GENERATE,), limits=Limits(**limits))


def asking(max_tokens: int | None = 10) -> Decoded:
    return Decoded(
        model="m",
        prompts=(TextPrompt(text="x" * 30),),
        sampling=SamplingParams(),
        stopping=StopConditions(max_tokens=max_tokens),
        n=1,
        stream=False,
        include_usage=False,
    )


def limiter(**config: object) -> Limiter:
    return Limiter(LimitsConfig(**config), lambda: 0.0)  # type: ignore[arg-type]


async def test_a_release_gives_place_and_tokens_back() -> None:
    limits, grant, principal = limiter(), Grant(), who(tokens_per_minute=25, requests_in_flight=1)
    await limits.admit(principal, asking(), None, grant)
    assert grant.quota is not None
    assert grant.quota.remaining_tokens == 5
    limits.release(grant, used_tokens=3)
    limits.release(grant, used_tokens=3)
    assert limits.admission.num_in_flight == 0
    again = Grant()
    await limits.admit(principal, asking(), None, again)
    assert again.quota is not None
    assert again.quota.remaining_tokens == 2


async def test_tokens_that_are_refused_take_no_place_and_tell_what_is_left() -> None:
    limits, grant = limiter(), Grant()
    with pytest.raises(RequestError):
        await limits.admit(who(tokens_per_minute=19), asking(), None, grant)
    assert limits.admission.num_in_flight == 0
    assert grant.quota is not None
    assert grant.quota.remaining_tokens == 19


async def test_a_request_without_max_tokens_takes_the_context_or_the_whole_minute() -> None:
    for context, left in ((50, 50), (1000, 0)):
        grant = Grant()
        await limiter().admit(who(tokens_per_minute=100), asking(None), context, grant)
        assert grant.quota is not None
        assert grant.quota.remaining_tokens == left


async def test_who_is_cancelled_in_the_queue_gives_back_what_it_held() -> None:
    limits, first, second = limiter(max_in_flight=1), Grant(), Grant()
    principal = who(tokens_per_minute=100)
    await limits.admit(principal, asking(), None, first)
    waiting = asyncio.create_task(limits.admit(principal, asking(), None, second))
    await asyncio.sleep(0)
    assert limits.admission.num_queued == 1
    waiting.cancel()
    await asyncio.wait({waiting})
    limits.release(second, used_tokens=0)
    assert limits.admission.num_queued == 0
    limits.release(first, used_tokens=0)
    assert limits.admission.num_in_flight == 0
