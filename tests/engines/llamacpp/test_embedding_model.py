"""Embeddings of a real model, all-MiniLM-L6-v2 in float32, against the same network in numpy."""

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
from numpy.typing import NDArray

from engines.llamacpp.embedding import LlamaEmbedder
from engines.llamacpp.runner import start
from engines.prompting import PromptEncoder
from engines.runner import RunnerOptions
from tests import embedding_model
from tests.engines.llamacpp.bert_reference import embed

pytestmark = pytest.mark.embedding_model

# Each text, and the ids that the model's own tokenizer makes of it.
TOKENS = {
    "Hello, world!": [101, 7592, 1010, 2088, 999, 102],
    "unbelievably": [101, 4895, 8671, 2666, 3567, 6321, 102],
    "  a\tb\n\n c ": [101, 1037, 1038, 1039, 102],
    "$12.50 (net)": [101, 1002, 2260, 1012, 2753, 1006, 5658, 1007, 102],
    "ılık IŞIK ğ": [101, 1104, 2140, 11722, 2243, 2003, 5480, 1043, 102],
    "東京 2026": [101, 1879, 1755, 16798, 2575, 102],
    "emoji 👩\u200d💻 !": [101, 7861, 29147, 2072, 100, 999, 102],
}
ALIKE = ("A cat sleeps on the sofa.", "A kitten is napping on the couch.")
OTHER = "The central bank raised its interest rate."


@pytest.fixture(scope="module")
def embedder() -> Iterator[LlamaEmbedder]:
    options = RunnerOptions(model="minilm", path=embedding_model.PATH, context_tokens=4096)
    runner = start(options)
    assert isinstance(runner, LlamaEmbedder)
    with closing(runner):
        yield runner


def to_ids(embedder: LlamaEmbedder, texts: list[str]) -> list[list[int]]:
    encoder = PromptEncoder(embedder.tokenizer, None)
    return [encoder.encode_document(text) for text in texts]


def to_unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return unit


def test_a_text_is_cut_as_the_model_was_trained(embedder: LlamaEmbedder) -> None:
    assert dict(zip(TOKENS, to_ids(embedder, list(TOKENS)), strict=True)) == TOKENS


def test_markers_in_a_text_are_text(embedder: LlamaEmbedder) -> None:
    (token_ids,) = to_ids(embedder, ["[SEP] x"])
    assert token_ids.count(102) == 1


def test_vectors_are_those_of_the_network(embedder: LlamaEmbedder) -> None:
    """ollama#6262, llama.cpp#6722: in a batch and alone."""
    inputs = to_ids(embedder, [*TOKENS, *ALIKE, OTHER, OTHER * 20])
    weights = embedding_model.read_weights()
    expected = np.stack([embed(weights, ids, num_heads=12) for ids in inputs])
    together = to_unit(embedder.embed(inputs))
    alone = to_unit(np.concatenate([embedder.embed([ids]) for ids in inputs]))
    assert (together * expected).sum(axis=1).min() >= 0.9999
    assert (alone * together).sum(axis=1).min() >= 0.9999


def test_what_means_the_same_is_near(embedder: LlamaEmbedder) -> None:
    one, other, far = to_unit(embedder.embed(to_ids(embedder, [*ALIKE, OTHER])))
    assert one @ other > 0.6
    assert one @ far < 0.2


def test_an_input_may_be_as_long_as_the_model_was_trained_for(embedder: LlamaEmbedder) -> None:
    assert embedder.max_tokens == 512
    assert embedder.facts.embedding_size == 384
    longest = to_ids(embedder, ["word " * 510])
    assert len(longest[0]) == 512
    assert np.isfinite(embedder.embed(longest)).all()
