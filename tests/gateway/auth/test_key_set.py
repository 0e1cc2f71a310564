"""The realm's keys: fetched when needed, once for all, kept while the realm is down."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from jwt import PyJWK

from appliance.errors import MachineError, RequestError
from gateway.auth.key_set import COOL_DOWN_S, KeySet
from tests.gateway.auth.signing import jwk


class Provider:
    """Publishes keys, counts how often it is asked, and may be down or slow."""

    def __init__(self, *kids: str) -> None:
        self.kids = list(kids)
        self.is_down = False
        self.num_asked = 0
        self.now = 0.0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.keys = KeySet(self._fetch, lambda: self.now)

    async def knows(self, kid: str) -> bool:
        return await self.keys.find(kid) is not None

    @asynccontextmanager
    async def kept_fresh(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.keys.keep_fresh())
        await self._until_idle()
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def _until_idle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def _fetch(self) -> dict[str, PyJWK]:
        self.num_asked += 1
        await self.may_answer.wait()
        if self.is_down:
            raise MachineError("identity.provider_unusable", "the identity provider is down")
        return {kid: PyJWK(jwk(kid)) for kid in self.kids}


async def test_keys_that_are_known_are_not_asked_for() -> None:
    provider = Provider("one", "two")
    for kid in ("one", "two", "one") * 10:
        assert await provider.knows(kid)
    assert provider.num_asked == 1


async def test_all_who_wait_for_a_new_key_share_one_question() -> None:
    """mckinsey/agents-at-scale-ark#2568: after a rotation every login failed until a restart."""
    provider = Provider("one")
    assert await provider.knows("one")
    provider.kids = ["two", "one"]
    provider.may_answer.clear()
    asking = [asyncio.create_task(provider.knows("two")) for _ in range(100)]
    await asyncio.sleep(0)
    provider.may_answer.set()
    assert all(await asyncio.gather(*asking))
    assert provider.num_asked == 2


async def test_rotations_one_after_the_other_are_all_followed() -> None:
    provider = Provider("0")
    for number in range(5):
        provider.kids = [str(number)]
        assert await provider.knows(str(number))
    assert provider.num_asked == 5


async def test_unknown_keys_cost_one_question_in_a_while() -> None:
    """mckinsey/agents-at-scale-ark#2568: 10,000 random names are one question."""
    provider = Provider("one")
    assert await provider.knows("one")
    found = await asyncio.gather(*(provider.knows(f"x{n}") for n in range(10_000)))
    assert not any(found)
    assert provider.num_asked == 2
    assert await provider.knows("one")
    provider.now += COOL_DOWN_S
    assert not await provider.knows("x")
    assert not await provider.knows("y")
    assert provider.num_asked == 3


async def test_a_caller_who_hangs_up_does_not_start_the_question_anew() -> None:
    provider = Provider("one")
    assert await provider.knows("one")
    provider.may_answer.clear()
    for _ in range(5):
        asking = asyncio.create_task(provider.knows("x"))
        await asyncio.sleep(0)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
    assert provider.num_asked == 2


async def test_keys_stay_good_while_the_provider_is_down() -> None:
    provider = Provider("one")
    assert await provider.knows("one")
    provider.is_down = True
    assert not await provider.knows("two")
    assert await provider.knows("one")
    provider.is_down = False
    provider.kids = ["two"]
    assert not await provider.knows("two")
    provider.now += COOL_DOWN_S
    assert await provider.knows("two")
    assert not await provider.knows("one")


async def test_without_any_key_nobody_is_judged() -> None:
    provider = Provider("one")
    provider.is_down = True
    with pytest.raises(RequestError) as refused:
        await provider.knows("one")
    assert (refused.value.status, refused.value.code) == (503, "auth.provider_unreachable")
    assert refused.value.retry_after_s


async def test_the_set_is_fetched_before_anybody_asks() -> None:
    provider = Provider("one")
    async with provider.kept_fresh():
        assert provider.num_asked == 1
        assert await provider.knows("one")
        provider.kids = ["two"]
        assert await provider.knows("two")
    assert provider.num_asked == 2


async def test_a_provider_that_is_down_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    provider = Provider("one")
    assert await provider.knows("one")
    provider.is_down = True
    for _ in range(5):
        provider.now += COOL_DOWN_S
        assert not await provider.knows("two")
    provider.is_down = False
    provider.now += COOL_DOWN_S
    assert not await provider.knows("two")
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
