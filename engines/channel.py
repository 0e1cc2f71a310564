"""One end of a socket that carries frames: bytes in, messages out, and the other way round.

Host, worker handle and client all stand on this; it alone knows of transports and buffers. It runs
inside the event loop's callbacks, with no task of its own, because every token passes here.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar, cast

import msgspec

from engines.protocol import AnyMessage, FrameError, decode_body, encode_frame, split_frames

_M = TypeVar("_M")

# About 5,000 tokens: some tenths of a second of the busiest engine.
HIGH_WATER_BYTES: Final = 256 * 1024


class Channel(asyncio.Protocol, Generic[_M]):
    """Frames of one connected stream socket.

    `on_message` gets each message as it arrives. `on_broken` is told of a frame that cannot be
    read, after which nothing more is delivered. `on_pressure` is told when the other side falls
    behind (true) and when it has caught up (false). `closed` is done when the socket is gone.
    """

    def __init__(
        self,
        decoder: msgspec.msgpack.Decoder[_M],
        *,
        on_message: Callable[[_M], None],
        on_broken: Callable[[FrameError], None],
        on_closed: Callable[[], None],
        on_pressure: Callable[[bool], None] | None = None,
    ) -> None:
        self._decoder = decoder
        self._on_message = on_message
        self._on_broken = on_broken
        self._on_closed = on_closed
        self._on_pressure = on_pressure
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def unsent_bytes(self) -> int:
        """What the other side has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def send(self, message: AnyMessage) -> None:
        """Put a message on its way; nothing happens on a closed channel. Raises FrameError."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode_frame(message))

    def close(self) -> None:
        """Close once everything sent has been taken."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now and drop what was not taken."""
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Let what the other side sends wait in its own hands."""
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take up reading again."""
        if self._transport is not None and not self._transport.is_reading():
            self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The event loop has connected the socket."""
        # uvloop's transports have the methods of asyncio.Transport without being one.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)

    def pause_writing(self) -> None:
        """More than the high-water mark waits to be taken."""
        if self._on_pressure is not None:
            self._on_pressure(True)

    def resume_writing(self) -> None:
        """A quarter of the high-water mark is left."""
        if self._on_pressure is not None:
            self._on_pressure(False)

    def data_received(self, data: bytes) -> None:
        """Bytes have come in."""
        self._buffer += data
        try:
            for body in split_frames(self._buffer):
                self._on_message(decode_body(self._decoder, body))
                if self._transport is None or self._transport.is_closing():
                    return
        except FrameError as error:
            self._on_broken(error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The socket is gone, for whatever reason."""
        self._transport = None
        self._buffer.clear()
        if not self.closed.done():
            self.closed.set_result(None)
        self._on_closed()
