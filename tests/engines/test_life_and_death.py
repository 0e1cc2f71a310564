"""What becomes of requests and processes when a client, a worker or the host ends."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable

import psutil
import pytest

from appliance.generation import Failed, Finished, TextDelta
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

# A gateway that starts streams, says so, and reads on until it is killed.
CALLER = f"""
import asyncio, sys
from pathlib import Path
from engines.client import EngineClient
from tests.engines.host_process import request

async def main():
    client = EngineClient(Path(sys.argv[1]))
    await client.start()
    streams = [client.generate(request({LONG_PROMPT[:3]!r} * 60_000)) for _ in range(6)]
    for stream in streams[:4]:
        await anext(stream)
    queued = [asyncio.create_task(anext(stream)) for stream in streams[4:]]
    await asyncio.sleep(0)
    print("streaming", flush=True)
    while True:
        for stream in streams[:4]:
            await anext(stream)

asyncio.run(main())
"""


def is_gone(process: psutil.Process) -> bool:
    """Neither running nor waiting to be reaped."""
    return not process.is_running()


async def stream(
    client: EngineClient, text: str = LONG_PROMPT
) -> tuple[list[object], asyncio.Task[None]]:
    """A long answer being read, after its first event."""
    events: list[object] = []

    async def read() -> None:
        async for event in client.generate(request(text)):
            events.append(event)  # noqa: PERF401  the list is watched while it grows

    reading = asyncio.create_task(read())
    await until(lambda: events)
    return events, reading


async def test_a_killed_worker_fails_its_requests_and_comes_back(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    """vllm#52871: an engine that dies leaves no caller waiting and is not dead until a restart."""
    host = start_host()
    async with connected(home.engine_socket) as client:
        await client.load("echo")
        streams = [await stream(client) for _ in range(4)]
        (worker,) = host.workers()
        worker.kill()
        async with asyncio.timeout(5):
            await asyncio.gather(*(reading for _, reading in streams))
        for events, _ in streams:
            failed = events[-1]
            assert isinstance(failed, Failed)
            assert failed.code == "engine.replica_lost"
            assert failed.retry_after_s
        assert text_of(await answer(client, request("again"))) == "again"
        status = await client.status()
        assert status.host_pid == host.pid
        assert (status.replicas[0].restarts, status.replicas[0].state) == (1, "ready")
        assert status.replicas[0].pid not in (0, worker.pid)
        assert is_gone(worker)


async def test_a_worker_killed_again_and_again_comes_back_each_time(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    host = start_host()
    async with connected(home.engine_socket) as client:
        for num_deaths in range(4):
            assert text_of(await answer(client, request("here"))) == "here"
            (worker,) = host.workers()
            worker.kill()
            await replica_when(client, lambda r, n=num_deaths: r.restarts == n + 1)
        assert text_of(await answer(client, request("still"))) == "still"


async def test_a_killed_client_leaves_nothing_running(
    host: HostProcess, client: EngineClient
) -> None:
    caller = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CALLER, str(host.home.engine_socket)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert caller.stdout is not None
    assert await caller.stdout.readline() == b"streaming\n"
    await replica_when(client, lambda r: r.stats.num_running == 4 and r.stats.num_waiting == 2)
    caller.kill()
    await caller.wait()
    stopped = await replica_when(
        client, lambda r: r.stats.num_running == 0 and r.stats.num_waiting == 0
    )
    assert stopped.stats.kv_used_tokens == 0


async def test_workers_die_with_a_killed_host_and_the_next_host_takes_over(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    first = start_host()
    async with connected(home.engine_socket) as client:
        events, reading = await stream(client)
        (worker,) = first.workers()
        first.stop(signal.SIGKILL)
        await reading
        assert isinstance(events[-1], Failed)
        assert events[-1].code == "engine.host_lost"
        await until(lambda: is_gone(worker))
        second = start_host()
        assert text_of(await answer(client, request("taken over"))) == "taken over"
        assert (await client.status()).host_pid == second.pid != first.pid


async def test_a_worker_that_hears_nothing_dies_with_its_host(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    host = start_host()
    async with connected(home.engine_socket) as client:
        await client.load("echo")
    (worker,) = host.workers()
    worker.suspend()
    host.stop(signal.SIGKILL)
    await until(lambda: is_gone(worker))


async def test_a_drained_host_finishes_what_runs_and_refuses_what_comes(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    host = start_host()
    async with connected(home.engine_socket) as client:
        events, reading = await stream(client, LONG_PROMPT[:60_000])
        (worker,) = host.workers()
        host.process.send_signal(signal.SIGTERM)
        refused: list[object] = []
        while not (refused and isinstance(refused[-1], Failed)):
            refused = list(await answer(client, request("x")))
        assert refused[-1].code == "engine.draining"
        assert isinstance(events[-1], TextDelta)
        await reading
        assert isinstance(events[-1], Finished)
    status, _ = await asyncio.to_thread(host.stop)
    assert status == 0
    assert is_gone(worker)
    assert not home.engine_socket.exists()


async def test_a_drain_has_a_bound(home: Home, start_host: Callable[[], HostProcess]) -> None:
    home.config.write_text(home.config.read_text().replace("drain_s = 60", "drain_s = 0.2"))
    host = start_host()
    async with connected(home.engine_socket) as client:
        events, reading = await stream(client)
        (worker,) = host.workers()
        worker.suspend()
        status, _ = await asyncio.to_thread(host.stop)
        await reading
        assert isinstance(events[-1], Failed)
        assert events[-1].code == "engine.draining"
    assert status == 0
    assert is_gone(worker)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_host_leaves_at_once(
    home: Home, start_host: Callable[[], HostProcess], number: int
) -> None:
    host = start_host()
    async with connected(home.engine_socket) as client:
        await client.load("echo")
        (worker,) = host.workers()
        status, log = await asyncio.to_thread(host.stop, number)
    assert status == 0, log
    assert "Traceback" not in log
    assert is_gone(worker)
    assert not home.engine_socket.exists()


async def test_a_host_told_to_leave_while_it_loads_leaves(
    start_host: Callable[[], HostProcess], home: Home
) -> None:
    host = start_host()
    status, _ = await asyncio.to_thread(host.stop)
    assert status == 0
    assert not home.engine_socket.exists()


def test_a_second_host_on_one_socket_is_refused_and_harms_nothing(
    host: HostProcess, client: EngineClient
) -> None:
    assert client.connected
    second = HostProcess(host.home)
    assert not second.is_listening
    status, log = second.stop()
    assert status == 75
    assert "engine.host_running" in log
    assert str(host.pid) in log
    assert host.home.engine_socket.exists()


def test_a_broken_configuration_ends_the_host_in_words(home: Home) -> None:
    home.config.write_text("[engine]\nnum_slotz = 3\n")
    host = HostProcess(home)
    status, log = host.stop()
    assert status == 78
    assert "num_slotz" in log


async def test_a_model_of_the_preload_list_that_is_not_there_is_no_obstacle(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    home.config.write_text('[engine]\npreload = ["missing", "echo"]\n')
    host = start_host()
    async with connected(home.engine_socket) as client:
        assert text_of(await answer(client, request("fine"))) == "fine"
    _, log = await asyncio.to_thread(host.stop)
    assert "missing" in log
    assert "Traceback" not in log


def test_the_host_imports_no_engine_library() -> None:
    program = (
        "import sys, engines.__main__\n"
        "print([name for name in ('torch', 'llama_cpp', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=DEADLINE_S
    )
    assert done.stdout == b"[]\n"
