"""Tokens that were found good lately: a signature takes longer to check than all else at the door.

Kept by their digest, never as text, until they end, and only while the key that signed them is the
one in the set: whenever the realm's keys are fetched, every token is judged anew.
"""

from collections import OrderedDict
from hashlib import sha256
from typing import Final

from jwt import PyJWK
from msgspec import Struct

from appliance.identity import Principal

_MAX_TOKENS: Final = 4096


class _Known(Struct, frozen=True, kw_only=True):
    key: PyJWK
    ends_at: float
    principal: Principal


class KnownTokens:
    """The bearers of good tokens, of the latest ones. Times are seconds since 1970."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    def find(self, token: str, key: PyJWK, now: float) -> Principal | None:
        """The bearer, where this token was found good with this key and has not ended."""
        known = self._known.get(_digest(token))
        if known is None or known.key is not key or known.ends_at <= now:
            return None
        return known.principal

    def keep(self, token: str, key: PyJWK, ends_at: float, principal: Principal) -> None:
        """Remember a token that was found good."""
        digest = _digest(token)
        self._known[digest] = _Known(key=key, ends_at=ends_at, principal=principal)
        self._known.move_to_end(digest)
        if len(self._known) > _MAX_TOKENS:
            self._known.popitem(last=False)


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()
