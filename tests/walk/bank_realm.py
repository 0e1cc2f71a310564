"""A bank's realm on a real Keycloak: people, groups, clients, and the tokens they are given."""

from typing import Any, Final

import httpx
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWKClient, get_unverified_header
from keycloak import KeycloakAdmin

from appliance.config import IdentityConfig
from appliance.keycloak_realm import Administrator, RealmKeeper
from appliance.secrets import SecretBytes
from tests.keycloak_server import ADMIN, PASSWORD, KeycloakServer
from tests.walk.running_box import CONFIG

NIGHTLY_SECRET: Final = "of-the-nightly-job"
_PERSON: Final = "open sesame"
_SCOPE: Final = "hisar"
# Clients of the bank's own: who logs in with a password, a job by itself, and two that may not.
_CLIENTS: Final[dict[str, dict[str, Any]]] = {
    "desk": {"publicClient": True, "directAccessGrantsEnabled": True},
    "nightly": {"secret": NIGHTLY_SECRET, "serviceAccountsEnabled": True},
    "stray": {"publicClient": True, "directAccessGrantsEnabled": True},
    "foreign": {"publicClient": True, "directAccessGrantsEnabled": True},
}
_PEOPLE: Final = {
    "ayse": ("/bank/treasury",),
    "mehmet": ("/bank/credit", "/bank/it"),
    "zeynep": ("/bank/treasury/interns",),
    "deniz": ("/other/treasury",),
    "can": (),
    "both": ("/bank/treasury", "/bank/credit"),
    "foreign-admin": ("/bank/treasury",),
}


class BankRealm:
    """The realm `bank`, set up as the manual says."""

    def __init__(self, server: KeycloakServer) -> None:
        self.server = server
        self.config = IdentityConfig(
            issuer=f"{server.url}/realms/bank",
            audience="hisar",
            authorized_parties=("hisar-cli", "desk", "nightly"),
            group_tenants={"/bank/treasury": "treasury", "/bank/credit": "credit"},
            group_roles={"/bank/it": "admin"},
        )
        self.made_first = self.keeper().provision()
        self.admin = KeycloakAdmin(
            server_url=server.url,
            username=ADMIN,
            password=PASSWORD,
            user_realm_name="master",
            realm_name="bank",
        )
        self._make_clients()
        self.made_then = self.keeper().provision()
        self._make_people()

    def keeper(self) -> RealmKeeper:
        """The realm as `hisar identity bootstrap` holds it."""
        secret = SecretBytes(PASSWORD.encode())
        return RealmKeeper(self.config, Administrator(name=ADMIN, password=secret))

    def box_config(self) -> str:
        """The configuration of a box that takes this realm's tokens."""
        return f"""{CONFIG}
[identity]
issuer = "{self.config.issuer}"
audience = "hisar"
authorized_parties = ["hisar-cli", "desk", "nightly"]
group_tenants = {{"/bank/treasury" = "treasury", "/bank/credit" = "credit"}}
group_roles = {{"/bank/it" = "admin"}}
"""

    def login(self, person: str, client: str = "desk", kind: str = "access_token") -> str:
        """A token for a person."""
        return self._token(
            kind,
            grant_type="password",
            client_id=client,
            username=person,
            password=_PERSON,
            scope="openid",
        )

    def login_service(self) -> str:
        """A token for the nightly job itself."""
        return self._token(
            "access_token",
            grant_type="client_credentials",
            client_id="nightly",
            client_secret=NIGHTLY_SECRET,
        )

    def public_key(self, token: str) -> tuple[str, RSAPublicKey]:
        """The name of the key that a token is signed with, and what the realm publishes of it."""
        kid = get_unverified_header(token)["kid"]
        published = PyJWKClient(f"{self.config.issuer}/protocol/openid-connect/certs")
        key = published.get_signing_key(kid).key
        assert isinstance(key, RSAPublicKey)
        return kid, key

    def rotate_key(self) -> None:
        """Make a new key, with which tokens are signed from now on; the old one is still known."""
        num_keys = len(self.admin.get_keys()["keys"])
        self.admin.create_component(
            {
                "name": f"rotated-{num_keys}",
                "providerId": "rsa-generated",
                "providerType": "org.keycloak.keys.KeyProvider",
                "config": {"priority": [str(1000 + num_keys)], "keySize": ["2048"]},
            }
        )

    def leave_group(self, person: str, path: str) -> None:
        """Take a person out of a group."""
        group = self.admin.get_group_by_path(path)["id"]
        self.admin.group_user_remove(self.admin.get_user_id(person), group)

    def _token(self, kind: str, **form: str) -> str:
        where = f"{self.config.issuer}/protocol/openid-connect/token"
        answer = httpx.post(where, data=form, timeout=30, trust_env=False)
        answer.raise_for_status()
        token: str = answer.json()[kind]
        return token

    def _make_clients(self) -> None:
        for name, settings in _CLIENTS.items():
            self.admin.create_client({"clientId": name, **settings})
        stray = self.admin.get_client_id("stray")
        scope = self.admin.get_client_scope_by_name(_SCOPE)
        self.admin.add_client_default_client_scope(stray, scope["id"], {})
        foreign = self.admin.get_client_id("foreign")
        self.admin.create_client_role(foreign, {"name": "admin"})

    def _make_people(self) -> None:
        box = self.admin.get_client_id("hisar")
        role = self.admin.get_client_role(box, "user")
        for name, groups in _PEOPLE.items():
            person = self.admin.create_user(
                {
                    "username": name,
                    "enabled": True,
                    "email": f"{name}@bank.example",
                    "firstName": name,
                    "lastName": "Test",
                    "credentials": [{"type": "password", "value": _PERSON}],
                }
            )
            for path in groups:
                self.admin.group_user_add(person, self._group(path))
            if name in {"ayse", "zeynep", "deniz", "both"}:
                self.admin.assign_client_role(person, box, [role])
        foreign = self.admin.get_client_id("foreign")
        theirs = self.admin.get_client_role(foreign, "admin")
        self.admin.assign_client_role(self.admin.get_user_id("foreign-admin"), foreign, [theirs])
        account = self.admin.get_client_service_account_user(self.admin.get_client_id("nightly"))
        self.admin.group_user_add(account["id"], self._group("/bank/credit"))
        self.admin.assign_client_role(account["id"], box, [role])

    def _group(self, path: str) -> str:
        parent, _, name = path.rpartition("/")
        groups = self._children(parent)
        if name not in groups:
            self.admin.create_group({"name": name}, self._group(parent) if parent else None)
            groups = self._children(parent)
        return groups[name]

    def _children(self, parent: str) -> dict[str, str]:
        if parent:
            found = self.admin.get_group_children(self._group(parent))
        else:
            found = self.admin.get_groups()
        return {group["name"]: group["id"] for group in found}
