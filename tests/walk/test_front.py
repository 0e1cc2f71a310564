"""What every request meets before and after its route, whatever the route."""

import json

import httpx
import pytest

from tests.walk.raw import Answer, connect, head, read_answer
from tests.walk.running_box import RunningBox


def ask(box: RunningBox, request: bytes) -> Answer:
    with connect(box.port) as connection:
        connection.sendall(request)
        return read_answer(connection)


@pytest.mark.parametrize(
    "path", ["/", "/nowhere", "/v1", "/v1/chat", "/docs", "/schema", "/v2/models"]
)
def test_an_unknown_address_is_404_in_the_envelope(box: RunningBox, path: str) -> None:
    answer = ask(box, head("GET", path))
    assert answer.status == 404
    assert answer.error["code"] == "request.route_not_found"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/chat/completions"),
        ("HEAD", "/v1/chat/completions"),
        ("DELETE", "/v1/models"),
        ("PUT", "/v1/completions"),
        ("POST", "/health/live"),
        ("TRACE", "/v1/models"),
        ("PROPFIND", "/v1/models"),
    ],
)
def test_a_method_that_an_address_does_not_take_is_405(
    box: RunningBox, method: str, path: str
) -> None:
    with box.client() as client:
        answer = client.request(method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"] in ("GET, HEAD, OPTIONS", "POST, OPTIONS")
    if method != "HEAD":
        assert answer.json()["error"]["type"] == "invalid_request_error"


def test_options_says_what_an_address_takes(box: RunningBox) -> None:
    with box.client() as client:
        answers = [client.options(path) for path in ("/v1/models", "/v1/chat/completions")]
        nowhere = client.options("/nowhere")
    assert [answer.status_code for answer in answers] == [204, 204]
    assert [answer.headers["allow"] for answer in answers] == [
        "GET, HEAD, OPTIONS",
        "OPTIONS, POST",
    ]
    assert nowhere.status_code == 404


def test_head_is_get_without_its_body(box: RunningBox) -> None:
    with box.client() as client:
        whole, bare = client.get("/v1/models"), client.head("/v1/models")
    assert bare.status_code == 200
    assert bare.content == b""
    assert bare.headers["content-length"] == str(len(whole.content))


def test_every_answer_has_an_id_of_its_own(box: RunningBox) -> None:
    with box.client() as client:
        answers = [client.get(path) for path in ("/v1/models", "/nowhere", "/health/live") * 2]
        answers.append(client.get("/v1/models", headers={"x-request-id": "mine"}))
    ids = {answer.headers["x-request-id"] for answer in answers}
    assert len(ids) == len(answers)
    assert "mine" not in ids


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "", "x@localhost"]
)
def test_a_name_the_box_does_not_go_by_is_refused(box: RunningBox, host: str) -> None:
    answer = ask(box, head("GET", "/health/live", host=host))
    assert answer.status == 400
    assert answer.error["code"] == "request.host_not_allowed"
    assert answer.is_closed


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "[::1]"]
)
def test_a_name_the_box_goes_by_is_answered_whatever_the_port(box: RunningBox, host: str) -> None:
    assert ask(box, head("GET", "/health/live", host=host)).status == 200


def test_two_hosts_or_none_are_refused(box: RunningBox) -> None:
    assert ask(box, head("GET", "/health/live", "Host: localhost")).status == 400
    assert ask(box, b"GET /health/live HTTP/1.1\r\n\r\n").status == 400
    assert ask(box, b"GET /health/live HTTP/1.0\r\n\r\n").status == 200


def test_web_pages_of_other_origins_are_kept_out(box: RunningBox) -> None:
    asking = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    with box.client() as client:
        preflight = client.options("/v1/chat/completions", headers=asking)
        simple = client.get("/v1/models", headers={"origin": "https://evil.example"})
    assert preflight.status_code == 403
    assert preflight.json()["error"]["code"] == "request.cross_origin"
    for answer in (preflight, simple):
        assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_one_line_is_logged_of_a_request_and_nothing_of_its_contents(box: RunningBox) -> None:
    answer = box.chat("a very private sentence")
    with box.client() as client:
        client.get("/v1/models?token=private-query")
        client.get("/private-path")
    lines = [json.loads(line) for line in box.log("gateway").splitlines()]
    own = [line for line in lines if line.get("request_id") == answer.headers["x-request-id"]]
    assert len(own) == 1
    assert own[0]["route"] == "POST /v1/chat/completions"
    assert own[0]["status"] == 200
    assert own[0]["duration_s"] > 0
    for secret in ("private", "hsr_", box.key):
        assert secret not in box.log("gateway")


def test_no_server_software_is_named(box: RunningBox) -> None:
    assert "server" not in httpx.get(f"{box.url}/health/live").headers
