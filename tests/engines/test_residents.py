"""Several models on a real host whose memory holds only some of them."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing

import pytest

from appliance.catalogue import Library, ModelSpec
from appliance.embedding import EmbeddingRequest
from appliance.errors import EngineError
from appliance.footprint import WORKER_BYTES
from appliance.generation import Failed, Finished, TextPrompt
from appliance.home import Home
from engines.client import EngineClient
from tests.engines.host_process import (
    DEADLINE_S,
    LONG_PROMPT,
    HostProcess,
    answer,
    connected,
    request,
    text_of,
    until,
)

ONE = WORKER_BYTES + 1
TWO = 2 * WORKER_BYTES + 1


def configure(home: Home, *, memory_bytes: int, preload: str = "", keep_alive_s: float = 0) -> None:
    """A home with models a, b and c, and room for some of them."""
    for name in "abc":
        Library(home.models).add(ModelSpec(name=name, runner="echo"))
    home.config.write_text(
        f"[engine]\npreload = [{preload}]\ncontext_tokens = 400000\nnum_slots = 4\n"
        f"memory_bytes = {memory_bytes}\nkeep_alive_s = {keep_alive_s}\n"
    )


async def models_of(client: EngineClient) -> list[str]:
    """The models on this host and on their way there."""
    return [replica.model for replica in (await client.status()).replicas]


async def models_become(client: EngineClient, expected: list[str]) -> None:
    """Wait until these are the models on this host."""
    async with asyncio.timeout(DEADLINE_S):
        while await models_of(client) != expected:  # noqa: ASYNC110  the host sets no event of ours
            await asyncio.sleep(0.01)


async def say(client: EngineClient, text: str, model: str) -> str:
    return text_of(await answer(client, request(text, model=model)))


async def test_an_idle_model_leaves_for_another_and_comes_back(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    configure(home, memory_bytes=ONE)
    host = start_host()
    async with connected(home.engine_socket) as client:
        for number, model in enumerate("abab"):
            assert await say(client, "hello", model) == "hello"
            status = await client.status()
            assert [(r.model, r.state) for r in status.replicas] == [(model, "ready")]
            assert Counter(status.evictions) == Counter(a=(number + 1) // 2, b=number // 2)
            assert status.replicas[0].load_s > 0
            assert len(host.workers()) == 1


async def test_a_model_in_use_is_never_let_go_of_and_the_other_waits_for_it(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    configure(home, memory_bytes=ONE)
    start_host()
    async with connected(home.engine_socket) as client:
        async with aclosing(client.generate(request("ab " * 3000, model="a"))) as stream:
            events = [await anext(stream)]
            waiting = [asyncio.create_task(say(client, f"b{i}", "b")) for i in range(3)]
            await models_become(client, ["a", "b"])
            (_, second) = (await client.status()).replicas
            assert (second.state, second.pid) == ("waiting", 0)
            events += [event async for event in stream]
        assert text_of(events) == "ab " * 3000
        assert isinstance(events[-1], Finished)
        assert await asyncio.gather(*waiting) == ["b0", "b1", "b2"]
        assert await models_of(client) == ["b"]


async def test_a_question_under_way_holds_its_model_too(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    configure(home, memory_bytes=ONE)
    start_host()
    async with connected(home.engine_socket) as client:
        inputs = (TextPrompt(text="words " * 2000),) * 100
        asked = asyncio.create_task(client.embed(EmbeddingRequest(model="a", inputs=inputs)))
        await models_become(client, ["a"])
        assert await say(client, "hello", "b") == "hello"
        assert len((await asked).vectors) == 100


async def test_who_gives_up_waiting_makes_nobody_leave(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    configure(home, memory_bytes=ONE)
    start_host()
    async with connected(home.engine_socket) as client:
        async with aclosing(client.generate(request(LONG_PROMPT, model="a"))) as stream:
            await anext(stream)
            waiting = asyncio.create_task(answer(client, request("x", model="b")))
            await models_become(client, ["a", "b"])
            waiting.cancel()
            await models_become(client, ["a"])
        assert await say(client, "hello", "a") == "hello"
        assert (await client.status()).evictions == {}


async def test_the_one_idle_for_longest_leaves(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    configure(home, memory_bytes=TWO)
    start_host()
    async with connected(home.engine_socket) as client:
        for model in "abac":
            assert await say(client, "hello", model) == "hello"
        assert await models_of(client) == ["a", "c"]


async def test_a_pinned_model_stays_and_the_other_is_refused_with_both_numbers(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    configure(home, memory_bytes=ONE, preload='"a"', keep_alive_s=0.01)
    start_host()
    async with connected(home.engine_socket) as client:
        await client.load("a")
        with pytest.raises(EngineError, match="'b' needs 192 MiB of memory and 0 MiB are") as e:
            await client.load("b")
        assert e.value.code == "engine.does_not_fit"
        (failed,) = await answer(client, request("x", model="b"))
        assert isinstance(failed, Failed)
        assert failed.code == "engine.does_not_fit"
        assert await say(client, "hello", "a") == "hello"
        assert await models_of(client) == ["a"]


async def test_a_model_that_nobody_uses_leaves_after_a_while_and_comes_back(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    configure(home, memory_bytes=TWO, preload='"a"', keep_alive_s=0.05)
    host = start_host()
    async with connected(home.engine_socket) as client:
        await client.load("a")
        async with aclosing(client.generate(request("ab " * 3000, model="b"))) as stream:
            events = [event async for event in stream]
        assert text_of(events) == "ab " * 3000
        await models_become(client, ["a"])
        await until(lambda: len(host.workers()) == 1)
        assert await say(client, "again", "b") == "again"


async def test_many_who_want_different_models_are_all_served(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    configure(home, memory_bytes=TWO)
    host = start_host()
    async with connected(home.engine_socket) as client:
        asked = [say(client, f"{model}{i}", model) for i in range(10) for model in "abc"]
        said = await asyncio.gather(*asked)
        assert said == [f"{model}{i}" for i in range(10) for model in "abc"]
        assert len(host.workers()) <= 2


async def test_a_host_that_drains_does_not_wait_for_room(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    configure(home, memory_bytes=ONE)
    host = start_host()
    async with connected(home.engine_socket) as client:
        async with aclosing(client.generate(request("ab " * 3000, model="a"))) as stream:
            events = [await anext(stream)]
            waiting = asyncio.create_task(answer(client, request("x", model="b")))
            await models_become(client, ["a", "b"])
            stopping = asyncio.create_task(asyncio.to_thread(host.stop))
            (failed,) = await waiting
            assert isinstance(failed, Failed)
            assert failed.code == "engine.draining"
            events += [event async for event in stream]
        assert isinstance(events[-1], Finished)
        status, _ = await stopping
        assert status == 0
