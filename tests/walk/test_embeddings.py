"""Embeddings through the whole box, asked for by the official `openai` client."""

import math
from collections.abc import Iterator

import openai
import pytest

from appliance.audit.record import Completed, Outcome
from appliance.identity import Limits
from tests.walk.running_box import RunningBox


@pytest.fixture
def client(box: RunningBox) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{box.url}/v1", api_key=box.key, max_retries=0) as client:
        yield client


def test_a_batch_equals_one_at_a_time_in_both_encodings(client: openai.OpenAI) -> None:
    texts = ["Merhaba dünya", "hello world", "hello"]
    together = client.embeddings.create(model="house", input=texts, encoding_format="float")
    assert [vector.index for vector in together.data] == [0, 1, 2]
    assert together.model == "house"
    assert together.usage.prompt_tokens == together.usage.total_tokens > 0
    for text, vector in zip(texts, together.data, strict=True):
        alone = client.embeddings.create(model="echo", input=text)
        assert alone.data[0].embedding == pytest.approx(vector.embedding)
        assert math.hypot(*vector.embedding) == pytest.approx(1)


def test_what_cannot_be_embedded_is_refused_by_name(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as cut:
        client.embeddings.create(model="echo", input="hi", dimensions=3)
    assert cut.value.param == "dimensions"
    with pytest.raises(openai.BadRequestError) as too_long:
        client.embeddings.create(model="echo", input="x" * 500_000)
    assert (too_long.value.code, too_long.value.param) == ("context_length_exceeded", "input")
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="nothing", input="hi")


def test_embeddings_are_screened_limited_and_recorded(box: RunningBox) -> None:
    with box.client() as client:
        bad = client.post("/v1/embeddings", json={"model": "echo", "input": ["a", "Zeytinburnu"]})
        ids = client.post("/v1/embeddings", json={"model": "echo", "input": [1, 2]})
        good = client.post("/v1/embeddings", json={"model": "echo", "input": "hello"})
    for refused in (bad, ids):
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "content_policy_violation"
    received, completed = box.records_of(good.headers["x-request-id"])
    assert received.request_id == completed.request_id
    assert isinstance(completed, Completed)
    assert completed.outcome is Outcome.OK
    assert completed.usage.prompt_tokens == good.json()["usage"]["prompt_tokens"]
    key = box.make_key("small embeddings", limits=Limits(tokens_per_minute=20))
    with box.client(key) as client:
        most = client.post("/v1/embeddings", json={"model": "echo", "input": "x" * 100})
        some = client.post("/v1/embeddings", json={"model": "echo", "input": "x" * 10})
    assert (most.status_code, some.status_code) == (429, 200)
