"""What the realm publishes about itself: where its keys are, and which of them may sign tokens."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
from jwt import PyJWK, PyJWTError
from msgspec import Struct

from appliance.errors import ConfigError, MachineError

# Public keys only: with a shared secret whoever can check a token can make one.
ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
_PATIENCE_S: Final = 5.0
_MAX_BYTES: Final = 1024 * 1024


class _Metadata(Struct, frozen=True):
    """What is used of OpenID Connect's discovery document."""

    issuer: str
    jwks_uri: str


class _KeyList(Struct, frozen=True):
    """A JSON Web Key Set (RFC 7517, section 5)."""

    keys: list[dict[str, Any]]


class Realm:
    """A Keycloak realm, seen from outside. Raises ConfigError for an unusable `ca_file`."""

    def __init__(self, issuer: str, ca_file: str) -> None:
        self._issuer = issuer
        self._trusted = _trusted(ca_file)

    async def fetch_keys(self) -> dict[str, PyJWK]:
        """The keys that may sign tokens, by `kid`. Raises MachineError."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await self._fetch_keys()
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise _unusable(f"cannot be reached ({type(error).__name__})") from error
        except msgspec.MsgspecError as error:
            raise _unusable("does not answer as a realm does") from error

    async def _fetch_keys(self) -> dict[str, PyJWK]:
        # The provider is inside: proxies that lead outside are not its way.
        async with httpx.AsyncClient(verify=self._trusted, trust_env=False) as client:
            address = f"{self._issuer}/.well-known/openid-configuration"
            metadata = msgspec.json.decode(await _get(client, address), type=_Metadata)
            if metadata.issuer != self._issuer:
                raise _unusable("calls itself by another issuer than identity.issuer")
            if self._issuer.startswith("https:") and not metadata.jwks_uri.startswith("https:"):
                raise _unusable("gives its keys over plain HTTP")
            listed = msgspec.json.decode(await _get(client, metadata.jwks_uri), type=_KeyList)
        keys = dict(_signing_keys(listed))
        if not keys:
            raise _unusable("has no key that may sign tokens")
        return keys


def _signing_keys(listed: _KeyList) -> Iterator[tuple[str, PyJWK]]:
    for entry in listed.keys:
        kid = entry.get("kid")
        if isinstance(kid, str) and entry.get("use", "sig") == "sig" and entry.get("kty") != "oct":
            try:
                key = PyJWK(entry)
            except PyJWTError:
                continue  # of a kind that is not known here
            if key.algorithm_name in ALGORITHMS and not key.Algorithm.check_key_length(key.key):
                yield kid, key


async def _get(client: httpx.AsyncClient, address: str) -> bytes:
    body = bytearray()
    async with client.stream("GET", address, timeout=_PATIENCE_S) as answer:
        answer.raise_for_status()
        async for piece in answer.aiter_bytes():
            body += piece
            if len(body) > _MAX_BYTES:
                raise _unusable("answers more than a realm would")
    return bytes(body)


def _trusted(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(
            "identity.ca_unreadable",
            f"identity.ca_file: {Path(ca_file)} cannot be used as certificates: {error.strerror}",
            hint="a file of certificates in PEM form",
        ) from error


def _unusable(what: str) -> MachineError:
    return MachineError(
        "identity.provider_unusable",
        f"the identity provider {what}",
        hint="look at identity.issuer and identity.ca_file",
    )
