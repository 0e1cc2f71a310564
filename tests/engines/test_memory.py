"""What is in memory follows the library: a model that is removed or changed there leaves."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from appliance.catalogue import Library, ModelSpec
from appliance.generation import Failed, Finished
from appliance.home import Home
from engines.client import EngineClient
from tests.engines.host_process import (
    DEADLINE_S,
    LONG_PROMPT,
    HostProcess,
    answer,
    connected,
    replica_when,
    request,
    text_of,
    until,
)


async def no_model_is_left(client: EngineClient) -> None:
    """Wait until nothing is in memory."""
    async with asyncio.timeout(DEADLINE_S):
        while (await client.status()).replicas:  # noqa: ASYNC110  the host sets no event of ours
            await asyncio.sleep(0.01)


async def test_a_removed_model_leaves_memory_and_is_served_no_more(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    host = start_host()
    async with connected(home.engine_socket) as client:
        await client.load("echo")
        Library(home.models).remove("echo")
        await no_model_is_left(client)
        await until(lambda: not host.workers())
        (failed,) = await answer(client, request())
        assert isinstance(failed, Failed)
        assert failed.code == "model.not_found"


async def test_a_removed_model_ends_the_answers_it_has_begun(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    start_host()
    async with connected(home.engine_socket) as client:
        async with aclosing(client.generate(request(LONG_PROMPT))) as stream:
            events = [await anext(stream)]
            Library(home.models).remove("echo")
            events += [event async for event in stream]
        assert text_of(events) == LONG_PROMPT
        assert isinstance(events[-1], Finished)
        await no_model_is_left(client)


async def test_a_model_that_is_replaced_comes_back_as_it_is_now(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    start_host()
    async with connected(home.engine_socket) as client:
        await client.load("echo")
        (before,) = (await client.status()).replicas
        Library(home.models).add(ModelSpec(name="echo", runner="echo", licence="another"))
        after = await replica_when(client, lambda r: r.state == "ready" and r.pid != before.pid)
        assert after.model == "echo"
        assert text_of(await answer(client, request("new"))) == "new"


async def test_a_model_that_failed_says_so_until_it_is_removed(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    library = Library(home.models)
    library.remove("echo")
    library.add(ModelSpec(name="odd", runner="no-such-runner"))
    start_host()
    async with connected(home.engine_socket) as client:
        (failed,) = await answer(client, request(model="odd"))
        assert isinstance(failed, Failed)
        replica = await replica_when(client, lambda replica: replica.state == "failed")
        assert replica.failure_code == failed.code == "engine.model_failed"
        library.remove("odd")
        await no_model_is_left(client)
