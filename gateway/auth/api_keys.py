"""Callers by their API key.

Unknown, mistyped, expired and revoked keys are told the same, so that a guesser learns nothing.
"""

from appliance import api_keys
from appliance.clock import Now
from appliance.errors import RequestError
from appliance.identity import ApiKey, Limits, Principal
from appliance.secrets import SecretBytes
from appliance.store.key_cache import KeySource


class ApiKeys:
    """The keys of the box; `source` says what is stored of one."""

    def __init__(
        self, source: KeySource, pepper: SecretBytes, default_limits: Limits, now: Now
    ) -> None:
        self._source = source
        self._pepper = pepper
        self._default_limits = default_limits
        self._now = now

    async def identify(self, text: str) -> Principal:
        """The key's owner. Raises RequestError 401, and StoreError where the store cannot say."""
        parsed = api_keys.parse(text)
        key = await self._source.get(parsed.id) if parsed else None
        if parsed is None or key is None or not self._is_good(key, parsed):
            raise RequestError(
                "auth.invalid_key",
                "a valid API key is required: `authorization: Bearer KEY`",
                status=401,
            )
        return self._principal(key)

    def _is_good(self, key: ApiKey, parsed: api_keys.ParsedKey) -> bool:
        is_own = api_keys.matches(key, parsed, self._pepper)
        return is_own and api_keys.state_of(key, self._now()) is api_keys.KeyState.ACTIVE

    def _principal(self, key: ApiKey) -> Principal:
        own, default = key.limits, self._default_limits
        limits = Limits(
            tokens_per_minute=_first(own.tokens_per_minute, default.tokens_per_minute),
            requests_in_flight=_first(own.requests_in_flight, default.requests_in_flight),
        )
        return Principal(
            id=key.id,
            tenant_id=key.tenant_id,
            scopes=key.scopes,
            models=key.models,
            limits=limits,
        )


def _first(own: int | None, default: int | None) -> int | None:
    return default if own is None else own
