"""Where one request ends and the next begins, told by clients that lie, err or go on for ever.

Whatever was asked whole is answered; what cannot be read is a 400 in the envelope, then the end.
"""

import json

import pytest

from tests.walk.raw import Answer, connect, head, post, read_answer, read_answers, read_to_end
from tests.walk.running_box import RunningBox

PATH = "/v1/chat/completions"
CHAT = json.dumps({"model": "echo", "messages": [{"role": "user", "content": "hello"}]}).encode()
CHUNK = b"%x\r\n%b\r\n" % (len(CHAT), CHAT)
JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"
LARGE = b"x" * 20_000_000


def tell(box: RunningBox, *pieces: bytes) -> list[Answer]:
    """Everything that is answered until the connection ends."""
    with connect(box.port) as connection:
        for piece in pieces:
            connection.sendall(piece)
        return read_answers(connection)


def chunked(key: str, *fields: str, path: str = PATH) -> bytes:
    return head("POST", path, JSON, CHUNKED, *fields, key=key)


@pytest.mark.parametrize("in_pieces", [True, False])
def test_a_key_sent_as_a_trailer_opens_nothing(box: RunningBox, in_pieces: bool) -> None:
    trailer = f"0\r\nAuthorization: Bearer {box.key}\r\n\r\n".encode()
    pieces = [chunked("", "Connection: close"), CHUNK, trailer]
    (answer,) = tell(box, *(pieces if in_pieces else [b"".join(pieces)]))
    assert answer.status == 401


def test_trailers_are_no_headers(box: RunningBox) -> None:
    """A second host, another type and an encoding would each be refused as a header."""
    trailers = b"0\r\nHost: evil.example\r\nContent-Type: text/x\r\nContent-Encoding: br\r\n\r\n"
    with connect(box.port) as connection:
        for _ in range(2):
            connection.sendall(chunked(box.key) + CHUNK + trailers)
            assert read_answer(connection).status == 200


