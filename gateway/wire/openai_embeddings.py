"""OpenAI's embeddings: which requests are understood, and what is sent back."""

import struct
from base64 import b64encode
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from appliance.embedding import EmbeddingInput, Embeddings
from gateway.wire import schema
from gateway.wire.body import read_object
from gateway.wire.call import Asked
from gateway.wire.openai_params import ModelName, check_model
from gateway.wire.openai_prompts import PromptList, PromptText, to_prompts
from gateway.wire.schema import invalid_parameter

MAX_INPUTS: Final = 2048
MAX_DIMENSIONS: Final = 65_536
_FLOAT_BYTES: Final = 4

Encoding: TypeAlias = Literal["float", "base64"]

_EXPECTED: Final = {"encoding_format": "expected float or base64"}


class EmbeddingBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/embeddings. None is what a client means by null: the default.

    `user` is checked and has no bearing on the answer: who is calling is decided by the key.
    """

    model: ModelName
    input: PromptText | Annotated[PromptList, Meta(min_length=1)]
    encoding_format: Encoding | None = None
    dimensions: Annotated[int, Meta(ge=1, le=MAX_DIMENSIONS)] | None = None
    user: str | None = None


class AskedEmbeddings(Asked, frozen=True, kw_only=True):
    """A request for vectors, and how its answer writes them."""

    prompts: tuple[EmbeddingInput, ...]
    dimensions: int | None
    encoding: Encoding


class WireEmbedding(Struct, frozen=True, kw_only=True):
    """One vector: numbers, or base64 of little-endian float32."""

    object: str = "embedding"
    index: int
    embedding: tuple[float, ...] | str


class EmbeddingUsage(Struct, frozen=True):
    """What a request consumed: all of it is prompt."""

    prompt_tokens: int
    total_tokens: int


class WireEmbeddings(Struct, frozen=True, kw_only=True):
    """All vectors, in the order of their inputs."""

    object: str = "list"
    data: list[WireEmbedding]
    model: str
    usage: EmbeddingUsage


def decode(body: bytes) -> AskedEmbeddings:
    """The request that a body holds. Raises RequestError (400)."""
    request = schema.check(read_object(body), EmbeddingBody, _EXPECTED)
    check_model(request.model)
    inputs = to_prompts(request.input, "input")
    if len(inputs) > MAX_INPUTS:
        raise invalid_parameter("input", f"expected at most {MAX_INPUTS} inputs")
    return AskedEmbeddings(
        model=request.model,
        prompts=inputs,
        dimensions=request.dimensions,
        encoding=request.encoding_format or "float",
    )


def encode(embeddings: Embeddings, asked: AskedEmbeddings) -> bytes:
    """The answer, which repeats the model by the name it was asked for."""
    usage = EmbeddingUsage(embeddings.usage.prompt_tokens, embeddings.usage.prompt_tokens)
    data = [
        WireEmbedding(index=index, embedding=_to_wire(vector, asked.encoding))
        for index, vector in enumerate(embeddings.vectors)
    ]
    return msgspec.json.encode(WireEmbeddings(data=data, model=asked.model, usage=usage))


def _to_wire(vector: bytes, encoding: Encoding) -> tuple[float, ...] | str:
    if encoding == "base64":
        return b64encode(vector).decode()
    return struct.unpack(f"<{len(vector) // _FLOAT_BYTES}f", vector)
