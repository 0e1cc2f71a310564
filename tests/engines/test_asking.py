"""Questions that are asked of a real host with a real worker: tokens, text and vectors."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import numpy as np
import pytest

from appliance.catalogue import Library, ModelSpec
from appliance.embedding import EmbeddingRequest, Embeddings
from appliance.errors import EngineError, RequestError
from appliance.generation import ChatPrompt, Message, TextDelta, TextPrompt
from appliance.home import Home
from appliance.tokens import DetokenizeRequest, TokenizeRequest
from engines.client import EngineClient
from tests.engines.host_process import LONG_PROMPT, HostProcess, connected, replica_when, request


def embedding(*texts: str, model: str = "echo") -> EmbeddingRequest:
    return EmbeddingRequest(model=model, inputs=tuple(TextPrompt(text=text) for text in texts))


def vectors(embeddings: Embeddings) -> np.ndarray:
    return np.array([np.frombuffer(vector, "<f4") for vector in embeddings.vectors])


async def test_tokens_and_text_are_each_others_inverse(client: EngineClient) -> None:
    prompt = TextPrompt(text="hello, ğüşİı 👩")
    tokenized = await client.tokenize(
        TokenizeRequest(model="echo", prompt=prompt, adds_special_tokens=False)
    )
    assert tokenized.context_tokens == 400_000
    text = await client.detokenize(DetokenizeRequest(model="echo", token_ids=tokenized.token_ids))
    assert text.text == prompt.text


async def test_a_chat_is_tokenised_by_the_models_own_template(client: EngineClient) -> None:
    prompt = ChatPrompt(messages=(Message(role="user", content="hi"),))
    tokenized = await client.tokenize(TokenizeRequest(model="echo", prompt=prompt))
    text = await client.detokenize(DetokenizeRequest(model="echo", token_ids=tokenized.token_ids))
    assert text.text.startswith("<|begin|><|im_start|>user\nhi<|im_end|>")


async def test_many_at_once_get_the_vectors_that_each_gets_alone(client: EngineClient) -> None:
    """ollama#6262, llama.cpp#6722"""
    texts = [f"text number {i} {'x' * (i % 7)}" for i in range(150)]
    together, *alone = await asyncio.gather(
        client.embed(embedding(*texts)), *(client.embed(embedding(text)) for text in texts)
    )
    expected = np.concatenate([vectors(each) for each in alone])
    assert np.allclose(vectors(together), expected, atol=1e-6)
    assert together.usage.prompt_tokens == sum(each.usage.prompt_tokens for each in alone)


async def test_a_stream_goes_on_while_much_is_embedded(client: EngineClient) -> None:
    async with aclosing(client.generate(request(LONG_PROMPT))) as stream:
        await anext(stream)
        embedded = asyncio.create_task(client.embed(embedding(*["words " * 300] * 200)))
        num_meanwhile = 0
        async for event in stream:
            num_meanwhile += isinstance(event, TextDelta) and not embedded.done()
            if embedded.done():
                break
        assert len((await embedded).vectors) == 200
        # Beside a stream a batch has 512 tokens: no two of these inputs fit into one.
        assert num_meanwhile >= 100


async def test_a_refusal_names_the_field_at_fault(client: EngineClient) -> None:
    with pytest.raises(RequestError) as caught:
        await client.detokenize(DetokenizeRequest(model="echo", token_ids=(10**6,)))
    assert (caught.value.code, caught.value.param) == ("request.token_out_of_range", "tokens")
    assert caught.value.status == 400
    with pytest.raises(EngineError) as unknown:
        await client.embed(embedding("x", model="nobody"))
    assert unknown.value.code == "model.not_found"


async def test_a_question_to_a_model_that_is_not_in_memory_loads_it(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    Library(home.models).add(ModelSpec(name="other", runner="echo"))
    start_host()
    async with connected(home.engine_socket) as client:
        answers = [client.embed(embedding("x", model="other")) for _ in range(5)]
        assert len({answer.vectors for answer in await asyncio.gather(*answers)}) == 1


async def test_work_that_nobody_waits_for_is_dropped(client: EngineClient) -> None:
    before = await replica_when(client, lambda r: r.state == "ready")
    asking = asyncio.create_task(client.embed(embedding(*["words " * 2000] * 300)))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait({asking})
    assert len((await client.embed(embedding("quick"))).vectors) == 1
    assert (await replica_when(client, lambda r: r.state == "ready")).pid == before.pid


async def test_a_host_that_drains_answers_what_it_was_asked(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    host = start_host()
    async with connected(home.engine_socket) as client:
        await client.load("echo")
        asked = asyncio.create_task(client.embed(embedding(*["words " * 2000] * 50)))
        await asyncio.sleep(0)  # It is on the wire first: an answer to the next says it has come.
        await client.tokenize(TokenizeRequest(model="echo", prompt=TextPrompt(text="x")))
        status, _ = await asyncio.to_thread(host.stop)
        assert status == 0
        assert len((await asked).vectors) == 50
