"""Bodies that nobody should send: a 4xx in the envelope, and the box lives on."""

import gzip
import json
from collections.abc import Iterator

import httpx
import pytest

from tests.walk.running_box import RunningBox

JSON = {"content-type": "application/json"}
GOOD = '{"model": "echo", "messages": [{"role": "user", "content": "hi"}]'


def good_with(more: str) -> bytes:
    return f"{GOOD}, {more}}}".encode()


BAD = {
    "nothing": b"",
    "half an object": b'{"model":',
    "a list": b"[]",
    "null": b"null",
    "a word": b"hello",
    "a byte order mark": b"\xef\xbb\xbf" + good_with('"n": 1'),
    "invalid utf-8": good_with('"user": "\xff"').replace("\xff".encode(), b"\xff\xfe"),
    "half a surrogate pair": good_with('"user": "\\ud800"'),
    "100,000 brackets": good_with('"user": ' + "[" * 100_000),
    "100,000 matched brackets": good_with('"user": ' + "[" * 100_000 + "]" * 100_000),
    "100,000 braces": b'{"a":' * 100_000,
    "no messages": b'{"model": "echo"}',
    "empty messages": b'{"model": "echo", "messages": []}',
    "messages of another kind": b'{"model": "echo", "messages": "hi"}',
    "no model": b'{"messages": [{"role": "user", "content": "hi"}]}',
    "model null": b'{"model": null, "messages": [{"role": "user", "content": "hi"}]}',
    "max_tokens 0": good_with('"max_tokens": 0'),
    "max_tokens negative": good_with('"max_tokens": -5'),
    "max_tokens huge": good_with('"max_tokens": 1' + "0" * 400),
    "max_tokens very huge": good_with('"max_tokens": 1' + "0" * 5000),
    "max_tokens fractional": good_with('"max_tokens": 1.5'),
    "temperature NaN": good_with('"temperature": NaN'),
    "temperature Infinity": good_with('"temperature": Infinity'),
    "temperature -Infinity": good_with('"temperature": -Infinity'),
    "temperature 1e400": good_with('"temperature": 1e400'),
    "temperature text": good_with('"temperature": "NaN"'),
    "logit_bias NaN": good_with('"logit_bias": {"5": NaN}'),
    "a key twice": good_with('"model": "echo"'),
    "an unknown parameter": good_with('"temprature": 1'),
    "an unknown role": b'{"model": "echo", "messages": [{"role": "banana", "content": "hi"}]}',
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_body_is_400_in_the_envelope(box: RunningBox, name: str) -> None:
    """RakuenSoftware/aimee#2071: half an object was a 500, and clients retried for ever."""
    with box.client() as client:
        answer = client.post("/v1/chat/completions", content=BAD[name], headers=JSON)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logit_bias": {"65": 1, "999999": 1}}, 'logit_bias["999999"]'),
        ({"stop_token_ids": [65, 999999]}, "stop_token_ids[1]"),
    ],
)
def test_a_token_that_the_model_does_not_have_is_refused_by_name(
    box: RunningBox, fields: dict[str, object], param: str, stream: bool
) -> None:
    answer = box.chat("hi", stream=stream, **fields)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("request.token_out_of_range", param)
    assert "999999" in error["message"]
    assert "278 tokens" in error["message"]


def test_after_all_of_them_the_same_engine_answers(box: RunningBox) -> None:
    """sgl-project/sglang#28153: a NaN killed the engine's process."""
    worker = box.worker()
    with box.client() as client:
        for body in BAD.values():
            client.post("/v1/chat/completions", content=body, headers=JSON)
    assert box.chat("still here").status_code == 200
    assert box.worker() == worker


def test_max_tokens_null_means_not_given(box: RunningBox) -> None:
    """vllm#19862: it was a 500."""
    assert box.chat("hello", max_tokens=None).json()["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate"])
def test_a_compressed_body_is_415(box: RunningBox, encoding: str) -> None:
    body = gzip.compress(good_with('"n": 1'))
    with box.client() as client:
        answer = client.post(
            "/v1/chat/completions", content=body, headers={**JSON, "content-encoding": encoding}
        )
    assert answer.status_code == 415
    assert answer.json()["error"]["code"] == "request.unsupported_media_type"


def test_a_prompt_of_nearly_two_megabytes_is_an_answer_and_not_a_fall(box: RunningBox) -> None:
    """BerriAI/litellm#32114: a large body ended as a request without a model."""
    answer = box.chat("x" * 1_900_000)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert box.chat("hi").status_code == 200


def test_a_body_whose_client_leaves_in_the_middle_is_no_request(box: RunningBox) -> None:
    def broken() -> Iterator[bytes]:
        yield GOOD.encode()
        raise ConnectionError("the client fell over")

    before = box.metric("hisar_requests_total", outcome="cancelled")
    with box.client() as client, pytest.raises(ConnectionError):
        client.post("/v1/chat/completions", content=broken(), headers=JSON)
    assert box.chat("hi").status_code == 200
    assert box.metric("hisar_requests_total", outcome="cancelled") == before + 1


def test_an_error_is_valid_json_and_repeats_nothing_of_the_prompt(box: RunningBox) -> None:
    secret = "the patient is called Ayse"
    body = {"model": "echo", "messages": [{"role": "user", "content": secret}], "n": "many"}
    with box.client() as client:
        answer: httpx.Response = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert secret not in json.dumps(answer.json())
