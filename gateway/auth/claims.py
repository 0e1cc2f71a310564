"""What a verified token says about its bearer: tenant, roles, name. Pure.

Groups count by their full path, letter by letter: `/hr/admins` and `/finance/admins` end alike and
mean different people, and who is in `/bank/it/guests` need not be in `/bank/it`. A value of an
unexpected type counts as absent. What is not mapped means nothing.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias, get_args

from appliance.config import IdentityConfig
from appliance.errors import RequestError
from appliance.identity import SCOPES_OF, Limits, Principal, Role

Claims: TypeAlias = Mapping[str, Any]

_TENANT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ROLES: Final[tuple[Role, ...]] = get_args(Role)

_log: Final = logging.getLogger(__name__)


def to_principal(claims: Claims, config: IdentityConfig, limits: Limits) -> Principal:
    """The caller. Raises RequestError 403 where no tenant, or more than one, is meant."""
    roles = _roles_of(claims, config)
    scopes = dict.fromkeys(scope for role in roles for scope in SCOPES_OF[role])
    return Principal(
        id=claims["sub"],
        tenant_id=_tenant_of(claims, config),
        scopes=tuple(scopes),
        limits=limits,
    )


def _roles_of(claims: Claims, config: IdentityConfig) -> list[Role]:
    given = set(_words(claims, "realm_access", "roles"))
    client = config.roles_client or config.audience
    given.update(_words(claims, "resource_access", client, "roles"))
    given.update(config.group_roles.get(group, "") for group in _words(claims, "groups"))
    return [role for role in _ROLES if role in given]


def _tenant_of(claims: Claims, config: IdentityConfig) -> str:
    named = set(_words(claims, config.tenant_claim)) if config.tenant_claim else set()
    tenants = {name for name in named if _TENANT.fullmatch(name)} or {
        config.group_tenants[group]
        for group in _words(claims, "groups")
        if group in config.group_tenants
    }
    if len(tenants) > 1:
        raise RequestError(
            "auth.several_tenants",
            "this token belongs to more than one tenant",
            status=403,
            hint="one group of its bearer too many is mapped",
        )
    for tenant in tenants:
        return tenant
    raise RequestError(
        "auth.no_tenant",
        "this token belongs to no tenant of this box",
        status=403,
        hint="its bearer is in no group that is mapped to one",
    )


def _words(claims: Claims, *path: str) -> Iterator[str]:
    """The texts at a place in the claims; one alone is a list of one."""
    value: Any = claims
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from (word for word in value if isinstance(word, str))
    elif value is not None:
        _log.warning("a token's %s are no list and count as none", ".".join(path))
