"""Which bytes are a request body."""

import json

import pytest

from appliance.errors import RequestError
from gateway.wire.body import MAX_DEPTH, check_media, read_object


def refusal(body: bytes) -> RequestError:
    with pytest.raises(RequestError) as caught:
        read_object(body)
    assert caught.value.status == 400
    assert caught.value.code == "request.invalid_json"
    return caught.value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b'{"model":',
        b"{'model': 1}",
        b'{"a":1}{"a":1}',
        b'{"a":1,}',
        b'{"a":01}',
        b'{"a":"\n"}',
        b'{"a":"\\x"}',
        b"[]",
        b"null",
        b'"text"',
        b"1",
        b"\xef\xbb\xbf{}",
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\xc0\xaf"}',
        '{"a":1}'.encode("utf-16"),
        b"\x1f\x8b\x08\x00",
    ],
)
def test_what_is_not_a_json_object_in_utf8_is_refused(body: bytes) -> None:
    """RakuenSoftware/aimee#2071: a cut body answered with 500 makes clients retry for ever."""
    refusal(body)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e999", "9" * 5000])
def test_numbers_that_json_or_a_double_cannot_hold_are_refused(number: str) -> None:
    """sgl-project/sglang#28153: NaN passed a range check and killed the engine."""
    refusal(b'{"temperature":%b}' % number.encode())


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"a":1,"a":1}', "a"),
        (b'{"a":[{},{"b":{"c":1,"d":2,"c":3}}]}', "a[1].b.c"),
        (b'{"a":{"x":1,"x":2},"a":1}', "a"),
        (b'{"a":{"two words":1,"two words":2}}', "a.[...]"),
    ],
)
def test_a_doubled_key_is_refused_by_its_path(body: bytes, param: str) -> None:
    assert refusal(body).param == param


@pytest.mark.parametrize("half", [r"\ud800", r"\uDfff", r"\ud83dx", r"\ude00\ud83d"])
def test_half_a_surrogate_pair_is_refused_by_its_path(half: str) -> None:
    body = f'{{"messages":[{{"content":"{half}"}}]}}'
    assert refusal(body.encode()).param == "messages[0].content"
    refusal(f'{{"{half}":1}}'.encode())


def test_whole_surrogate_pairs_and_escaped_backslashes_are_text() -> None:
    assert read_object(rb'{"a":"\ud83d\ude42","b":"\\ud800"}') == {"a": "🙂", "b": r"\ud800"}


@pytest.mark.parametrize("unit", [b"[", b'{"a":', b'[{"a":'])
def test_a_hundred_thousand_brackets_are_refused(unit: bytes) -> None:
    refusal(unit * 100_000)
    refusal(b'{"a":' + unit * 100_000)


def test_nesting_ends_at_the_limit() -> None:
    def nested(depth: int) -> bytes:
        return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"

    assert "a" in read_object(nested(MAX_DEPTH))
    assert str(MAX_DEPTH) in refusal(nested(MAX_DEPTH + 1)).message
    refusal(nested(400))


def test_brackets_inside_of_text_are_not_nesting() -> None:
    text = "[" * 100_000
    assert read_object(json.dumps({"a": text}).encode()) == {"a": text}


def test_no_error_repeats_the_text() -> None:
    for body in (b'{"a":"SECRET', b'{"a":"SECRET\xff"}', b'{"SECRET WORD":1,"SECRET WORD":2}'):
        assert "SECRET" not in str(refusal(body)) + str(refusal(body).param)


@pytest.mark.parametrize(
    "content_type",
    [None, "", "application/json", "Application/JSON; charset=UTF-8", "application/problem+json"],
)
def test_json_by_any_of_its_names_is_taken(content_type: str | None) -> None:
    check_media(content_type, None)
    check_media(content_type, "identity")


@pytest.mark.parametrize(
    ("content_type", "content_encoding"),
    [
        ("text/plain", None),
        ("application/x-www-form-urlencoded", None),
        ("multipart/form-data; boundary=x", None),
        ("application/json", "gzip"),
        ("application/json", "deflate"),
        (None, "br, gzip"),
    ],
)
def test_other_media_and_compression_are_415(
    content_type: str | None, content_encoding: str | None
) -> None:
    with pytest.raises(RequestError) as caught:
        check_media(content_type, content_encoding)
    assert caught.value.status == 415
    assert caught.value.code == "request.unsupported_media_type"
