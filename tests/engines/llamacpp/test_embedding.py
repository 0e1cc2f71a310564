"""Embeddings of a real BERT network in llama.cpp: tiny, with drawn weights."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from gguf import PoolingType
from numpy.typing import NDArray

from appliance.errors import CatalogueError, EngineError
from engines.llamacpp.embedding import LlamaEmbedder, choose_input_tokens
from engines.llamacpp.runner import start
from engines.prompting import PromptEncoder
from engines.runner import RunnerOptions
from engines.worker import warm_up
from tests.engines.llamacpp.bert_file import (
    CLS,
    CLS_ID,
    CONTEXT_TOKENS,
    MEAN,
    RANK,
    SEP_ID,
    SIZE,
    WORDS,
    tiny_bert,
    write_bert,
)


def open_bert(path: Path, pooling: PoolingType | None = MEAN) -> LlamaEmbedder:
    write_bert(path, tiny_bert(pooling))
    runner = start(RunnerOptions(model="tiny", path=path, context_tokens=4096))
    assert isinstance(runner, LlamaEmbedder)
    return runner


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaEmbedder]:
    with closing(open_bert(tmp_path_factory.mktemp("bert") / "bert.gguf")) as runner:
        yield runner


def texts(num: int) -> list[str]:
    draw = np.random.default_rng(1)
    return [" ".join(draw.choice(WORDS, draw.integers(1, 9))) for _ in range(num)]


def cosines(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    dots = (a * b).sum(axis=1)
    return dots / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def test_a_batch_gives_what_each_input_gives_alone(embedder: LlamaEmbedder) -> None:
    """ollama#6262, llama.cpp#6722: equal vectors, in the order of the inputs."""
    encoder = PromptEncoder(embedder.tokenizer, None)
    inputs = [encoder.encode_document(text) for text in texts(6)]
    assert sum(map(len, inputs)) <= embedder.max_tokens
    together = embedder.embed(inputs)
    alone = np.concatenate([embedder.embed([token_ids]) for token_ids in inputs])
    assert together.shape == (6, SIZE)
    assert cosines(together, alone).min() >= 0.9999
    apart = cosines(together, np.roll(together, 1, axis=0))
    assert apart.max() < 0.9999


def test_a_batch_leaves_nothing_behind_for_the_next(embedder: LlamaEmbedder) -> None:
    asked = [[CLS_ID, 5, SEP_ID]]
    before = embedder.embed(asked)
    embedder.embed([[CLS_ID, 6, 7, SEP_ID]] * 5)
    assert np.array_equal(embedder.embed(asked), before)


def test_the_longest_input_is_as_long_as_the_model_was_trained_for(
    embedder: LlamaEmbedder,
) -> None:
    assert embedder.max_tokens == CONTEXT_TOKENS
    assert np.isfinite(embedder.embed([[CLS_ID] * CONTEXT_TOKENS])).all()


def test_a_document_stands_between_the_tokens_that_the_model_wants(
    embedder: LlamaEmbedder,
) -> None:
    encoder = PromptEncoder(embedder.tokenizer, None)
    assert encoder.encode_document("the gold") == [CLS_ID, 5, 6, SEP_ID]
    assert encoder.encode_document("") == [CLS_ID, SEP_ID]


def test_the_way_of_pooling_is_the_models_own(embedder: LlamaEmbedder, tmp_path: Path) -> None:
    inputs = [[CLS_ID, 5, 6, 7, SEP_ID]]
    with closing(open_bert(tmp_path / "cls.gguf", CLS)) as by_cls:
        assert cosines(by_cls.embed(inputs), embedder.embed(inputs)).max() < 0.9999


def test_an_encoder_that_does_not_say_is_pooled_by_the_mean(
    embedder: LlamaEmbedder, tmp_path: Path
) -> None:
    inputs = [[CLS_ID, 5, 6, 7, SEP_ID]]
    with closing(open_bert(tmp_path / "silent.gguf", None)) as silent:
        assert np.array_equal(silent.embed(inputs), embedder.embed(inputs))


def test_a_model_that_ranks_is_no_model_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "rank.gguf"
    write_bert(path, tiny_bert(RANK))
    with pytest.raises(CatalogueError) as caught:
        start(RunnerOptions(model="tiny", path=path))
    assert caught.value.code == "model.not_generative"


def test_a_batch_that_llama_cpp_refuses_is_an_error_and_no_end(embedder: LlamaEmbedder) -> None:
    with pytest.raises(EngineError) as caught:
        embedder.embed([[10**6]])
    assert caught.value.code == "engine.decode_failed"
    assert embedder.embed([[CLS_ID]]).shape == (1, SIZE)


def test_it_is_ready_after_a_first_batch(embedder: LlamaEmbedder) -> None:
    warm_up(embedder)
    assert not embedder.facts.generates
    assert embedder.facts.embedding_size == SIZE


def test_a_context_meant_for_other_models_bounds_an_input() -> None:
    assert choose_input_tokens(0, 512) == 512
    assert choose_input_tokens(256, 512) == 256
    assert choose_input_tokens(8192, 512) == 512
    assert choose_input_tokens(0, 0) == choose_input_tokens(0, 32768) == 4096
