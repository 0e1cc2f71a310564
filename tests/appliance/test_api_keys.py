"""API keys: random, shown once, checked without the store, right only with the pepper."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from appliance.api_keys import KeyGrant, KeyState, issue, matches, parse, state_of
from appliance.identity import ApiKey, Scope
from appliance.secrets import SecretBytes

NOW = datetime(2026, 1, 2, tzinfo=UTC)
PEPPER = SecretBytes(b"p" * 32)
GRANT = KeyGrant(tenant_id="local", name="test", scopes=(Scope.GENERATE,), models=("m",))


def new_key() -> tuple[ApiKey, str]:
    return issue(GRANT, PEPPER, NOW)


def test_a_new_key_is_accepted_and_its_record_holds_no_secret() -> None:
    key, text = new_key()
    parsed = parse(text)
    assert parsed is not None
    assert parsed.id == key.id
    assert matches(key, parsed, PEPPER)
    secret = text.split("_")[2]
    assert secret.encode() not in key.secret_hash
    assert secret not in repr(parsed)
    assert (key.tenant_id, key.models, key.created_at) == ("local", ("m",), NOW)


def test_keys_are_as_long_and_as_random_as_they_should_be() -> None:
    texts = {new_key()[1] for _ in range(200)}
    assert len(texts) == 200
    assert {tuple(map(len, text.split("_"))) for text in texts} == {(3, 12, 43, 6)}


@given(st.integers(0, 66), st.sampled_from("0aZ_-ğ \n"))
def test_a_key_with_any_character_changed_is_rejected_without_the_store(
    place: int, char: str
) -> None:
    text = _TEXT[:place] + char + _TEXT[place + 1 :]
    assert parse(text) is None or text == _TEXT


_TEXT = new_key()[1]


@pytest.mark.parametrize("text", ["", "hsr_", _TEXT[:-1], _TEXT + "0", f" {_TEXT}", f"{_TEXT}\n"])
def test_what_is_no_key_is_rejected(text: str) -> None:
    assert parse(text) is None


@given(st.text())
def test_any_text_is_a_key_or_none(text: str) -> None:
    assert parse(text) is None


def test_another_secret_another_key_or_another_pepper_is_wrong() -> None:
    key, text = new_key()
    other_key, other_text = new_key()
    parsed, other = parse(text), parse(other_text)
    assert parsed is not None
    assert other is not None
    assert not matches(key, other, PEPPER)
    assert not matches(other_key, parsed, PEPPER)
    assert not matches(key, parsed, SecretBytes(b"q" * 32))


def test_a_key_is_active_until_it_expires_or_is_revoked() -> None:
    key, _ = new_key()
    assert state_of(key, NOW) is KeyState.ACTIVE
    expiring = replace(key, expires_at=NOW)
    assert state_of(expiring, NOW - timedelta(seconds=1)) is KeyState.ACTIVE
    assert state_of(expiring, NOW) is KeyState.EXPIRED
    assert state_of(replace(expiring, revoked_at=NOW), NOW) is KeyState.REVOKED
