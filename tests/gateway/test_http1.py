"""How long a connection is waited for: its head, its next request, the end of a refused body."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from gateway import http1, lingering
from gateway.http1 import Http1

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]

REQUEST = b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 9\r\n\r\n"


async def refuse(_scope: Any, _receive: Any, send: Any) -> None:
    """Answer without reading the body."""
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": b"no"})


class Door:
    """A server of this protocol alone."""

    def __init__(self) -> None:
        self.state = ServerState()
        self._config = uvicorn.Config(
            refuse, http=Http1, ws="none", lifespan="off", log_config=None
        )
        self._config.load()

    async def open(self) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: Http1(self._config, self.state, {}), "127.0.0.1", 0)

    async def wait_until_left(self) -> None:
        async with asyncio.timeout(10):
            while self.state.connections:  # noqa: ASYNC110  uvicorn sets no event of ours
                await asyncio.sleep(0.01)


@pytest.fixture
async def door() -> Door:
    return Door()


@pytest.fixture
async def client(door: Door) -> AsyncIterator[Client]:
    server = await door.open()
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    yield reader, writer
    writer.close()
    await writer.wait_closed()
    server.close()
    await door.wait_until_left()


async def test_a_head_that_comes_too_slowly_is_408(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few bytes now and then would hold a connection for ever (CVE-2007-6750)."""
    monkeypatch.setattr(http1, "HEAD_TIMEOUT_S", 0.05)
    reader, writer = client
    writer.write(REQUEST[:20])
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"request.head_timeout" in answer


async def test_a_refused_body_is_waited_for_and_the_answer_is_read(client: Client) -> None:
    reader, writer = client
    writer.write(REQUEST)
    assert (await reader.read()).startswith(b"HTTP/1.1 413 ")
    writer.write(b"123456789")
    await writer.drain()
    assert not writer.is_closing()


async def test_a_client_that_goes_on_for_ever_is_left_in_the_end(
    client: Client, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering, "LINGER_S", 0.05)
    reader, writer = client
    writer.write(REQUEST)
    assert (await reader.read()).startswith(b"HTTP/1.1 413 ")
    await door.wait_until_left()
