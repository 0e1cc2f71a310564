"""Who is calling: the one way in, with an API key or, where a realm is configured, its token.

Either comes as `authorization: Bearer ...` or `x-api-key: ...`. No key holds a dot and every token
does, so each is judged by one of the two alone.
"""

from collections.abc import Mapping
from typing import Protocol

from appliance.errors import RequestError
from appliance.identity import Principal, Scope


class Identify(Protocol):
    """Knows callers by one kind of credential."""

    async def identify(self, text: str, /) -> Principal:
        """The caller. Raises RequestError 401 for what is no good credential."""


class Authenticator:
    """Knows callers by every kind of credential that this box takes."""

    def __init__(self, keys: Identify, tokens: Identify | None) -> None:
        self._keys = keys
        self._tokens = tokens

    async def authenticate(self, headers: Mapping[str, str], scope: Scope) -> Principal:
        """The caller, who must hold `scope`.

        Raises RequestError 401 for anything that is no good credential, 403 for a good one without
        the scope, and StoreError or RequestError 503 where nobody can say.
        """
        text = _presented(headers)
        known_by = self._tokens if self._tokens is not None and "." in text else self._keys
        principal = await known_by.identify(text)
        if scope not in principal.scopes:
            raise RequestError("auth.forbidden", "you may not do that", status=403)
        return principal


def _presented(headers: Mapping[str, str]) -> str:
    scheme, _, credential = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return credential.strip()
    return headers.get("x-api-key", "").strip()
