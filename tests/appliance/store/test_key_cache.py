"""The gateway sees a key's changes within half a second and does not ask more often."""

import asyncio
from datetime import UTC, datetime

import pytest

from appliance.api_keys import KeyGrant, issue
from appliance.errors import StoreError
from appliance.home import Home
from appliance.identity import ApiKey, Scope, Tenant
from appliance.secrets import SecretBytes
from appliance.store.key_cache import KeyCache
from appliance.store.store import Store, open_store

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY, _ = issue(KeyGrant(tenant_id="t", name="n", scopes=(Scope.GENERATE,)), SecretBytes(b"p"), NOW)


class Source:
    """Keys that can be taken away, and a count of the questions."""

    def __init__(self) -> None:
        self.keys: dict[str, ApiKey] = {KEY.id: KEY}
        self.num_asked = 0
        self.is_down = False

    async def get(self, key_id: str) -> ApiKey | None:
        self.num_asked += 1
        await asyncio.sleep(0)
        if self.is_down:
            raise StoreError("store.unreachable", "gone")
        return self.keys.get(key_id)


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


async def test_a_key_is_asked_for_once_while_it_is_fresh() -> None:
    source, clock = Source(), Clock()
    cache = KeyCache(source, clock)
    found = await asyncio.gather(*(cache.get(KEY.id) for _ in range(20)))
    assert set(found) == {KEY}
    clock.now_s += 0.4
    await cache.get(KEY.id)
    assert source.num_asked == 1


async def test_a_change_is_seen_within_a_second() -> None:
    source, clock = Source(), Clock()
    cache = KeyCache(source, clock)
    await cache.get(KEY.id)
    source.keys.clear()
    clock.now_s += 1.0
    assert await cache.get(KEY.id) is None


async def test_an_unknown_key_is_remembered_too_and_a_new_one_is_seen() -> None:
    source, clock = Source(), Clock()
    source.keys.clear()
    cache = KeyCache(source, clock)
    for _ in range(3):
        assert await cache.get(KEY.id) is None
    assert source.num_asked == 1
    source.keys[KEY.id] = KEY
    clock.now_s += 1.0
    assert await cache.get(KEY.id) == KEY


async def test_a_store_that_is_down_lets_nobody_in_and_is_asked_again() -> None:
    source, clock = Source(), Clock()
    cache = KeyCache(source, clock)
    await cache.get(KEY.id)
    source.is_down = True
    clock.now_s += 1.0
    with pytest.raises(StoreError):
        await cache.get(KEY.id)
    source.is_down = False
    assert await cache.get(KEY.id) == KEY


async def test_guessed_ids_do_not_fill_the_memory() -> None:
    cache = KeyCache(Source(), Clock())
    for number in range(5000):
        await cache.get(str(number))
    assert len(cache._known) <= 4096


async def test_a_key_revoked_by_another_process_is_seen_within_a_second(
    store: Store, url: str, home: Home
) -> None:
    await store.tenants.ensure(Tenant(id="t", name="t"))
    await store.keys.add(KEY)
    clock = Clock()
    cache = KeyCache(store.keys, clock)
    assert await cache.get(KEY.id) == KEY
    elsewhere = await open_store(url, home)
    await elsewhere.keys.revoke(KEY.id, NOW)
    await elsewhere.close()
    clock.now_s += 1.0
    seen = await cache.get(KEY.id)
    assert seen is not None
    assert seen.revoked_at == NOW
