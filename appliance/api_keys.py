"""What an API key looks like, how one is made, and when one is right.

    hsr_<public id, 12>_<secret, 43>_<checksum, 6>        all base 62

The public id finds the key in the store and may be shown. The secret is 256 random bits, kept only
as HMAC-SHA256 under the box's pepper; a fast hash is right because nobody chose the secret. The
checksum (CRC-32 of all before it) rejects typos before the store is asked, and lets secret scanners
recognise a leaked key.
"""

import hmac
import re
import secrets
import string
from datetime import datetime
from enum import StrEnum
from typing import Final
from zlib import crc32

from msgspec import Struct

from appliance.identity import ApiKey, Limits, Scope
from appliance.secrets import SecretBytes

_DIGITS: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_ID_LENGTH: Final = 12
_SECRET_BITS: Final = 256
_SECRET_LENGTH: Final = 43
_CHECKSUM_LENGTH: Final = 6
_KEY: Final = re.compile(
    rf"(hsr_([0-9A-Za-z]{{{_ID_LENGTH}}})_([0-9A-Za-z]{{{_SECRET_LENGTH}}}))"
    rf"_([0-9A-Za-z]{{{_CHECKSUM_LENGTH}}})"
)


class KeyState(StrEnum):
    """Whether a key may be used now."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


class KeyGrant(Struct, frozen=True, kw_only=True):
    """What a new key shall be allowed. No models means: all of them."""

    tenant_id: str
    name: str
    scopes: tuple[Scope, ...]
    models: tuple[str, ...] = ()
    limits: Limits = Limits()
    expires_at: datetime | None = None


class ParsedKey(Struct, frozen=True, kw_only=True):
    """A well-formed key as a caller sent it."""

    id: str
    secret: SecretBytes


def issue(grant: KeyGrant, pepper: SecretBytes, now: datetime) -> tuple[ApiKey, str]:
    """Make a key: what the store keeps, and the full text, to be shown once and then forgotten."""
    public_id = "".join(secrets.choice(_DIGITS) for _ in range(_ID_LENGTH))
    secret = _base62(secrets.randbits(_SECRET_BITS), _SECRET_LENGTH)
    key = ApiKey(
        id=public_id,
        tenant_id=grant.tenant_id,
        name=grant.name,
        secret_hash=_keyed_hash(secret.encode(), pepper),
        scopes=grant.scopes,
        models=grant.models,
        limits=grant.limits,
        created_at=now,
        expires_at=grant.expires_at,
    )
    body = f"hsr_{public_id}_{secret}"
    return key, f"{body}_{_checksum(body)}"


def parse(text: str) -> ParsedKey | None:
    """Take a key apart; None when it is not one, or its checksum says that it was mistyped."""
    found = _KEY.fullmatch(text)
    if found is None or _checksum(found[1]) != found[4]:
        return None
    return ParsedKey(id=found[2], secret=SecretBytes(found[3].encode()))


def matches(key: ApiKey, parsed: ParsedKey, pepper: SecretBytes) -> bool:
    """Whether the secret is the key's own; takes the same time wherever they differ."""
    given = _keyed_hash(parsed.secret.reveal(), pepper)
    return hmac.compare_digest(key.secret_hash, given) and key.id == parsed.id


def state_of(key: ApiKey, now: datetime) -> KeyState:
    """Whether the key may be used at `now`. Revoked outweighs expired."""
    if key.revoked_at is not None:
        return KeyState.REVOKED
    if key.expires_at is not None and key.expires_at <= now:
        return KeyState.EXPIRED
    return KeyState.ACTIVE


def _keyed_hash(secret: bytes, pepper: SecretBytes) -> bytes:
    return hmac.digest(pepper.reveal(), secret, "sha256")


def _checksum(body: str) -> str:
    return _base62(crc32(body.encode()), _CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
