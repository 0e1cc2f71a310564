"""A token that was good is known until it ends or its key is another."""

from jwt import PyJWK

from appliance.identity import Principal
from gateway.auth.known_tokens import _MAX_TOKENS, KnownTokens
from tests.gateway.auth.signing import jwk

BEARER = Principal(id="p", tenant_id="t", scopes=())
KEY, SAME_KEY_FETCHED_AGAIN = PyJWK(jwk("one")), PyJWK(jwk("one"))


def test_it_is_known_until_it_ends() -> None:
    known = KnownTokens()
    known.keep("token", KEY, 100.0, BEARER)
    assert known.find("token", KEY, 99.9) is BEARER
    assert known.find("token", KEY, 100.0) is None
    assert known.find("token2", KEY, 0.0) is None


def test_it_is_judged_anew_when_keys_were_fetched() -> None:
    known = KnownTokens()
    known.keep("token", KEY, 100.0, BEARER)
    assert known.find("token", SAME_KEY_FETCHED_AGAIN, 0.0) is None
    known.keep("token", SAME_KEY_FETCHED_AGAIN, 100.0, BEARER)
    assert known.find("token", SAME_KEY_FETCHED_AGAIN, 0.0) is BEARER


def test_the_latest_are_kept_and_none_as_text() -> None:
    known = KnownTokens()
    for number in range(_MAX_TOKENS + 1):
        known.keep(f"token {number}", KEY, 100.0, BEARER)
    assert known.find("token 0", KEY, 0.0) is None
    assert known.find("token 1", KEY, 0.0) is BEARER
    assert known.find(f"token {_MAX_TOKENS}", KEY, 0.0) is BEARER
    assert not any(isinstance(kept, str) for kept in known._known)
