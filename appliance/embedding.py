"""What an embedding is: the texts an engine receives and the vectors it answers with."""

from typing import TypeAlias

from msgspec import Struct

from appliance.generation import TextPrompt, TokenPrompt, Usage

EmbeddingInput: TypeAlias = TextPrompt | TokenPrompt


class EmbeddingRequest(Struct, frozen=True, kw_only=True, tag="embed"):
    """Texts to be embedded, each on its own.

    `dimensions` None means the model's own number; a model that cannot be cut refuses any other.
    """

    model: str
    inputs: tuple[EmbeddingInput, ...]
    dimensions: int | None = None


class Embeddings(Struct, frozen=True, kw_only=True, tag="embeddings"):
    """One vector of length 1 for each input, in their order: float32, little-endian."""

    vectors: tuple[bytes, ...]
    usage: Usage
