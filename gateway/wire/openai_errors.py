"""What OpenAI's clients see when something goes wrong.

`{"error": {"message", "type", "param", "code"}}`. In a stream it is an event like any other, before
the usual ending.
"""

from typing import Final

import msgspec
from msgspec import Struct

from appliance.errors import HisarError
from gateway.wire.errors import ErrorAnswer, tell
from gateway.wire.sse import frame

DONE: Final = b"data: [DONE]\n\n"


class _Error(Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str


class _Envelope(Struct, frozen=True):
    error: _Error


def to_answer(error: Exception, request_id: str = "") -> ErrorAnswer:  # noqa: ARG001
    """The response for any exception that happened before anything else was sent.

    The envelope does not name the request.
    """
    told = tell(error)
    return ErrorAnswer(status=told.status, headers=told.headers, body=to_body(error))


def to_body(error: Exception) -> bytes:
    """The envelope alone."""
    told = tell(error)
    return msgspec.json.encode(_Envelope(_Error(told.message, told.type, told.param, told.code)))


def to_ending(error: HisarError, request_id: str = "") -> bytes:  # noqa: ARG001
    """How a stream ends that went wrong after it had begun."""
    return frame(to_body(error)) + DONE
