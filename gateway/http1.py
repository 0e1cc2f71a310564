"""What uvicorn's HTTP/1 protocol is given on top, for a door that strangers knock at.

A head must be small and come soon; a client must read what it asked for; whoever leaves is noticed,
also behind requests that it sent ahead. What is no request is refused in our error envelope, once
all that was asked before it is answered; where it is a request's own body that cannot be read, its
route is told so. Trailers are left out: they are no headers. An HTTP/1.0 client gets no chunks. A
body that follows an offer to speak HTTP/2 (`upgrade: h2c`, as Java's client sends by default) is
read, and the offer is left alone (RFC 9110, section 7.8).
"""

from asyncio import TimerHandle, Transport
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from appliance.errors import RequestError
from gateway.head import (
    HEAD_TIMEOUT_S,
    MAX_HEAD_BYTES,
    broken_body,
    check_head,
    check_version,
    head_too_large,
    head_too_slow,
    malformed,
    no_proxy,
    to_origin_form,
)
from gateway.lingering import Lingering
from gateway.wire.openai_errors import to_answer

# How long a connection may say nothing, or go on sending a body that was refused.
IDLE_TIMEOUT_S: Final = 30.0
# How long a client may leave a full buffer of its answer unread.
STALL_TIMEOUT_S: Final = 60.0
MAX_SENT_AHEAD: Final = 16

_OFFER: Final = frozenset({b"connection", b"upgrade", b"http2-settings"})
_NONE_READ: Final = "0.0"


class Http1(HttpToolsProtocol):
    """One connection."""

    transport: Lingering
    _running: RequestResponseCycle | None = None
    _refusal: RequestError | None = None
    _head_timer: TimerHandle | None = None
    _stall_timer: TimerHandle | None = None
    _is_in_body = False
    # Bytes that came in since the last one that ended a head or belonged to a body.
    _num_idle_bytes = 0
    _has_progressed = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """A client has connected, and is expected to say something."""
        super().connection_made(Lingering(transport, self.loop, self._is_sent_more))
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: every request of this connection is told."""
        cycles = [self._running, *(cycle for cycle, _ in self.pipeline)]
        super().connection_lost(exc)
        self.transport.forget()
        _cancel(self._head_timer, self._stall_timer, self.timeout_keep_alive_task)
        for cycle in cycles:
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        """Bytes have come in."""
        if self._refusal is not None or self.transport.is_closing():
            return
        self._has_progressed = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline_upgrade(data[offer.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(self._read_error(error))
        else:
            self._num_idle_bytes = 0 if self._has_progressed else self._num_idle_bytes + len(data)
            if self._num_idle_bytes > MAX_HEAD_BYTES:
                self._refuse(broken_body() if self._is_in_body else head_too_large())

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._unset_keepalive_if_required()
        _cancel(self._head_timer)
        self._is_in_body = False
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._refuse, head_too_slow())
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header field, or a trailer behind a body in chunks."""
        if not self._is_in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole: the request begins, or waits behind those sent before it."""
        _cancel(self._head_timer)
        self._head_timer = None
        check_head(self.parser.get_http_version(), self.url, self.headers)
        self.url, self.headers[:] = to_origin_form(self.url, self.headers)
        super().on_headers_complete()
        self._has_progressed = self._is_in_body = True
        if 0 < len(self.pipeline) < MAX_SENT_AHEAD:
            # Only a connection that is read from says that its client has left.
            self.flow.resume_reading()

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._has_progressed = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request has come in to its end."""
        self._is_in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is out: the next one's turn, or that of a refusal."""
        super().on_response_complete()
        if self._refusal is not None and not self._is_answering:
            self._say(self._refusal)

    def pause_writing(self) -> None:
        """The client is not reading."""
        super().pause_writing()
        self._stall_timer = self.loop.call_later(STALL_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads on."""
        super().resume_writing()
        _cancel(self._stall_timer)

    @property
    def _is_answering(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def _is_sent_more(self) -> bool:
        return self._is_in_body or self._refusal is not None

    def _should_upgrade(self) -> bool:
        # uvicorn leaves requests alone that answer yes; they come back by way of HttpParserUpgrade.
        return True

    def _decline_upgrade(self, rest: bytes) -> None:
        """Read the request again without its offer, so that its body counts as one."""
        method = self.parser.get_method()
        self._is_in_body = False
        if method == b"CONNECT":
            self._refuse(no_proxy())
            return
        head = b"%b %b HTTP/1.1\r\n" % (method, self.url)
        fields = (b"%b: %b\r\n" % field for field in self.headers if field[0] not in _OFFER)
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(head + b"".join(fields) + b"\r\n" + rest)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ANN401
        self._running = cycle
        send = _send_unchunked(cycle) if cycle.scope["http_version"] == "1.0" else cycle.send

        async def receive() -> Any:  # noqa: ANN401
            message = await cycle.receive()
            if self._refusal is not None and self._is_in_body and cycle is self.cycle:
                raise self._refusal
            return message

        async def run(scope: Any, _receive: Any, _send: Any) -> None:  # noqa: ANN401
            await app(scope, receive, send)

        super()._start_asgi_task(cycle, run)

    def _read_error(self, error: httptools.HttpParserError) -> RequestError:
        """What a callback raised, or what the parser makes of its input."""
        if isinstance(error.__context__, RequestError):
            return error.__context__
        try:
            if self.parser.get_http_version() != _NONE_READ:
                check_version(self.parser.get_http_version())
        except RequestError as other_version:
            return other_version
        return broken_body() if self._is_in_body else malformed()

    def _refuse(self, error: RequestError) -> None:
        """Read no more; this is the last answer, unless it can be that of a request under way."""
        self._refusal = error
        if not self._is_in_body:
            if not self._is_answering:
                self._say(error)
        elif self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False
            self.cycle.message_event.set()

    def _say(self, refusal: RequestError) -> None:
        answer = to_answer(refusal)
        headers = {**answer.headers, "content-length": str(len(answer.body))}
        lines = [f"HTTP/1.1 {answer.status} Refused", "connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + answer.body)
        self.transport.close()


def _send_unchunked(cycle: RequestResponseCycle) -> Any:  # noqa: ANN401
    """HTTP/1.0 knows no chunks: a body ends where its connection does (RFC 1945, section 7.2.2)."""

    async def send(message: Any) -> None:  # noqa: ANN401
        if message["type"] == "http.response.start":
            cycle.chunked_encoding = False
        else:
            cycle.expected_content_length = len(message.get("body", b""))
        await cycle.send(message)

    return send


def _cancel(*timers: TimerHandle | None) -> None:
    for timer in timers:
        if timer is not None:
            timer.cancel()
