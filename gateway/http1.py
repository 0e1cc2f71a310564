"""What uvicorn's HTTP/1 protocol is given on top, for a door that strangers knock at.

A head must be small and come soon; a client must read what it asked for; whoever leaves is noticed,
also behind requests that it sent ahead; what is not HTTP is answered in our error envelope. An
HTTP/1.0 client gets no chunks. A body that follows an offer to speak HTTP/2 (`upgrade: h2c`, as
Java's client sends by default) is read, and the offer is left alone (RFC 9110, section 7.8).
"""

from asyncio import TimerHandle, Transport
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from appliance.errors import RequestError
from gateway.wire.openai_errors import to_answer

MAX_HEAD_BYTES: Final = 32 * 1024
HEAD_TIMEOUT_S: Final = 10.0
# How long a connection may say nothing, or go on sending a body that was refused.
IDLE_TIMEOUT_S: Final = 30.0
# How long a client may leave a full buffer of its answer unread.
STALL_TIMEOUT_S: Final = 60.0
MAX_SENT_AHEAD: Final = 16

_OFFER: Final = frozenset({b"connection", b"upgrade", b"http2-settings"})


class _HeadTooLargeError(Exception):
    """Raised through the parser to end it."""


class Http1(HttpToolsProtocol):
    """One connection."""

    _running: RequestResponseCycle | None = None
    _head_timer: TimerHandle | None = None
    _stall_timer: TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """A client has connected, and is expected to say something."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: every request of this connection is told."""
        cycles = [self._running, *(cycle for cycle, _ in self.pipeline)]
        super().connection_lost(exc)
        _cancel(self._head_timer, self._stall_timer, self.timeout_keep_alive_task)
        for cycle in cycles:
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        """Bytes have come in."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline_upgrade(data[offer.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(_read_error(error))
        else:
            if self._head_timer is not None:
                self._head_bytes += len(data)
                if self._head_bytes > MAX_HEAD_BYTES:
                    self._refuse(_head_too_large())

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._unset_keepalive_if_required()
        _cancel(self._head_timer)
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._refuse, _head_too_slow())
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header field."""
        super().on_header(name, value)
        if sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD_BYTES:
            raise _HeadTooLargeError

    def on_headers_complete(self) -> None:
        """The head is whole: the request begins, or waits behind those sent before it."""
        _cancel(self._head_timer)
        self._head_timer = None
        super().on_headers_complete()
        if 0 < len(self.pipeline) < MAX_SENT_AHEAD:
            # Only a connection that is read from says that its client has left.
            self.flow.resume_reading()

    def pause_writing(self) -> None:
        """The client is not reading."""
        super().pause_writing()
        self._stall_timer = self.loop.call_later(STALL_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads on."""
        super().resume_writing()
        _cancel(self._stall_timer)

    def _should_upgrade(self) -> bool:
        # uvicorn leaves requests alone that answer yes; they come back by way of HttpParserUpgrade.
        return True

    def _decline_upgrade(self, rest: bytes) -> None:
        """Read the request again without its offer, so that its body counts as one."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(_no_proxy())
            return
        head = b"%b %b HTTP/1.1\r\n" % (method, self.url)
        fields = (b"%b: %b\r\n" % field for field in self.headers if field[0] not in _OFFER)
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(head + b"".join(fields) + b"\r\n" + rest)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ANN401
        self._running = cycle
        if cycle.scope["http_version"] == "1.0":
            app = _without_chunks(cycle, app)
        super()._start_asgi_task(cycle, app)

    def _refuse(self, error: RequestError) -> None:
        """Answer what is no request, unless an answer is being written, and hang up."""
        if self._running is None or self._running.response_complete:
            answer = to_answer(error)
            headers = {**answer.headers, "content-length": str(len(answer.body))}
            lines = [f"HTTP/1.1 {answer.status} Refused", "connection: close"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            self.transport.write("\r\n".join([*lines, "", ""]).encode() + answer.body)
        self.transport.close()


def _without_chunks(cycle: RequestResponseCycle, app: Any) -> Any:  # noqa: ANN401
    """HTTP/1.0 knows no chunks: a body ends where its connection does (RFC 1945, section 7.2.2)."""

    async def send(message: Any) -> None:  # noqa: ANN401
        if message["type"] == "http.response.start":
            cycle.chunked_encoding = False
        else:
            cycle.expected_content_length = len(message.get("body", b""))
        await cycle.send(message)

    async def unchunked(scope: Any, receive: Any, _: Any) -> None:  # noqa: ANN401
        await app(scope, receive, send)

    return unchunked


def _cancel(*timers: TimerHandle | None) -> None:
    for timer in timers:
        if timer is not None:
            timer.cancel()


def _read_error(error: httptools.HttpParserError) -> RequestError:
    if isinstance(error.__context__, _HeadTooLargeError):
        return _head_too_large()
    return RequestError("request.malformed", "this is not an HTTP/1 request", status=400)


def _head_too_large() -> RequestError:
    return RequestError(
        "request.head_too_large", f"headers may have {MAX_HEAD_BYTES} bytes", status=431
    )


def _head_too_slow() -> RequestError:
    return RequestError(
        "request.head_timeout",
        f"the headers did not arrive within {HEAD_TIMEOUT_S:g} seconds",
        status=408,
    )


def _no_proxy() -> RequestError:
    return RequestError("request.method_not_allowed", "this box is no proxy", status=405)
