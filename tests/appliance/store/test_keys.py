"""Keys and tenants are kept as they are, on every database."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from appliance.api_keys import KeyGrant, issue
from appliance.errors import StoreError
from appliance.identity import ApiKey, Limits, Scope, Tenant
from appliance.secrets import SecretBytes
from appliance.store.store import Store

NOW = datetime(2026, 3, 4, 5, 6, 7, 891011, tzinfo=UTC)


def a_key(name: str = "ayşe", now: datetime = NOW) -> ApiKey:
    grant = KeyGrant(
        tenant_id="bank",
        name=name,
        scopes=(Scope.GENERATE, Scope.ADMIN),
        models=("smollm2:135m", "名前"),
        limits=Limits(tokens_per_minute=2**40),
        expires_at=NOW + timedelta(days=1),
    )
    return issue(grant, SecretBytes(b"p"), now)[0]


@pytest.fixture
async def bank(store: Store) -> Store:
    await store.tenants.ensure(Tenant(id="bank", name="Banka"))
    return store


async def test_a_key_comes_back_as_it_was_kept(bank: Store) -> None:
    key = a_key()
    await bank.keys.add(key)
    assert await bank.keys.get(key.id) == key
    assert await bank.keys.get("unknown") is None


async def test_moments_are_kept_in_utc_whatever_zone_they_came_in(bank: Store) -> None:
    istanbul = timezone(timedelta(hours=3))
    key = a_key(now=NOW.astimezone(istanbul))
    await bank.keys.add(key)
    kept = await bank.keys.get(key.id)
    assert kept is not None
    assert kept.created_at == NOW
    assert kept.created_at.utcoffset() == timedelta(0)


async def test_keys_are_listed_oldest_first(bank: Store) -> None:
    second, first = a_key("second", NOW + timedelta(seconds=1)), a_key("first")
    for key in (second, first):
        await bank.keys.add(key)
    assert await bank.keys.list() == (first, second)


async def test_a_revoked_key_stays_revoked_at_its_first_moment(bank: Store) -> None:
    key = a_key()
    await bank.keys.add(key)
    assert (await bank.keys.revoke(key.id, NOW)).revoked_at == NOW
    assert (await bank.keys.revoke(key.id, NOW + timedelta(days=1))).revoked_at == NOW


async def test_revoking_an_unknown_key_is_told(bank: Store) -> None:
    with pytest.raises(StoreError) as caught:
        await bank.keys.revoke("unknown", NOW)
    assert caught.value.code == "key.not_found"


async def test_a_key_of_an_unknown_tenant_is_refused_without_a_value_in_the_error(
    store: Store,
) -> None:
    key = a_key("a name that is nobody's business")
    with pytest.raises(StoreError) as caught:
        await store.keys.add(key)
    assert "nobody" not in f"{caught.value} {caught.value.__cause__}"


async def test_a_tenant_is_made_once(store: Store) -> None:
    await store.tenants.ensure(Tenant(id="bank", name="Banka"))
    await store.tenants.ensure(Tenant(id="bank", name="another name"))
    assert await store.tenants.list() == (Tenant(id="bank", name="Banka"),)
