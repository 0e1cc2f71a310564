"""How each address says what is not the answer itself: errors, pings, and the name of the request.

The address alone decides it, because an error may come before there is a route.
"""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from appliance.errors import HisarError
from gateway.wire import anthropic_errors, openai_errors
from gateway.wire.anthropic_stream import PING as NAMED_PING
from gateway.wire.errors import ErrorAnswer
from gateway.wire.sse import PING


class Envelope(Struct, frozen=True, kw_only=True):
    """One dialect's way. Both functions are given the error and the id of the request.

    `to_answer` writes a whole response, `to_ending` the end of a stream that has begun.
    """

    to_answer: Callable[[Exception, str], ErrorAnswer]
    to_ending: Callable[[HisarError, str], bytes]
    ping: bytes
    id_headers: tuple[str, ...]


_OPENAI: Final = Envelope(
    to_answer=openai_errors.to_answer,
    to_ending=openai_errors.to_ending,
    ping=PING,
    id_headers=("x-request-id",),
)
_ANTHROPIC: Final = Envelope(
    to_answer=anthropic_errors.to_answer,
    to_ending=anthropic_errors.to_ending,
    ping=NAMED_PING,
    id_headers=("x-request-id", "request-id"),
)
_BY_PATH: Final = {"/v1/messages": _ANTHROPIC}


def envelope_of(path: str) -> Envelope:
    """The envelope of an address: OpenAI's where it has none of its own."""
    return _BY_PATH.get(path, _OPENAI)
