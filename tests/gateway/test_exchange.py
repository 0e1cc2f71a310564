"""One call's HTTP side: bodies read within bounds, and work stopped when its client leaves."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import pytest

from appliance.config import GatewayConfig
from appliance.errors import EngineError, RequestError
from gateway.context import attach_context
from gateway.exchange import Exchange
from gateway.wire.sse import PING

CONFIG = GatewayConfig(body_limit_bytes=10, body_timeout_s=0.05, ping_s=0.001)


class Server:
    """The server's side of an ASGI connection."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.messages = deque(messages)
        self.sent: list[dict[str, Any]] = []
        self.bodies: asyncio.Queue[bytes] = asyncio.Queue()
        self.is_gone = asyncio.Event()

    async def receive(self) -> Any:
        if self.messages:
            return self.messages.popleft()
        await self.is_gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        self.bodies.put_nowait(message.get("body", b""))

    async def wait_until_sent(self, body: bytes) -> None:
        while await self.bodies.get() != body:
            pass

    def exchange(self, path: str = "/v1/completions", **headers: str) -> Exchange:
        fields = [
            (name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()
        ]
        scope: Any = {"headers": fields, "path": path, "state": {}}
        attach_context(scope, arrived_at=0.0)
        return Exchange(scope, self.receive, self.send, CONFIG)  # type: ignore[arg-type]


def piece(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_in_pieces_is_one() -> None:
    async with Server(piece(b"ab", more=True), piece(b"cd")).exchange() as exchange:
        assert await exchange.read_body() == b"abcd"


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_over_the_limit_is_413(announced: bool) -> None:
    headers = {"content_length": "11"} if announced else {}
    exchange = Server(piece(b"x" * 6, more=True), piece(b"x" * 5)).exchange(**headers)
    with pytest.raises(RequestError) as refused:
        await exchange.read_body()
    assert refused.value.status == 413


async def test_a_body_that_does_not_come_is_408_and_closes() -> None:
    server = Server(piece(b"x", more=True))
    exchange = server.exchange()
    with pytest.raises(RequestError) as refused:
        await exchange.read_body()
    assert refused.value.status == 408
    await exchange.refuse(refused.value, {})
    assert (b"connection", b"close") in server.sent[0]["headers"]


async def test_a_client_that_leaves_stops_the_work() -> None:
    server = Server(piece(b"x"))
    with pytest.raises(RequestError) as stopped:
        async with server.exchange() as exchange:
            await exchange.read_body()
            server.is_gone.set()
            await asyncio.Event().wait()
    assert stopped.value.code == "request.cancelled"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_stop_is_raised_as_its_reason() -> None:
    reason = EngineError("gateway.draining", "going down")
    with pytest.raises(EngineError) as stopped:
        async with Server().exchange() as exchange:
            asyncio.get_running_loop().call_soon(exchange.stop, reason)
            await asyncio.Event().wait()
    assert stopped.value is reason


async def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def work() -> None:
        async with Server().exchange():
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


async def test_an_error_before_the_answer_is_a_response_and_after_it_an_event() -> None:
    error = EngineError("engine.host_lost", "gone")
    server = Server()
    await server.exchange().refuse(error, {"x-more": "1"})
    assert server.sent[0]["status"] >= 500
    assert (b"x-more", b"1") in server.sent[0]["headers"]

    async def broken() -> Any:
        yield b"data: 1\n\n"
        raise error

    server = Server()
    exchange = server.exchange()
    with pytest.raises(EngineError):
        await exchange.send_stream(broken(), {})
    await exchange.refuse(error, {})
    assert [message["type"] for message in server.sent] == ["http.response.start"] + [
        "http.response.body"
    ] * 2
    assert server.sent[-1]["body"].endswith(b"data: [DONE]\n\n")
    assert server.sent[-1]["more_body"] is False


async def test_an_error_is_told_in_the_dialect_of_the_address() -> None:
    error = EngineError("engine.host_lost", "gone")
    server = Server()
    await server.exchange("/v1/messages").refuse(error, {})
    assert json.loads(server.sent[1]["body"])["type"] == "error"

    async def broken() -> AsyncIterator[bytes]:
        yield b"event: a\ndata: {}\n\n"
        raise error

    server = Server()
    exchange = server.exchange("/v1/messages")
    with pytest.raises(EngineError):
        await exchange.send_stream(broken(), {})
    await exchange.refuse(error, {})
    assert server.sent[-1]["body"].startswith(b"event: error\n")
    assert server.sent[-1]["more_body"] is False


@pytest.mark.parametrize(
    ("path", "ping"),
    [("/v1/completions", PING), ("/v1/messages", b'event: ping\ndata: {"type":"ping"}\n\n')],
)
async def test_a_ping_fills_every_silence_and_nothing_is_lost(path: str, ping: bytes) -> None:
    server = Server()

    async def chunks() -> AsyncIterator[bytes]:
        yield b"a"
        for _ in range(2):
            await server.wait_until_sent(ping)
        yield b"b"

    async with asyncio.timeout(5):
        await server.exchange(path).send_stream(chunks(), {})
    bodies = [message["body"] for message in server.sent[1:]]
    assert [body for body in bodies if body != ping] == [b"a", b"b", b""]
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
