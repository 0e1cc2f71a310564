"""A socket that is closed only once its client has had the time to read what was said last.

Closing while a body is still on its way makes the kernel answer with a reset, and a reset takes the
answer with it that says why (RFC 9112, section 9.6). So this side is closed, and the other read,
and forgotten, until the client has closed its own or the time is over.
"""

from asyncio import AbstractEventLoop, TimerHandle, Transport
from collections.abc import Callable
from typing import Any, Final

LINGER_S: Final = 30.0


class Lingering(Transport):
    """A transport whose `close` lingers while `is_sending` says that the client has not ended."""

    def __init__(
        self, transport: Transport, loop: AbstractEventLoop, is_sending: Callable[[], bool]
    ) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._is_sending = is_sending
        self._timer: TimerHandle | None = None

    def close(self) -> None:
        """Say nothing more, and hang up as soon as that is heard."""
        if self.is_closing():
            return
        if not self._is_sending():
            self._transport.close()
            return
        self._timer = self._loop.call_later(LINGER_S, self._transport.close)
        self._transport.write_eof()
        self._transport.resume_reading()

    def abort(self) -> None:
        """Hang up now."""
        self._transport.abort()

    def forget(self) -> None:
        """The connection is gone."""
        if self._timer is not None:
            self._timer.cancel()

    def is_closing(self) -> bool:
        """Whether nothing more can be said."""
        return self._timer is not None or self._transport.is_closing()

    def write(self, data: Any) -> None:  # noqa: ANN401  any kind of bytes
        """Say something."""
        if not self.is_closing():
            self._transport.write(data)

    def pause_reading(self) -> None:
        """Listen no more for now; a farewell is not left unheard."""
        if not self.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Listen again."""
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401
        """What asyncio knows of the socket."""
        return self._transport.get_extra_info(name, default)
