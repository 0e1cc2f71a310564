"""What the box needs of its Keycloak realm, and how an administrator has it made.

    the audience's client   nobody logs in with it; its roles are the box's
    client scope `hisar`    writes the audience and the groups, by full path, into access tokens
    client `hisar-cli`      logs people in from a terminal: device grant, or a browser with PKCE
    groups                  those that are mapped to tenants and roles

What is there stays as it is, but for the scope's mappers, on which it depends whom the box lets in.
This is the only file that knows python-keycloak, and no request passes here.
"""

from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from appliance.config import IdentityConfig
from appliance.errors import MachineError
from appliance.identity import SCOPES_OF
from appliance.secrets import SecretBytes

CLI_CLIENT: Final = "hisar-cli"
_SCOPE: Final = "hisar"
_PATIENCE_S: Final = 30
_OPENID: Final = {"protocol": "openid-connect"}
_NO_LOGIN: Final = {
    "publicClient": False,
    "standardFlowEnabled": False,
    "directAccessGrantsEnabled": False,
    "serviceAccountsEnabled": False,
}
_CLI: Final = {
    "clientId": CLI_CLIENT,
    "name": "Hisar in the terminal",
    "publicClient": True,
    "directAccessGrantsEnabled": False,
    "redirectUris": ["http://127.0.0.1/*"],
    "attributes": {
        "oauth2.device.authorization.grant.enabled": "true",
        "pkce.code.challenge.method": "S256",
    },
}


class Administrator(Struct, frozen=True, kw_only=True):
    """Who changes the realm; `realm` is the one that knows him."""

    name: str
    password: SecretBytes
    realm: str = "master"


class RealmKeeper:
    """A realm, with the right to change it."""

    def __init__(self, config: IdentityConfig, administrator: Administrator) -> None:
        try:
            from keycloak import KeycloakAdmin
        except ModuleNotFoundError as error:
            raise MachineError(
                "identity.no_library",
                "python-keycloak is not installed",
                hint="install the box with its `server` extra",
            ) from error
        server, _, self._name = config.issuer.rpartition("/realms/")
        self._config = config
        self._admin = KeycloakAdmin(
            server_url=server,
            username=administrator.name,
            password=administrator.password.reveal().decode(),
            user_realm_name=administrator.realm,
            realm_name=administrator.realm,
            verify=config.ca_file or True,
            timeout=_PATIENCE_S,
        )

    def provision(self) -> tuple[str, ...]:
        """Make what is missing; what was made, in words. A second time there is nothing to make.

        Raises MachineError `identity.not_provisioned` or `identity.misleading_group`.
        """
        from keycloak.exceptions import KeycloakError

        try:
            return tuple(self._provision())
        except KeycloakError as error:
            status = f" (HTTP {error.response_code})" if error.response_code else ""
            raise MachineError(
                "identity.not_provisioned",
                f"Keycloak refused, or did not answer{status}",
                hint="look at identity.issuer, and whether this administrator may change the realm",
            ) from error

    def _provision(self) -> Iterator[str]:
        yield from self._make_realm()
        box, made = self._client({"clientId": self._config.audience, "name": "Hisar", **_NO_LOGIN})
        yield from made
        yield from self._make_roles(box)
        scope, made = self._make_scope()
        yield from made
        yield from self._make_mappers(scope)
        for client in self._config.authorized_parties or (CLI_CLIENT,):
            yield from self._admit(client, scope)
        for path in sorted({*self._config.group_tenants, *self._config.group_roles}):
            yield from self._make_groups(path)

    def _make_realm(self) -> Iterator[str]:
        names = {realm["realm"] for realm in self._admin.get_realms()}
        if self._name not in names:
            self._admin.create_realm({"realm": self._name, "enabled": True})
            yield f"realm {self._name}"
        self._admin.change_current_realm(self._name)

    def _client(self, wanted: dict[str, Any]) -> tuple[str, list[str]]:
        name = wanted["clientId"]
        found = self._admin.get_client_id(name)
        if found is not None:
            return found, []
        return self._admin.create_client({**_OPENID, **wanted}), [f"client {name}"]

    def _make_roles(self, client: str) -> Iterator[str]:
        there = {role["name"] for role in self._admin.get_client_roles(client)}
        for role in SCOPES_OF:
            if role not in there:
                self._admin.create_client_role(client, {"name": role})
                yield f"role {role} of {self._config.audience}"

    def _make_scope(self) -> tuple[str, list[str]]:
        found = self._admin.get_client_scope_by_name(_SCOPE)
        if found is not None:
            return found["id"], []
        attributes = {"include.in.token.scope": "false", "display.on.consent.screen": "false"}
        wanted = {"name": _SCOPE, "attributes": attributes, **_OPENID}
        return self._admin.create_client_scope(wanted), [f"client scope {_SCOPE}"]

    def _make_mappers(self, scope: str) -> Iterator[str]:
        there = {it["name"]: it for it in self._admin.get_mappers_from_client_scope(scope)}
        for wanted in _mappers(self._config.audience):
            found = there.get(wanted["name"])
            if found is None:
                self._admin.add_mapper_to_client_scope(scope, wanted)
                yield f"mapper {wanted['name']}"
            elif not wanted["config"].items() <= found["config"].items():
                changed = {**found, "config": {**found["config"], **wanted["config"]}}
                self._admin.update_mapper_in_client_scope(scope, found["id"], changed)
                yield f"mapper {wanted['name']}, set right"

    def _admit(self, name: str, scope: str) -> Iterator[str]:
        """Have tokens of that client carry what the scope writes."""
        client = self._admin.get_client_id(name)
        if client is None:
            if name != CLI_CLIENT:
                return  # A client of someone else's: whoever makes it gives it the scope.
            client, made = self._client(_CLI)
            yield from made
        scopes = self._admin.get_client_default_client_scopes(client)
        if scope not in {it["id"] for it in scopes}:
            self._admin.add_client_default_client_scope(client, scope, {})
            yield f"client scope {_SCOPE} of {name}"

    def _make_groups(self, path: str) -> Iterator[str]:
        parent: str | None = None
        so_far = ""
        while so_far != path:
            found = self._find_towards(path, parent)
            if found is None:
                name = path[len(so_far) + 1 :].partition("/")[0]
                found = {
                    "id": self._admin.create_group({"name": name}, parent),
                    "path": f"{so_far}/{name}",
                }
                yield f"group {found['path']}"
            parent, so_far = found["id"], found["path"]

    def _find_towards(self, path: str, parent: str | None) -> dict[str, Any] | None:
        """The group inside `parent` that is on the way to `path`."""
        groups = self._admin.get_group_children(parent) if parent else self._admin.get_groups()
        on_the_way = [it for it in groups if f"{path}/".startswith(f"{it['path']}/")]
        for group in on_the_way:
            if "/" in group["name"] and "~/" not in group["path"]:
                raise MachineError(
                    "identity.misleading_group",
                    f"a group is named {group['name']!r} and reads like a path of others",
                    hint="rename it, or have Keycloak escape slashes in paths of groups",
                )
        return on_the_way[0] if on_the_way else None


def _mappers(audience: str) -> tuple[dict[str, Any], ...]:
    return (
        {
            "name": "audience",
            "protocolMapper": "oidc-audience-mapper",
            "config": {"included.client.audience": audience, "access.token.claim": "true"},
            **_OPENID,
        },
        {
            "name": "groups",
            "protocolMapper": "oidc-group-membership-mapper",
            "config": {"claim.name": "groups", "full.path": "true", "access.token.claim": "true"},
            **_OPENID,
        },
    )
