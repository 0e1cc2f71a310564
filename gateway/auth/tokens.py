"""Whether a token is good: JSON Web Tokens of one realm, checked here and now with its public keys.

The signature is judged first, so that only who holds a token of the realm is told what is wrong
with it. Only the realm's keys count, never what a token brings along (`jwk`, `jku`, `x5u`): RFC
8725. Keycloak's `typ` tells an access token from identity and refresh tokens, no credentials here.
"""

import binascii
import logging
from base64 import urlsafe_b64decode
from typing import Any, Final

import jwt
import msgspec
from msgspec import Struct

from appliance.clock import Now
from appliance.config import IdentityConfig
from appliance.errors import RequestError
from appliance.identity import Limits, Principal
from appliance.metrics import Metrics
from gateway.auth.claims import to_principal
from gateway.auth.key_set import KeySet
from gateway.auth.known_tokens import KnownTokens
from gateway.auth.realm import ALGORITHMS

_CREDENTIAL: Final = "Bearer"
_UNSIGNED: Final = "signature"
_REQUIRED: Final = ("exp", "iat", "iss", "aud", "sub")

# What a bearer is told, by what the library found; the first that fits.
_FAULTS: Final[tuple[tuple[type[jwt.InvalidTokenError], str, str], ...]] = (
    (jwt.ExpiredSignatureError, "expired", "has expired"),
    (jwt.ImmatureSignatureError, "not_yet_valid", "is not valid yet; do the clocks agree?"),
    (jwt.InvalidIssuerError, "issuer", "is of another issuer"),
    (jwt.InvalidAudienceError, "audience", "is not made for this box (aud)"),
    (jwt.InvalidSignatureError, _UNSIGNED, "is not signed by the realm"),
    (jwt.InvalidAlgorithmError, _UNSIGNED, "is not signed by the realm"),
    (jwt.InvalidTokenError, "claims", "lacks a claim, or one is malformed"),
)

_log: Final = logging.getLogger(__name__)


class _Header(Struct, frozen=True):
    alg: str
    kid: str


_HEADERS: Final = msgspec.json.Decoder(_Header)


class Tokens:
    """The tokens of one realm."""

    def __init__(
        self, config: IdentityConfig, keys: KeySet, limits: Limits, metrics: Metrics, now: Now
    ) -> None:
        self._config = config
        self._keys = keys
        self._limits = limits
        self._metrics = metrics
        self._now = now
        self._known = KnownTokens()

    async def identify(self, token: str) -> Principal:
        """The bearer. Raises RequestError 401 for a bad token, 403 for one without a tenant, and
        503 where the realm's keys could not be had yet."""
        header = _read_header(token)
        key = None
        if header is not None and header.alg in ALGORITHMS:
            key = await self._keys.find(header.kid)
        if key is None:
            raise self._refusal(_UNSIGNED, "is not signed by the realm")
        known = self._known.find(token, key, self._now().timestamp())
        return known or self._judge(token, key)

    def _judge(self, token: str, key: jwt.PyJWK) -> Principal:
        claims = self._verify(token, key)
        if claims.get("typ") != _CREDENTIAL:
            raise self._refusal("type", "is no access token (typ)")
        allowed = self._config.authorized_parties
        if allowed and claims.get("azp") not in allowed:
            raise self._refusal("client", "was given to a client that may not use this box (azp)")
        if not (claims["sub"] and claims["sub"].isprintable()):
            raise self._refusal("claims", "names no bearer (sub)")
        principal = to_principal(claims, self._config, self._limits)
        self._known.keep(token, key, int(claims["exp"]) + self._config.leeway_s, principal)
        return principal

    def _verify(self, token: str, key: jwt.PyJWK) -> dict[str, Any]:
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=self._config.audience,
                issuer=self._config.issuer,
                leeway=self._config.leeway_s,
                options={"require": list(_REQUIRED)},
            )
        except jwt.InvalidTokenError as error:
            reason, told = next(rest for kind, *rest in _FAULTS if isinstance(error, kind))
            raise self._refusal(reason, told) from None
        return claims

    def _refusal(self, reason: str, told: str) -> RequestError:
        self._metrics.tokens_refused.labels(reason).inc()
        _log.info("a token was refused: %s", reason)
        code = "auth.token_expired" if reason == "expired" else "auth.invalid_token"
        return RequestError(code, f"the token {told}", status=401)


def _read_header(token: str) -> _Header | None:
    """Which key the token says it is signed with; None where it is no token."""
    text = token.partition(".")[0]
    try:
        return _HEADERS.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, binascii.Error, msgspec.MsgspecError, RecursionError):
        return None
