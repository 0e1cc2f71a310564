"""What a client of Anthropic's messages sees when something goes wrong.

`{"type": "error", "error": {"type", "message"}, "request_id"}`. The kinds and statuses are
Anthropic's: where others say 503, it says 529 `overloaded_error`.
"""

from http import HTTPStatus
from typing import Final

import msgspec
from msgspec import Struct

from appliance.errors import HisarError
from gateway.wire.errors import ErrorAnswer, tell
from gateway.wire.sse import named_frame

OVERLOADED: Final = 529
_KINDS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    OVERLOADED: "overloaded_error",
    504: "timeout_error",
}


class _Error(Struct, frozen=True):
    type: str
    message: str


class _Envelope(Struct, frozen=True, tag_field="type", tag="error"):
    error: _Error
    request_id: str


def to_answer(error: Exception, request_id: str) -> ErrorAnswer:
    """The response for any exception that happened before anything else was sent."""
    told = tell(error)
    return ErrorAnswer(
        status=_to_status(told.status), headers=told.headers, body=to_body(error, request_id)
    )


def to_body(error: Exception, request_id: str) -> bytes:
    """The envelope alone."""
    told = tell(error)
    status = _to_status(told.status)
    fallback = "api_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else _KINDS[400]
    return msgspec.json.encode(
        _Envelope(_Error(_KINDS.get(status, fallback), told.message), request_id)
    )


def to_ending(error: HisarError, request_id: str) -> bytes:
    """How a stream ends that went wrong after it had begun."""
    return named_frame("error", to_body(error, request_id))


def _to_status(status: int) -> int:
    return OVERLOADED if status == HTTPStatus.SERVICE_UNAVAILABLE else status
