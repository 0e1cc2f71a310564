"""What becomes of an embeddings request, and its answer as the official client reads it."""

import json
import struct
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from openai import OpenAI
from openai.types import embedding_create_params as params

from appliance.embedding import EmbeddingInput, Embeddings
from appliance.errors import RequestError
from appliance.generation import TextPrompt, TokenPrompt, Usage
from gateway.wire.openai_embeddings import (
    MAX_INPUTS,
    AskedEmbeddings,
    EmbeddingBody,
    decode,
    encode,
)

VECTORS = ((1.0, -0.5, 0.25), (0.1, 2.0**-126, 3.0))


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "input": "hi"} | fields).encode()


@pytest.fixture
def client() -> Iterator[OpenAI]:
    """The official client, whose requests are answered with `VECTORS`."""
    embeddings = Embeddings(
        vectors=tuple(struct.pack("<3f", *vector) for vector in VECTORS),
        usage=Usage(prompt_tokens=7),
    )

    def answer(request: httpx2.Request) -> httpx2.Response:
        decoded = decode(request.read())
        whole = encode(embeddings, decoded)
        return httpx2.Response(200, content=whole, headers={"content-type": "application/json"})

    with OpenAI(
        api_key="none",
        base_url="http://box/v1",
        max_retries=0,
        http_client=httpx2.Client(transport=httpx2.MockTransport(answer)),
    ) as connected:
        yield connected


def test_no_parameter_of_openais_schema_is_unknown() -> None:
    names = params.EmbeddingCreateParams
    assert set(EmbeddingBody.__struct_fields__) == names.__required_keys__ | names.__optional_keys__


def test_both_encodings_hold_the_same_numbers(client: OpenAI) -> None:
    plain = client.embeddings.create(model="名前:7b", input=["a", "b"], encoding_format="float")
    packed = client.embeddings.create(model="名前:7b", input=["a", "b"])
    assert [vector.index for vector in plain.data] == [0, 1]
    assert plain.data[0].embedding == list(VECTORS[0])
    for one, other in zip(plain.data, packed.data, strict=True):
        assert list(one.embedding) == list(other.embedding)
    assert (plain.model, plain.usage.prompt_tokens, plain.usage.total_tokens) == ("名前:7b", 7, 7)


@pytest.mark.parametrize(
    ("sent", "inputs"),
    [
        ("hi", (TextPrompt(text="hi"),)),
        (["hi", "ho"], (TextPrompt(text="hi"), TextPrompt(text="ho"))),
        ([1, 2], (TokenPrompt(token_ids=(1, 2)),)),
        ([[1, 2], [3]], (TokenPrompt(token_ids=(1, 2)), TokenPrompt(token_ids=(3,)))),
    ],
)
def test_an_input_comes_in_four_shapes(sent: Any, inputs: tuple[EmbeddingInput, ...]) -> None:
    decoded = decode(body(input=sent, dimensions=64, user="u", encoding_format=None))
    assert decoded == AskedEmbeddings(model="m", prompts=inputs, dimensions=64, encoding="float")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": ["a", 1]}, "input"),
        ({"input": [[]]}, "input[0]"),
        ({"input": ["a"] * (MAX_INPUTS + 1)}, "input"),
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"dimensions": 0}, "dimensions"),
        ({"model": "a\nb"}, "model"),
        ({"input_type": "query"}, "input_type"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode(body(**fields))
    assert (caught.value.status, caught.value.param) == (400, param)
