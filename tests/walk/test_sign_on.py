"""A box behind a real Keycloak: real tokens, keys that change, a provider that goes and comes."""

import json
import threading
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from appliance.audit.record import Received
from appliance.errors import MachineError
from tests.appliance.commands.conftest import Hisar
from tests.gateway.auth.signing import jwk, sign
from tests.keycloak_server import PASSWORD
from tests.walk.bank_realm import BankRealm
from tests.walk.running_box import RunningBox, running_box, wait_until

pytestmark = pytest.mark.keycloak

CHAT = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def bank_box(bank: BankRealm) -> Iterator[RunningBox]:
    """A box that takes the bank's tokens."""
    with running_box(bank.box_config()) as running:
        yield running


def chat(box: RunningBox, token: str) -> httpx.Response:
    with box.client(token) as client:
        return client.post("/v1/chat/completions", json=CHAT)


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def claims_of(token: str) -> dict[str, object]:
    text = token.split(".")[1]
    claims: dict[str, object] = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return claims


def test_the_realm_is_set_up_once(bank: BankRealm) -> None:
    assert {"realm bank", "client hisar", "role admin of hisar", "group /bank/it"} <= set(
        bank.made_first
    )
    assert set(bank.made_then) == {
        "client scope hisar of desk",
        "client scope hisar of nightly",
    }
    assert bank.keeper().provision() == ()


def test_a_mapper_that_was_bent_is_set_right(bank: BankRealm) -> None:
    scope = bank.admin.get_client_scope_by_name("hisar")["id"]
    (mapper,) = (
        it for it in bank.admin.get_mappers_from_client_scope(scope) if it["name"] == "groups"
    )
    bent = {**mapper, "config": {**mapper["config"], "full.path": "false"}}
    bank.admin.update_mapper_in_client_scope(scope, mapper["id"], bent)
    assert bank.keeper().provision() == ("mapper groups, set right",)
    assert bank.keeper().provision() == ()


def test_a_group_that_reads_like_the_path_of_another_is_refused(bank: BankRealm) -> None:
    """keycloak/keycloak#23900: tokens cannot tell `ai/admins` from `admins` inside `ai`."""
    group = bank.admin.create_group({"name": "bank/it"})
    try:
        with pytest.raises(MachineError) as refused:
            bank.keeper().provision()
    finally:
        bank.admin.delete_group(group)
    assert refused.value.code == "identity.misleading_group"
    assert bank.keeper().provision() == ()


def test_the_command_sets_it_up_too(bank: BankRealm, tmp_path: Path) -> None:
    hisar = Hisar(tmp_path)
    (hisar.home / "config.toml").write_text(bank.box_config())
    command = ("identity", "bootstrap", "--password-stdin")
    done = hisar(*command, stdin=f"{PASSWORD}\n")
    assert (done.returncode, done.stdout) == (0, "everything is there already\n")
    refused = hisar(*command, stdin="wrong-password\n")
    assert refused.returncode == 69
    assert "identity.not_provisioned" in refused.stderr
    assert "wrong-password" not in refused.stdout + refused.stderr


def test_a_person_s_token_is_a_way_in(bank: BankRealm, bank_box: RunningBox) -> None:
    token = bank.login("ayse")
    answer = chat(bank_box, token)
    assert answer.status_code == 200
    (received, *_) = bank_box.records_of(answer.headers["x-request-id"])
    assert isinstance(received, Received)
    assert (received.tenant_id, received.principal_id) == ("treasury", claims_of(token)["sub"])


def test_a_service_s_token_is_a_way_in(bank: BankRealm, bank_box: RunningBox) -> None:
    assert chat(bank_box, bank.login_service()).status_code == 200


def test_api_keys_work_beside_tokens(bank_box: RunningBox) -> None:
    assert bank_box.chat().status_code == 200


def test_an_administrator_is_one_by_group(bank: BankRealm, bank_box: RunningBox) -> None:
    with bank_box.client(bank.login("mehmet")) as client:
        assert client.get("/metrics").status_code == 200
    with bank_box.client(bank.login("ayse")) as client:
        assert code_of(client.get("/metrics")) == (403, "insufficient_permissions")


@pytest.mark.parametrize(
    ("person", "status", "code"),
    [
        ("can", 403, "auth.no_tenant"),
        ("zeynep", 403, "auth.no_tenant"),
        ("deniz", 403, "auth.no_tenant"),
        ("both", 403, "auth.several_tenants"),
        ("foreign-admin", 403, "insufficient_permissions"),
    ],
)
def test_who_is_mapped_to_nothing_may_do_nothing(
    bank: BankRealm, bank_box: RunningBox, person: str, status: int, code: str
) -> None:
    """rancher/rancher#55858, keycloak/keycloak#51865: leaf and child of a mapped group."""
    assert code_of(chat(bank_box, bank.login(person))) == (status, code)


