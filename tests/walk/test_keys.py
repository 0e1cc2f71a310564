"""Who gets in, and what those who do not are told."""

import pytest

from appliance.identity import Scope
from tests.walk.raw import connect, head, read_answer
from tests.walk.running_box import RunningBox, wait_until

ROUTES = [
    ("GET", "/v1/models"),
    ("GET", "/v1/models/echo"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("GET", "/metrics"),
]
CHAT = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "value", ["", "Bearer", "Bearer wrong", "Basic aGk6aGk=", "Bearer " + "x" * 5000, "bearer\tx"]
)
def test_every_route_but_health_wants_a_key(
    box: RunningBox, method: str, path: str, value: str
) -> None:
    fields = [f"Authorization: {value}"] if value else []
    with connect(box.port) as connection:
        connection.sendall(head(method, path, *fields, "Content-Length: 0"))
        answer = read_answer(connection)
    assert answer.status == 401
    assert answer.error["code"] == "invalid_api_key"
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "wrong" not in answer.body.decode()


def test_health_wants_none(box: RunningBox) -> None:
    assert box.answers("/health/live") == 200
    assert box.answers("/health/ready") == 200


def test_a_key_may_come_in_either_header(box: RunningBox) -> None:
    with box.client() as client:
        del client.headers["authorization"]
        assert client.get("/v1/models", headers={"x-api-key": box.key}).status_code == 200
        assert client.get("/v1/models", headers={"authorization": f"bearer {box.key}"}).is_success


def test_unknown_forged_and_revoked_keys_are_told_the_same(box: RunningBox) -> None:
    revoked = box.make_key("revoked")
    box.revoke(revoked)
    forged = box.key.replace(box.key.split("_")[1], revoked.split("_")[1])
    told = set()
    for key in ("hsr_unknown", forged, revoked, box.key[:-1] + "x"):
        with box.client(key) as client:
            answer = client.post("/v1/chat/completions", json=CHAT)
        assert answer.status_code == 401
        told.add(answer.text)
        assert key not in answer.text
    assert len(told) == 1


def test_a_revoked_key_is_refused_within_a_second(box: RunningBox) -> None:
    key = box.make_key("to be revoked")
    with box.client(key) as client:
        assert client.get("/v1/models").status_code == 200
        box.revoke(key)
        wait_until(lambda: client.get("/v1/models").status_code == 401, "the refusal", 1.5)


def test_metrics_want_the_admin_scope(box: RunningBox) -> None:
    with box.client(box.make_key("user")) as client:
        answer = client.get("/metrics")
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "insufficient_permissions"


def test_a_key_that_may_only_administer_does_not_generate(box: RunningBox) -> None:
    with box.client(box.make_key("admin", (Scope.ADMIN,))) as client:
        assert client.post("/v1/chat/completions", json=CHAT).status_code == 403
        assert client.get("/metrics").status_code == 200


def test_a_forbidden_model_looks_like_an_unknown_one(box: RunningBox) -> None:
    key = box.make_key("narrow", models=("org/echo-two",))
    with box.client(key) as client:
        names = ("echo", "nothing", "house")
        answers = [
            client.post("/v1/chat/completions", json={**CHAT, "model": name}) for name in names
        ]
        shown = client.get("/v1/models").json()["data"]
        singles = [client.get(f"/v1/models/{name}") for name in names]
        assert client.post(
            "/v1/chat/completions", json={**CHAT, "model": "org/echo-two"}
        ).is_success
    assert [model["id"] for model in shown] == ["org/echo-two"]
    for answers_of_a_kind in (answers, singles):
        texts = {
            answer.text.replace(name, "NAME")
            for name, answer in zip(names, answers_of_a_kind, strict=True)
        }
        assert len(texts) == 1
        assert {answer.status_code for answer in answers_of_a_kind} == {404}


def test_an_alias_is_resolved_and_then_checked_by_either_name(box: RunningBox) -> None:
    """BerriAI/litellm#40957, #33030: an alias opened what the key was not for."""
    for models, status in ((("house",), 200), (("echo",), 200), (("hous",), 404), (("e",), 404)):
        with box.client(box.make_key("alias", models=models)) as client:
            answer = client.post("/v1/chat/completions", json={**CHAT, "model": "house"})
        assert answer.status_code == status
        if status == 200:
            assert answer.json()["model"] == "house"


def test_models_that_are_installed_and_their_aliases_are_listed(box: RunningBox) -> None:
    with box.client() as client:
        listed = client.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["echo", "house", "org/echo-two"]


@pytest.mark.parametrize("name", ["org/echo-two", "org%2Fecho-two", "echo", "%65cho", "house"])
def test_one_model_is_shown_also_with_slashes_and_escapes(box: RunningBox, name: str) -> None:
    with box.client() as client:
        answer = client.get(f"/v1/models/{name}")
    assert answer.status_code == 200
    assert answer.json()["object"] == "model"


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_unknown_model_is_404_and_json_also_for_a_stream(
    box: RunningBox, is_stream: bool
) -> None:
    """runpod-workers/worker-vllm#57: an error came as a 200."""
    with box.client() as client:
        body = {**CHAT, "model": "no such model", "stream": is_stream}
        answers = [
            client.post("/v1/chat/completions", json=body),
            client.get("/v1/models/no%20such%20model"),
            client.post("/v1/chat/completions", json={**CHAT, "model": "gone"}),
        ]
    for answer in answers:
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/json"
        error = answer.json()["error"]
        assert (error["type"], error["param"], error["code"]) == (
            "invalid_request_error",
            "model",
            "model_not_found",
        )
