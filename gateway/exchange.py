"""The HTTP side of one call: its body in, its answer out, and whether anybody still listens.

An ASGI server does not stop a handler whose client has left; it only says so to whoever calls
`receive`. So from the moment the body is in, one watcher waits for that word and then stops the
work where it stands, be it queued, waiting for the first token, or in the midst of an answer.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self

from litestar.datastructures import Headers
from litestar.types import Receive, Scope, Send

from appliance.config import GatewayConfig
from appliance.errors import HisarError, RequestError
from gateway.context import context_of
from gateway.respond import send_error, start_response
from gateway.wire import sse
from gateway.wire.envelopes import envelope_of

JSON: Final = {"content-type": "application/json"}


class Exchange:
    """Used as `async with`: leaving it ends the watching, and turns a stop into its reason."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, config: GatewayConfig) -> None:
        self.headers = Headers.from_scope(scope)
        self._scope = scope
        self._envelope = envelope_of(scope["path"])
        self._receive = receive
        self._send = send
        self._config = config
        self._has_started = False
        self._num_sent = 0
        self._watcher: asyncio.Task[None] | None = None
        self._worker: asyncio.Task[object] | None = None
        self._stopped_by: HisarError | None = None

    async def __aenter__(self) -> Self:
        self._worker = asyncio.current_task()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
        worker, self._worker = self._worker, None
        if self._stopped_by is None or worker is None:
            return
        # As asyncio.timeout does: the cancellation is ours only if nobody else asked for one.
        if worker.uncancel() == 0 and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise self._stopped_by from None

    def stop(self, reason: HisarError) -> None:
        """End the work now; whoever uses the exchange sees `reason` raised."""
        if self._worker is not None and self._stopped_by is None:
            self._stopped_by = reason
            self._worker.cancel()

    async def read_body(self) -> bytes:
        """The whole body; from here on a client that leaves stops the work.

        Raises RequestError 413 over the size limit, 408 when it comes too slowly, and
        `request.cancelled` when the client left in the middle.
        """
        limit = self._config.body_limit_bytes
        if int(self.headers.get("content-length", 0)) > limit:
            raise _too_large(limit)
        try:
            async with asyncio.timeout(self._config.body_timeout_s):
                body = await self._collect(limit)
        except TimeoutError:
            raise _too_slow(self._config.body_timeout_s) from None
        self._watcher = asyncio.create_task(self._watch())
        return body

    async def send_whole(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Answer 200 with one JSON object."""
        length = {"content-length": str(len(body))}
        await self._start(200, {**JSON, **length, **headers})
        await self._send_piece(body, more=False)

    async def send_stream(self, chunks: AsyncIterator[bytes], headers: Mapping[str, str]) -> None:
        """Answer 200 with server-sent events, each as soon as it is there; silence is filled."""
        await self._start(200, {**sse.HEADERS, **headers})
        pinging = asyncio.create_task(self._ping())
        try:
            async for chunk in chunks:
                await self._send_piece(chunk, more=True)
        finally:
            pinging.cancel()
        await self._send_piece(b"", more=False)

    async def refuse(self, error: HisarError, headers: Mapping[str, str]) -> None:
        """Say what went wrong: as a response of its own, or inside the stream that has begun."""
        if self._has_started:
            ending = self._envelope.to_ending(error, context_of(self._scope).id)
            await self._send_piece(ending, more=False)
        else:
            # The rest of a body that came too slowly may still come; it is no request.
            is_late = getattr(error, "status", 0) == HTTPStatus.REQUEST_TIMEOUT
            closing = {"connection": "close"} if is_late else {}
            await send_error(error, self._scope, self._send, {**headers, **closing})

    async def _ping(self) -> None:
        """Send a ping whenever nothing else was sent for a while: proxies cut silence."""
        while True:
            num_sent = self._num_sent
            await asyncio.sleep(self._config.ping_s)
            if self._num_sent == num_sent:
                await self._send_piece(self._envelope.ping, more=True)

    async def _send_piece(self, piece: bytes, *, more: bool) -> None:
        self._num_sent += 1
        await self._send({"type": "http.response.body", "body": piece, "more_body": more})

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        self._has_started = True
        await start_response(status, headers, self._send)

    async def _collect(self, limit: int) -> bytes:
        body = bytearray()
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise client_gone()
            body += message["body"]
            if len(body) > limit:
                raise _too_large(limit)
            if not message["more_body"]:
                return bytes(body)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.stop(client_gone())


def client_gone() -> RequestError:
    """Nobody will read the answer."""
    return RequestError("request.cancelled", "the client closed the connection", status=499)


def _too_large(limit: int) -> RequestError:
    return RequestError(
        "request.body_too_large", f"a request body may have {limit} bytes", status=413
    )


def _too_slow(timeout_s: float) -> RequestError:
    return RequestError(
        "request.body_timeout",
        f"the request body did not arrive within {timeout_s:g} seconds",
        status=408,
    )