BROKEN = {
    "no size": b"zz\r\n",
    "a negative size": b"-5\r\nhello\r\n",
    "a size beyond counting": b"f" * 18 + b"\r\nhello",
    "a chunk longer than its size": b"5\r\nhello!!\r\n",
    "garbage behind a good chunk": CHUNK + b"\0\0\0\0",
    "lines that end in LF alone": b"5\nhello\n0\n\n",
    "an extension without end": b"5;name=" + b"x" * 1_000_000,
    "trailers without end": CHUNK + b"0\r\nname: " + b"x" * 1_000_000,
    "trailers without number": CHUNK + b"0\r\n" + b"name: value\r\n" * 100_000,
    "a trailer without a name": CHUNK + b"0\r\nname value\r\n\r\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_chunks_that_cannot_be_read_are_400_and_the_end(box: RunningBox, name: str) -> None:
    for pieces in ([chunked(box.key), BROKEN[name]], [chunked(box.key) + BROKEN[name]]):
        (answer,) = tell(box, *pieces)
        assert answer.status == 400
        assert answer.error["code"] == "request.malformed"
        assert answer.headers["connection"] == "close"
        assert answer.headers["x-request-id"]


def test_a_broken_body_is_told_in_the_envelope_of_its_address(box: RunningBox) -> None:
    (answer,) = tell(box, chunked(box.key, path="/v1/messages") + b"zz\r\n")
    assert answer.status == 400
    assert json.loads(answer.body)["error"]["type"] == "invalid_request_error"
    assert answer.headers["request-id"]


def test_a_broken_body_behind_other_requests_waits_for_its_turn(box: RunningBox) -> None:
    asked = post(CHAT, box.key) * 3 + chunked(box.key) + b"zz\r\n"
    assert [answer.status for answer in tell(box, asked)] == [200, 200, 200, 400]


def test_a_broken_body_that_nobody_reads_ends_the_connection_after_the_answer(
    box: RunningBox,
) -> None:
    answers = tell(box, head("GET", "/v1/models", CHUNKED, key=box.key) + b"zz\r\n")
    assert [answer.status for answer in answers] == [200]
    answers = tell(box, head("GET", "/v1/models", CHUNKED, key="wrong"), b"zz\r\n")
    assert [answer.status for answer in answers] == [401]


@pytest.mark.parametrize(
    "fields",
    [
        ("Transfer-Encoding: gzip",),
        ("Transfer-Encoding: identity",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: gzip, chunked",),
        ("Transfer-Encoding: chunked, gzip",),
        (CHUNKED, CHUNKED),
        ("Content-Length: 5", CHUNKED),
        (CHUNKED, "Content-Length: 5"),
        ("Content-Length: 5", "Content-Length: 5"),
        ("Content-Length: 5, 5",),
        ("Content-Length: +5",),
        ("Content-Length: 0x5",),
        ("Content-Length:",),
        ("Folded: one", " two"),
        ("Spaced : value",),
        (": nameless",),
        ("Zero: \0",),
        ("Bare: \rCR",),
    ],
)
def test_a_head_that_can_be_read_in_two_ways_is_400(
    box: RunningBox, fields: tuple[str, ...]
) -> None:
    request = head("POST", PATH, JSON, *fields, key=box.key) + CHUNK + b"0\r\n\r\n"
    (answer,) = tell(box, request)
    assert answer.status == 400
    assert answer.error["code"] == "request.malformed"


@pytest.mark.parametrize("num_good", [1, 2, 5])
def test_garbage_behind_requests_does_not_cost_them_their_answers(
    box: RunningBox, num_good: int
) -> None:
    answers = tell(box, post(CHAT, box.key) * num_good + b"XXXX\r\n\r\n")
    assert [answer.status for answer in answers] == [200] * num_good + [400]
    assert answers[-1].error["code"] == "request.malformed"


def test_bytes_behind_a_body_of_length_0_are_another_request(box: RunningBox) -> None:
    empty = head("POST", PATH, JSON, "Content-Length: 0", key=box.key)
    first, second = tell(box, empty + CHAT)
    assert first.error["code"] == "request.invalid_json"
    assert second.error["code"] == "request.malformed"


def test_garbage_behind_a_stream_does_not_cut_it(box: RunningBox) -> None:
    with connect(box.port) as connection:
        connection.sendall(post(CHAT[:-1] + b', "stream": true}', box.key) + b"XXXX\r\n\r\n")
        answers = read_to_end(connection)
    stream, _, refusal = answers.partition(b"data: [DONE]")
    assert b"hello" in stream
    assert b"HTTP/1.1 400" in refusal


def test_a_head_that_begins_in_the_last_bytes_of_a_large_body_is_not_too_large(
    box: RunningBox,
) -> None:
    long = post(CHAT.replace(b"hello", b"x" * 100_000), box.key)
    next_one = post(CHAT, box.key)
    with connect(box.port) as connection:
        connection.sendall(long + next_one[:10])
        assert read_answer(connection).status == 200
        connection.sendall(next_one[10:])
        assert read_answer(connection).status == 200


@pytest.mark.parametrize(
    "request_head",
    [
        ("1.1", ("Connection: close", f"Content-Length: {len(LARGE)}")),
        ("1.0", (f"Content-Length: {len(LARGE)}",)),
        ("1.1", ("Connection: close", CHUNKED)),
        ("1.1", (f"Content-Length: {len(LARGE)}",)),
    ],
)
def test_a_client_that_sends_all_of_a_body_too_large_reads_why_it_is_refused(
    box: RunningBox, request_head: tuple[str, tuple[str, ...]]
) -> None:
    """A connection closed over an unread body is reset, and the reset takes the answer with it."""
    version, fields = request_head
    with connect(box.port) as connection:
        connection.sendall(head("POST", PATH, JSON, *fields, key=box.key, version=version))
        if CHUNKED in fields:
            connection.sendall(b"%x\r\n%b\r\n0\r\n\r\n" % (len(LARGE), LARGE))
        else:
            connection.sendall(LARGE)
        answer = read_answer(connection)
    assert answer.status == 413
    assert answer.error["code"] == "request.body_too_large"


def test_more_headers_than_anybody_needs_are_431(box: RunningBox) -> None:
    fields = [f"X-{number}: y" for number in range(3000)]
    for num_fields in (101, 3000):
        (answer,) = tell(box, head("GET", "/v1/models", *fields[:num_fields], key=box.key))
        assert answer.status == 431
        assert answer.error["code"] == "request.head_too_large"
    with connect(box.port) as connection:
        connection.sendall(head("GET", "/v1/models", *fields[:90], key=box.key))
        assert read_answer(connection).status == 200


@pytest.mark.parametrize("version", ["0.9", "1.2", "2.0", "3.0", "9.9"])
def test_another_version_of_http_is_505(box: RunningBox, version: str) -> None:
    (answer,) = tell(box, head("GET", "/v1/models", key=box.key, version=version))
    assert answer.status == 505
    assert answer.error["code"] == "request.version_not_supported"


@pytest.mark.parametrize("opening", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /\r\n\r\n"])
def test_http_2_and_http_0_9_are_told_so(box: RunningBox, opening: bytes) -> None:
    assert [answer.status for answer in tell(box, opening)] == [505]


def test_an_address_in_full_is_answered_by_its_own_name(box: RunningBox) -> None:
    def ask(target: str, host: str = "localhost") -> int:
        request = head("GET", target, "Connection: close", key=box.key, host=host)
        (answer,) = tell(box, request)
        return answer.status

    assert ask("http://localhost/v1/models") == 200
    assert ask("http://LOCALHOST:80/v1/models?x=://", host="proxy.example") == 200
    assert ask("http://localhost") == 404
    assert ask("http://evil.example/v1/models") == 400
    assert ask("http://evil.example/v1/models", host="localhost") == 400
    assert ask("/v1/models/http://evil.example/") == 404
