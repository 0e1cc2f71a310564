"""What the walk adds to a request: HTTP through the gateway against the engine client alone.

`python -m tests.bench.walk_overhead`: echo engine, concurrency 1, the two interleaved A B A B.
Prints milliseconds, and the gateway's resident memory before and after.
"""

import asyncio
import json
import socket
import statistics
import time
from collections.abc import Awaitable, Callable

import psutil

from appliance.generation import ChatPrompt, Finished, GenerationRequest, Message
from engines.client import EngineClient
from tests.walk.raw import connect, post
from tests.walk.running_box import MODEL, RunningBox, running_box

NUM_ROUNDS = 5
NUM_CALLS = 200
TEXT = "hello world"


def main() -> None:
    """Measure and print."""
    with running_box() as box:
        assert box.gateway is not None
        gateway = psutil.Process(box.gateway.pid)
        idle_mb = gateway.memory_info().rss / 2**20
        direct, through, streamed = asyncio.run(measure(box))
        used_mb = gateway.memory_info().rss / 2**20
    print(f"{'':24}{'median':>9}{'p90':>9}   ms")
    for name, times in (
        ("engine alone", direct),
        ("through the walk", through),
        ("streamed", streamed),
    ):
        print(f"{name:24}{at(times, 50):9.2f}{at(times, 90):9.2f}")
    print(f"{'added by the walk':24}{at(through, 50) - at(direct, 50):9.2f}")
    print(f"gateway memory: {idle_mb:.0f} MB idle, {used_mb:.0f} MB after {len(through) * 2} calls")


def at(times: list[float], percent: int) -> float:
    """A percentile, in milliseconds."""
    return statistics.quantiles(times, n=100)[percent - 1] * 1000


async def measure(box: RunningBox) -> tuple[list[float], list[float], list[float]]:
    """Seconds of each call: engine alone, whole answers, streamed answers."""
    client = EngineClient(box.home.engine_socket)
    await client.start()
    connection = connect(box.port)
    whole, streamed = request_of(box, stream=False), request_of(box, stream=True)
    kinds: tuple[Callable[[], Awaitable[None]], ...] = (
        lambda: ask_engine(client),
        lambda: ask_gateway(connection, whole, b"}"),
        lambda: ask_gateway(connection, streamed, b"0\r\n\r\n"),
    )
    times: tuple[list[float], ...] = ([], [], [])
    try:
        for _ in range(NUM_ROUNDS):
            for call, taken in zip(kinds, times, strict=True):
                for _ in range(NUM_CALLS):
                    began = time.perf_counter()
                    await call()
                    taken.append(time.perf_counter() - began)
    finally:
        connection.close()
        await client.close()
    return times[0], times[1], times[2]


async def ask_engine(client: EngineClient) -> None:
    """One request without a gateway."""
    prompt = ChatPrompt(messages=(Message(role="user", content=TEXT),))
    request = GenerationRequest(id="bench", model=MODEL, prompts=(prompt,))
    events = [event async for event in client.generate(request)]
    assert isinstance(events[-1], Finished)


async def ask_gateway(connection: socket.socket, request: bytes, ending: bytes) -> None:
    """The same request over HTTP on one kept connection, by a client that costs next to nothing."""
    connection.sendall(request)
    answer = b""
    while not answer.endswith(ending):
        answer += connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 200")


def request_of(box: RunningBox, *, stream: bool) -> bytes:
    """The bytes of one chat request."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": TEXT}], "stream": stream}
    return post(json.dumps(body).encode(), box.key)


if __name__ == "__main__":
    main()
