"""Who is let in, and that nobody learns why he is not."""

from datetime import UTC, datetime, timedelta

import pytest

from appliance.api_keys import KeyGrant, issue
from appliance.errors import RequestError, StoreError
from appliance.identity import ApiKey, Limits, Scope
from appliance.secrets import SecretBytes
from gateway.auth.api_keys import ApiKeys
from gateway.auth.authenticate import Authenticator

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PEPPER = SecretBytes(b"p" * 32)
DEFAULTS = Limits(tokens_per_minute=1000, requests_in_flight=4)


class Keys(dict[str, ApiKey]):
    """A source of keys that is a dict."""

    async def get(self, key_id: str) -> ApiKey | None:  # type: ignore[override]
        return super().get(key_id)


class BrokenSource:
    async def get(self, key_id: str) -> ApiKey | None:
        raise StoreError("store.unreachable", f"no database to ask for {key_id}")


def make(limits: Limits | None = None, expires_at: datetime | None = None) -> tuple[ApiKey, str]:
    grant = KeyGrant(
        tenant_id="t",
        name="k",
        scopes=(Scope.GENERATE,),
        models=("m",),
        limits=limits or Limits(),
        expires_at=expires_at,
    )
    return issue(grant, PEPPER, NOW)


def door(*keys: ApiKey, pepper: SecretBytes = PEPPER) -> Authenticator:
    known = ApiKeys(Keys({key.id: key for key in keys}), pepper, DEFAULTS, lambda: NOW)
    return Authenticator(known, tokens=None)


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


async def test_a_good_key_is_its_principal() -> None:
    key, text = make(Limits(tokens_per_minute=7))
    principal = await door(key).authenticate(bearer(text), Scope.GENERATE)
    assert (principal.id, principal.tenant_id, principal.models) == (key.id, "t", ("m",))
    assert principal.limits == Limits(tokens_per_minute=7, requests_in_flight=4)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Basic aGk6aGk="},
        {"x-api-key": "nonsense"},
        {"authorization": "Bearer eyJhbGciOiJSUzI1NiJ9.e30.c2ln"},
        {"authorization": "Bearer \xff\xfe"},
    ],
)
async def test_what_is_no_key_is_401(headers: dict[str, str]) -> None:
    with pytest.raises(RequestError) as refused:
        await door().authenticate(headers, Scope.GENERATE)
    assert refused.value.status == 401


async def test_unknown_expired_and_foreign_keys_are_told_the_same() -> None:
    expired, expired_text = make(expires_at=NOW - timedelta(seconds=1))
    key, text = make()
    told = set()
    for keys, presented in (
        (door(), text),
        (door(expired), expired_text),
        (door(key, pepper=SecretBytes(b"q" * 32)), text),
    ):
        with pytest.raises(RequestError) as refused:
            await keys.authenticate(bearer(presented), Scope.GENERATE)
        told.add((refused.value.status, refused.value.code, str(refused.value)))
        assert presented not in str(refused.value)
    assert len(told) == 1


async def test_a_key_without_the_scope_is_403() -> None:
    key, text = make()
    with pytest.raises(RequestError) as refused:
        await door(key).authenticate({"x-api-key": text}, Scope.ADMIN)
    assert refused.value.status == 403


async def test_a_store_that_cannot_say_is_not_a_bad_key() -> None:
    _, text = make()
    keys = ApiKeys(BrokenSource(), PEPPER, DEFAULTS, lambda: NOW)
    with pytest.raises(StoreError):
        await Authenticator(keys, tokens=None).authenticate(bearer(text), Scope.GENERATE)
