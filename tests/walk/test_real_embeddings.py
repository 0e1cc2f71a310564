"""A real model's embeddings through the whole box, asked for by the official `openai` clients."""

import asyncio
import base64
import math
from collections.abc import Iterator

import numpy as np
import openai
import pytest
from numpy.typing import NDArray

from appliance.catalogue import Library
from appliance.progress import Silent
from appliance.pull import Order, pull
from tests import embedding_model
from tests.engines.llamacpp.bert_reference import embed
from tests.walk.running_box import CONFIG, RunningBox, running_box

pytestmark = pytest.mark.embedding_model

MODEL = "minilm"
SIZE = 384
# Guardrails that are on refuse token ids, which they cannot read.
UNSCREENED = CONFIG.replace('denied_words = ["zeytinburnu"]', "")
HELLO_WORLD = [101, 7592, 1010, 2088, 999, 102]
TEXTS = [f"Customer {number} asks about the {what}." for number, what in
         enumerate(["loan", "card", "rate", "branch", "İzmir şubesi", "东京"] * 6)]  # fmt: skip


@pytest.fixture(scope="module")
def model_box() -> Iterator[RunningBox]:
    with running_box(UNSCREENED) as box:
        source = f"file:{embedding_model.PATH}"
        pull(Library(box.home.models), Order(name=MODEL, source=source), Silent())
        yield box


@pytest.fixture
def client(model_box: RunningBox) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{model_box.url}/v1", api_key=model_box.key, max_retries=0, timeout=60
    ) as client:
        yield client


def rows(answer: openai.types.CreateEmbeddingResponse) -> NDArray[np.float64]:
    assert [vector.index for vector in answer.data] == list(range(len(answer.data)))
    return np.array([vector.embedding for vector in answer.data])


def test_a_text_and_its_token_ids_are_the_network_s_vector(client: openai.OpenAI) -> None:
    expected = embed(embedding_model.read_weights(), HELLO_WORLD, num_heads=12)
    as_text = client.embeddings.create(model=MODEL, input="Hello, world!")
    as_ids = client.embeddings.create(model=MODEL, input=HELLO_WORLD)
    many_ids = client.embeddings.create(model=MODEL, input=[HELLO_WORLD, HELLO_WORLD])
    for row in (*rows(as_text), *rows(as_ids), *rows(many_ids)):
        assert math.hypot(*row) == pytest.approx(1, abs=1e-5)
        assert row @ expected >= 0.9999
    assert as_text.usage.prompt_tokens == as_text.usage.total_tokens == len(HELLO_WORLD)
    assert many_ids.usage.prompt_tokens == 2 * len(HELLO_WORLD)


def test_a_batch_equals_one_at_a_time(client: openai.OpenAI) -> None:
    together = rows(client.embeddings.create(model=MODEL, input=TEXTS))
    alone = [rows(client.embeddings.create(model=MODEL, input=text))[0] for text in TEXTS[:6]]
    assert (together[:6] * np.stack(alone)).sum(axis=1).min() >= 0.9999
    assert together.shape == (len(TEXTS), SIZE)


async def test_calls_side_by_side_keep_their_own_order(model_box: RunningBox) -> None:
    """ollama#6262, llama.cpp#6722: parallel embeddings corrupted, or mixed up."""
    async with openai.AsyncOpenAI(
        base_url=f"{model_box.url}/v1", api_key=model_box.key, max_retries=0, timeout=60
    ) as client:
        calls = [TEXTS[i:] + TEXTS[:i] for i in range(8)]
        answers = await asyncio.gather(
            *(client.embeddings.create(model=MODEL, input=texts) for texts in calls)
        )
    first = rows(answers[0])
    for turned, answer in enumerate(answers):
        assert (rows(answer) * np.roll(first, -turned, axis=0)).sum(axis=1).min() >= 0.9999
    apart = first @ first.T - np.eye(len(first))
    assert apart.max() < 0.9999


def test_both_encodings_are_the_same_numbers(client: openai.OpenAI) -> None:
    as_numbers = client.embeddings.create(model=MODEL, input="hello", encoding_format="float")
    as_base64 = client.embeddings.create(model=MODEL, input="hello", encoding_format="base64")
    packed = as_base64.data[0].embedding
    assert isinstance(packed, str)
    decoded = np.frombuffer(base64.b64decode(packed), "<f4")
    assert np.array_equal(decoded, np.array(as_numbers.data[0].embedding, np.float32))


def test_only_the_model_s_own_number_of_dimensions_is_had(client: openai.OpenAI) -> None:
    whole = client.embeddings.create(model=MODEL, input="hello", dimensions=SIZE)
    assert len(whole.data[0].embedding) == SIZE
    with pytest.raises(openai.BadRequestError) as cut:
        client.embeddings.create(model=MODEL, input="hello", dimensions=64)
    assert cut.value.param == "dimensions"


@pytest.mark.parametrize("given", ["", [], ["hello", ""], [[]], [10**6], [-1]])
def test_what_is_no_text_is_refused(client: openai.OpenAI, given: list[int]) -> None:
    """vllm#7283: an empty input is the caller's mistake and nobody's end."""
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model=MODEL, input=given)
    assert (refused.value.param or "").startswith("input")


def test_nothing_is_cut_to_fit(client: openai.OpenAI) -> None:
    """ollama#4967: an input too long was cut without a word."""
    longest = client.embeddings.create(model=MODEL, input="word " * 510)
    assert longest.usage.prompt_tokens == 512
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model=MODEL, input=["short", "word " * 511])
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "input")
    assert "513" in refused.value.message and "512" in refused.value.message


def test_it_writes_no_text(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model=MODEL, prompt="hello")
    assert refused.value.param == "model"