@pytest.mark.parametrize(
    ("person", "client", "kind", "word"),
    [
        ("can", "foreign", "access_token", "aud"),
        # With a role of ours Keycloak names us in tokens of any client; `azp` tells them apart.
        ("ayse", "foreign", "access_token", "azp"),
        ("can", "stray", "access_token", "azp"),
        ("ayse", "desk", "id_token", "aud"),
        ("ayse", "desk", "refresh_token", "signed"),
    ],
)
def test_other_tokens_of_the_realm_are_no_way_in(
    bank: BankRealm, bank_box: RunningBox, person: str, client: str, kind: str, word: str
) -> None:
    """BerriAI/litellm#27008: a token of another client of the realm was let in."""
    token = bank.login(person, client, kind)
    answer = chat(bank_box, token)
    assert code_of(answer) == (401, "auth.invalid_token")
    assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token"'
    assert word in answer.json()["error"]["message"]
    for text in (answer.text, bank_box.log("gateway")):
        assert all(part not in text for part in token.split("."))


def test_who_leaves_a_group_loses_it_with_the_next_token(
    bank: BankRealm, bank_box: RunningBox
) -> None:
    """open-webui/open-webui#16635"""
    bank.leave_group("both", "/bank/credit")
    assert chat(bank_box, bank.login("both")).status_code == 200
    bank.leave_group("both", "/bank/treasury")
    assert code_of(chat(bank_box, bank.login("both"))) == (403, "auth.no_tenant")


def test_no_request_fails_while_keys_rotate(bank: BankRealm, bank_box: RunningBox) -> None:
    """mckinsey/agents-at-scale-ark#2568: after a rotation every login failed until a restart."""
    before = bank.login("ayse")
    with calling(bank_box, before) as statuses:
        for _ in range(2):
            bank.rotate_key()
            assert chat(bank_box, bank.login("ayse")).status_code == 200
    assert len(statuses) > 10
    assert set(statuses) == {200}


# From here on names of keys that do not exist are asked for: for ten seconds no new key is found.


def test_a_token_that_is_forged_with_the_realm_s_public_key_is_no_way_in(
    bank: BankRealm, bank_box: RunningBox
) -> None:
    """doretox/atomicvulns#24, infiniflow/ragflow#15181"""
    good = bank.login("mehmet")
    kid, key = bank.public_key(good)
    armoured = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    bare = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    forged = [
        *(
            sign(claims_of(good), kid, "HS256", secret)
            for secret in (armoured, armoured[:-1], bare)
        ),
        *(sign(claims_of(good), kid, alg) for alg in ("none", "None", "nOnE")),
        sign(claims_of(good), "mine", jwk=jwk("mine")),
        sign(claims_of(good), "mine", kid=kid, jku="http://127.0.0.1:9/k"),
        sign(claims_of(good), "mine", kid="../../dev/null"),
    ]
    with bank_box.client(good) as client:
        assert client.get("/metrics").status_code == 200
    for token in forged:
        with bank_box.client(token) as client:
            for path in ("/v1/models", "/metrics"):
                answer = client.get(path)
                assert code_of(answer) == (401, "auth.invalid_token")
                assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token"'


def test_a_flood_of_unknown_keys_stands_in_nobody_s_way(
    bank: BankRealm, bank_box: RunningBox
) -> None:
    """mckinsey/agents-at-scale-ark#2568"""
    token = bank.login("ayse")
    for number in range(50):
        assert chat(bank_box, sign({}, "mine", kid=f"random-{number}")).status_code == 401
        assert chat(bank_box, token).status_code == 200
    assert bank_box.metric("hisar_tokens_refused_total", reason="signature") >= 50


def test_a_box_goes_on_while_the_provider_is_down(bank: BankRealm, bank_box: RunningBox) -> None:
    token = bank.login("ayse")
    assert chat(bank_box, token).status_code == 200
    bank.server.stop()
    try:
        assert chat(bank_box, token).status_code == 200
        with running_box(bank.box_config()) as newcomer:
            answer = chat(newcomer, token)
            assert code_of(answer) == (503, "auth.provider_unreachable")
            assert int(answer.headers["retry-after"]) > 0
            assert newcomer.chat().status_code == 200
            bank.server.start()
            wait_until(lambda: chat(newcomer, token).is_success, "the keys of the realm")
    finally:
        bank.server.start()
    assert chat(bank_box, bank.login("ayse")).status_code == 200


@contextmanager
def calling(box: RunningBox, token: str) -> Iterator[list[int]]:
    """Calls without end beside the block; their statuses."""
    statuses: list[int] = []
    is_over = threading.Event()

    def call() -> None:
        with box.client(token) as client:
            while not is_over.is_set():
                statuses.append(client.get("/v1/models").status_code)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield statuses
    finally:
        is_over.set()
        thread.join()
