"""Who is calling: tenant, principal, key, scopes, limits."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

# What every database keeps as an integer.
Bound = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class Scope(StrEnum):
    """What a principal may do. A role is a set of scopes."""

    GENERATE = "generate"
    ADMIN = "admin"


# What a person or a service is in the identity provider's words.
Role = Literal["admin", "user"]
SCOPES_OF: Final[Mapping[Role, tuple[Scope, ...]]] = {
    "admin": (Scope.GENERATE, Scope.ADMIN),
    "user": (Scope.GENERATE,),
}


class Limits(Struct, frozen=True, kw_only=True):
    """Upper bounds for one principal. None means: no bound of its own."""

    tokens_per_minute: Bound | None = None
    requests_in_flight: Bound | None = None


class Tenant(Struct, frozen=True, kw_only=True):
    """A team whose data, caches and limits are its own."""

    id: str
    name: str


class ApiKey(Struct, frozen=True, kw_only=True):
    """A key as the store knows it: the secret's keyed hash, never the secret.

    `models` lists the exact model names or aliases it may use; an empty tuple means all of them.
    """

    id: str
    tenant_id: str
    name: str
    secret_hash: bytes
    scopes: tuple[Scope, ...]
    models: tuple[str, ...] = ()
    limits: Limits = Limits()
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


class Principal(Struct, frozen=True, kw_only=True):
    """An authenticated caller."""

    id: str
    tenant_id: str
    scopes: tuple[Scope, ...]
    models: tuple[str, ...] = ()
    limits: Limits = Limits()
