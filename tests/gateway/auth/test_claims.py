"""What a token says of its bearer: groups are matched whole, and what is not mapped is nothing."""

import logging
from typing import Any

import pytest

from appliance.config import IdentityConfig
from appliance.errors import RequestError
from appliance.identity import Limits, Scope
from gateway.auth.claims import to_principal

CONFIG = IdentityConfig(
    audience="hisar",
    group_tenants={"/bank/treasury": "treasury", "/bank/credit": "credit"},
    group_roles={"/ai/admins": "admin"},
)
GENERATE, ALL = (Scope.GENERATE,), (Scope.GENERATE, Scope.ADMIN)


def scopes_of(**claims: Any) -> tuple[Scope, ...]:
    config = IdentityConfig(tenant_claim="tenant", group_roles=CONFIG.group_roles, audience="hisar")
    return to_principal({"sub": "s", "tenant": "t", **claims}, config, Limits()).scopes


def tenant_of(config: IdentityConfig = CONFIG, **claims: Any) -> str:
    return to_principal({"sub": "s", **claims}, config, Limits()).tenant_id


def refusal_of(config: IdentityConfig = CONFIG, **claims: Any) -> str:
    with pytest.raises(RequestError) as refused:
        tenant_of(config, **claims)
    assert refused.value.status == 403
    return refused.value.code


@pytest.mark.parametrize(
    ("groups", "scopes"),
    [
        (["/ai/admins"], ALL),
        (["/ai/admins", "ai/admins"], ALL),
        (["/ai/admins", "/ai/admins"], ALL),
        (["/other"] * 500 + ["/ai/admins"], ALL),
        ("/ai/admins", ALL),
        (["ai/admins"], ()),
        (["admins"], ()),
        ("admins", ()),
        (["/other/admins"], ()),
        (["/AI/Admins"], ()),
        (["/ai/admins/"], ()),
        (["/ai/admins/guests"], ()),
        (["/ai/admin"], ()),
        (["/ai"], ()),
        (["/ai//admins"], ()),
        (["/ai/admins\u200b"], ()),
        (["/ai/admıns"], ()),
        ({"0": "/ai/admins"}, ()),
        ([["/ai/admins"], 7, None, {"path": "/ai/admins"}], ()),
        (7, ()),
        (None, ()),
    ],
)
def test_only_the_full_path_of_a_group_counts(groups: Any, scopes: tuple[Scope, ...]) -> None:
    """keycloak/keycloak#23900, keycloak/keycloak#51865, rancher/rancher#55858,
    nebari-dev/nebi#370, open-webui/open-webui#16635: leaves, children and bare names were taken
    for the group itself."""
    assert scopes_of(groups=groups) == scopes


def test_a_wrong_type_is_no_groups_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert scopes_of(groups={"0": "/ai/admins"}) == ()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "/ai/admins" not in caplog.text


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"realm_access": {"roles": ["user"]}}, GENERATE),
        ({"realm_access": {"roles": ["admin", "user"]}}, ALL),
        ({"resource_access": {"hisar": {"roles": ["admin"]}}}, ALL),
        ({"resource_access": {"hisar": {"roles": "user"}}}, GENERATE),
        ({"resource_access": {"realm-management": {"roles": ["admin"]}}}, ()),
        ({"resource_access": {"hisar2": {"roles": ["admin"]}}}, ()),
        ({"resource_access": {"roles": ["admin"]}}, ()),
        ({"resource_access": ["admin"]}, ()),
        ({"realm_access": {"roles": ["realm-admin", "Admin", "admins", "user "]}}, ()),
        ({"realm_access": ["admin"]}, ()),
        ({"realm_access": None, "roles": ["admin"], "scope": "admin"}, ()),
        ({}, ()),
    ],
)
def test_roles_are_those_of_the_realm_and_of_one_client(
    claims: dict[str, Any], scopes: tuple[Scope, ...]
) -> None:
    """open-webui/open-webui#13676: without a role everybody was in."""
    assert scopes_of(**claims) == scopes


def test_another_client_s_roles_count_where_it_is_named() -> None:
    config = IdentityConfig(audience="hisar", roles_client="desk", tenant_claim="tenant")
    access = {"desk": {"roles": ["user"]}, "hisar": {"roles": ["admin"]}}
    claims = {"sub": "s", "tenant": "t", "resource_access": access}
    assert to_principal(claims, config, Limits()).scopes == GENERATE


def test_a_tenant_is_the_one_that_the_groups_are_mapped_to() -> None:
    assert tenant_of(groups=["/bank/treasury", "/bank", "/elsewhere"]) == "treasury"
    assert tenant_of(groups="/bank/credit") == "credit"


@pytest.mark.parametrize(
    "groups", [None, [], ["treasury"], ["/bank/treasury/interns"], ["/bank/Treasury"]]
)
def test_who_is_in_no_mapped_group_has_no_tenant(groups: Any) -> None:
    assert refusal_of(groups=groups) == "auth.no_tenant"


def test_two_tenants_are_none() -> None:
    assert refusal_of(groups=["/bank/treasury", "/bank/credit"]) == "auth.several_tenants"


def test_a_claim_names_the_tenant_before_groups_do() -> None:
    config = IdentityConfig(tenant_claim="tenant", group_tenants=CONFIG.group_tenants)
    groups = ["/bank/treasury"]
    assert tenant_of(config, tenant="pharmacy", groups=groups) == "pharmacy"
    assert tenant_of(config, tenant=["pharmacy"]) == "pharmacy"
    assert tenant_of(config, groups=groups) == "treasury"
    assert refusal_of(config, tenant=["a", "b"]) == "auth.several_tenants"


@pytest.mark.parametrize("tenant", ["", " ", "a b", "../x", "ünal", "x" * 65, 7, {"id": "t"}, True])
def test_a_claim_that_is_no_name_is_no_tenant(tenant: Any) -> None:
    assert refusal_of(IdentityConfig(tenant_claim="tenant"), tenant=tenant) == "auth.no_tenant"


def test_a_tenant_claim_counts_only_where_it_is_configured() -> None:
    assert refusal_of(tenant="treasury", tenant_id="treasury") == "auth.no_tenant"
