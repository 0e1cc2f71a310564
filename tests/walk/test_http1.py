"""The wire below the routes: odd, old, slow and broken HTTP."""

import json
import time

import pytest

from tests.walk.raw import connect, head, post, read_answer, read_to_end
from tests.walk.running_box import RunningBox

CHAT = json.dumps({"model": "echo", "messages": [{"role": "user", "content": "hello"}]}).encode()
STREAM = CHAT[:-1] + b', "stream": true}'


def test_http_1_0_is_answered_and_closed(box: RunningBox) -> None:
    with connect(box.port) as connection:
        connection.sendall(post(CHAT, box.key, version="1.0"))
        answer = read_answer(connection)
    assert answer.status == 200
    assert answer.is_closed
    assert json.loads(answer.body)["choices"][0]["message"]["content"] == "hello"


def test_an_http_1_0_stream_has_no_chunk_sizes_in_it(box: RunningBox) -> None:
    with connect(box.port) as connection:
        connection.sendall(post(STREAM, box.key, version="1.0"))
        start, _, body = read_to_end(connection).partition(b"\r\n\r\n")
    assert b"chunked" not in start
    assert body.startswith(b"data: {")
    assert body.endswith(b"data: [DONE]\n\n")
    assert all(line.startswith(b"data: ") for line in body.split(b"\n\n")[:-1])


def test_requests_sent_ahead_are_answered_in_order(box: RunningBox) -> None:
    with connect(box.port) as connection:
        bodies = [CHAT.replace(b"hello", b"word %d" % number) for number in range(5)]
        connection.sendall(b"".join(post(body, box.key) for body in bodies[:-1]))
        connection.sendall(post(bodies[-1], box.key, "Connection: close"))
        answers = read_to_end(connection)
    found = [answers.find(b'"word %d"' % number) for number in range(5)]
    assert -1 not in found
    assert found == sorted(found)


def test_a_body_in_chunks_is_read(box: RunningBox) -> None:
    with connect(box.port) as connection:
        fields = ("Content-Type: application/json", "Transfer-Encoding: chunked")
        connection.sendall(head("POST", "/v1/chat/completions", *fields, key=box.key))
        for at in range(0, len(CHAT), 10):
            piece = CHAT[at : at + 10]
            connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
        connection.sendall(b"0\r\n\r\n")
        assert read_answer(connection).status == 200


def test_a_client_that_waits_for_100_is_told_to_go_on(box: RunningBox) -> None:
    whole = post(CHAT, box.key, "Expect: 100-continue")
    with connect(box.port) as connection:
        connection.sendall(whole[: -len(CHAT)])
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(CHAT)
        assert read_answer(connection).status == 200


def test_a_client_that_waits_for_100_without_a_key_is_refused_before_its_body(
    box: RunningBox,
) -> None:
    whole = post(CHAT, "wrong", "Expect: 100-continue")
    with connect(box.port) as connection:
        connection.sendall(whole[: -len(CHAT)])
        answer = read_answer(connection)
    assert answer.status == 401
    assert answer.is_closed


def test_the_body_of_an_offer_to_speak_http_2_is_read(box: RunningBox) -> None:
    """Java's client offers h2c with every first request; servers that believe it lose the body."""
    offer = (
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAEAAEAAAAIAAAAB",
    )
    with connect(box.port) as connection:
        for _ in range(2):
            connection.sendall(post(CHAT, box.key, *offer))
            assert read_answer(connection).status == 200
        whole = post(CHAT, box.key, *offer)
        for at in range(0, len(whole), 50):
            connection.sendall(whole[at : at + 50])
        assert read_answer(connection).status == 200


def test_a_websocket_is_not_opened(box: RunningBox) -> None:
    offer = (
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Key: eA==",
        "Sec-WebSocket-Version: 13",
    )
    with connect(box.port) as connection:
        connection.sendall(head("GET", "/v1/chat/completions", *offer, key=box.key))
        assert read_answer(connection).status == 405


@pytest.mark.parametrize(
    "garbage",
    [
        b"NONSENSE\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nBad Header\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    ],
)
def test_what_is_not_a_request_is_400_in_the_envelope(box: RunningBox, garbage: bytes) -> None:
    with connect(box.port) as connection:
        connection.sendall(garbage)
        answer = read_answer(connection)
    assert answer.status == 400
    assert answer.error["code"] == "request.malformed"
    assert answer.is_closed


def test_connect_is_refused_and_the_box_is_no_proxy(box: RunningBox) -> None:
    with connect(box.port) as connection:
        connection.sendall(b"CONNECT localhost:22 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = read_answer(connection)
    assert answer.status == 501
    assert answer.error["code"] == "request.method_not_allowed"


@pytest.mark.parametrize("num_bytes", [40_000, 5_000_000])
def test_a_head_that_is_too_large_is_431(box: RunningBox, num_bytes: int) -> None:
    with connect(box.port) as connection:
        connection.sendall(head("GET", "/v1/models", "X-Large: " + "x" * num_bytes, key=box.key))
        answer = read_answer(connection)
    assert answer.status == 431
    assert answer.error["code"] == "request.head_too_large"


def test_a_path_that_is_not_ascii_is_no_server_error(box: RunningBox) -> None:
    """BerriAI/litellm#34633, #39360: names outside Latin-1 ended in 500."""
    for path in (
        "/v1/models/中文模型".encode(),
        b"/v1/models/%E4%B8%AD%E6%96%87",
        b"/v1/models/%ff%fe",
    ):
        with connect(box.port) as connection:
            connection.sendall(head("GET", "PATH", key=box.key).replace(b"PATH", path))
            assert read_answer(connection).status in (400, 404)


def test_a_header_that_is_not_ascii_is_no_server_error(box: RunningBox) -> None:
    with connect(box.port) as connection:
        request = head("GET", "/v1/models", "X-Name: NAME", key=box.key)
        connection.sendall(request.replace(b"NAME", "名前".encode()))
        assert read_answer(connection).status == 200


def test_a_body_that_comes_too_slowly_is_408_and_the_end(box: RunningBox) -> None:
    whole = post(CHAT, box.key)
    began = time.monotonic()
    with connect(box.port) as connection:
        connection.sendall(whole[:-5])
        answer = read_answer(connection)
    assert answer.status == 408
    assert answer.error["code"] == "request.body_timeout"
    assert answer.is_closed
    assert time.monotonic() - began < 20


def test_a_body_over_the_limit_is_413_announced_or_not(box: RunningBox) -> None:
    large = b'{"model": "' + b"x" * (2 * 1024 * 1024) + b'"}'
    with box.client() as client:
        json_type = {"content-type": "application/json"}
        announced = client.post("/v1/chat/completions", content=large, headers=json_type)
        chunked = client.post("/v1/chat/completions", content=iter([large]), headers=json_type)
        after = client.get("/v1/models")
    for answer in (announced, chunked):
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "request.body_too_large"
    assert after.status_code == 200
