"""What a client is told when something goes wrong, whatever the envelope it comes in.

`code` is OpenAI's where it has one for the matter, and our own stable code (see the manual) where
it has none. Messages that were not written for a client are replaced: they may name paths, hosts
or tables.
"""

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from litestar.exceptions import HTTPException
from msgspec import Struct

from appliance.errors import EngineError, HisarError, RequestError
from appliance.generation import Failed

_INVALID: Final = "invalid_request_error"
_SERVER: Final = "server_error"
_DEFAULT_RETRY_AFTER_S: Final = 1.0


class Shape(Struct, frozen=True):
    """How an error code looks from outside. `code` None: the stable code itself.

    `is_lasting`: asking again does not help until the operator has done something. `challenge`: how
    to authenticate (RFC 6750, section 3), where the status is 401.
    """

    status: int
    type: str = _INVALID
    code: str | None = None
    param: str | None = None
    is_lasting: bool = False
    challenge: str = "Bearer"


class Told(Struct, frozen=True, kw_only=True):
    """What a client is told of an error; `headers` stand above it where it is a whole response."""

    status: int
    message: str
    type: str
    param: str | None
    code: str
    headers: dict[str, str]


class ErrorAnswer(Struct, frozen=True, kw_only=True):
    """A response that says what went wrong."""

    status: int
    headers: dict[str, str]
    body: bytes


# The model is here and cannot be loaded.
_UNUSABLE: Final = Shape(503, _SERVER, is_lasting=True)
_BAD_TOKEN: Final = Shape(401, challenge='Bearer error="invalid_token"')

# By stable code, or by its area.
_SHAPES: Final = {
    "request": Shape(400),
    "request.cancelled": Shape(499),
    "request.context_length_exceeded": Shape(400, code="context_length_exceeded"),
    "request.invalid_parameter": Shape(400, code="invalid_value"),
    "request.missing_parameter": Shape(400, code="missing_required_parameter"),
    "request.unknown_parameter": Shape(400, code="unknown_parameter"),
    "request.unsupported_parameter": Shape(400, code="unsupported_parameter"),
    "auth": Shape(401, code="invalid_api_key"),
    "auth.forbidden": Shape(403, code="insufficient_permissions"),
    "auth.invalid_token": _BAD_TOKEN,
    "auth.no_tenant": Shape(403),
    "auth.several_tenants": Shape(403),
    "auth.token_expired": _BAD_TOKEN,
    "model": _UNUSABLE,
    "model.not_found": Shape(404, code="model_not_found", param="model"),
    "limits": Shape(429, "requests", "rate_limit_exceeded"),
    "limits.request_too_large": Shape(429, "tokens", "rate_limit_exceeded"),
    "limits.tokens_per_minute": Shape(429, "tokens", "rate_limit_exceeded"),
    "guardrails": Shape(400, code="content_policy_violation"),
    "residency": Shape(403, code="data_residency_mismatch"),
    "audit": Shape(503, _SERVER),
    "store": Shape(503, _SERVER),
    "engine.context_refused": _UNUSABLE,
    "engine.context_too_long": _UNUSABLE,
    "engine.does_not_fit": _UNUSABLE,
    "engine.memory_short": _UNUSABLE,
    "engine.model_failed": _UNUSABLE,
    "engine.not_installed": _UNUSABLE,
    "engine.timeout": Shape(504, _SERVER),
}
_INTERNAL: Final = Shape(500, _SERVER)

# What the web framework refuses by itself.
_REFUSALS: Final = {
    404: ("request.route_not_found", "there is nothing at this address"),
    405: ("request.method_not_allowed", "this address does not take this method"),
    413: ("request.body_too_large", "the request body is too large"),
    415: ("request.unsupported_media_type", "the body must be JSON"),
}
_REFUSAL: Final = ("request.malformed", "the request is malformed")


def tell(error: Exception) -> Told:
    """What may be said of any exception, and with which status."""
    known = from_exception(error)
    shape = _shape_of(known)
    headers = _to_headers(known, shape)
    if isinstance(error, HTTPException) and error.headers and "allow" in error.headers:
        headers["allow"] = error.headers["allow"]
    return Told(
        status=shape.status,
        message=_message_of(known, shape.status),
        type=shape.type,
        param=getattr(known, "param", None) or shape.param,
        code=shape.code or known.code,
        headers=headers,
    )


def from_exception(error: Exception) -> HisarError:
    """What any exception of a route or of the web framework stands for."""
    if isinstance(error, HisarError):
        return error
    if isinstance(error, HTTPException) and error.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
        code, message = _REFUSALS.get(error.status_code, _REFUSAL)
        return RequestError(code, message, status=error.status_code)
    return HisarError("gateway.internal_error", "an internal error")


def from_failed(failed: Failed, param_names: Mapping[str, str] = {}) -> HisarError:
    """What an engine's Failed stands for; `param_names` says how the body calls a parameter."""
    status = _find_shape(failed.code).status
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return EngineError(failed.code, failed.message, retry_after_s=failed.retry_after_s)
    return RequestError(
        failed.code,
        failed.message,
        status=status,
        param=param_names.get(failed.param, failed.param) if failed.param else None,
        retry_after_s=failed.retry_after_s,
    )


def _to_headers(error: HisarError, shape: Shape) -> dict[str, str]:
    """How to authenticate, and when to come back."""
    headers, status = {"content-type": "application/json"}, shape.status
    if status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = shape.challenge
    retry_after_s = getattr(error, "retry_after_s", None)
    if retry_after_s is None and status == HTTPStatus.SERVICE_UNAVAILABLE:
        retry_after_s = _DEFAULT_RETRY_AFTER_S
    if retry_after_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(retry_after_s)))
        headers["retry-after-ms"] = str(max(1, math.ceil(retry_after_s * 1000)))
    should_retry = False if shape.is_lasting else getattr(error, "should_retry", None)
    if should_retry is not None:
        headers["x-should-retry"] = str(should_retry).lower()
    return headers


def _find_shape(code: str) -> Shape:
    return _SHAPES.get(code) or _SHAPES.get(code.partition(".")[0]) or _INTERNAL


def _shape_of(error: HisarError) -> Shape:
    shape = _find_shape(error.code)
    status = shape.status
    if isinstance(error, RequestError):
        status = error.status
    elif isinstance(error, EngineError) and error.retry_after_s is not None:
        status = HTTPStatus.SERVICE_UNAVAILABLE
    if status == shape.status:
        return shape
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Shape(status, _SERVER)
    return Shape(status, shape.type, shape.code, shape.param)


def _message_of(error: HisarError, status: int) -> str:
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        return "something went wrong inside the box; its log has it under the request id"
    if isinstance(error, RequestError | EngineError):
        message = f"{error.message} ({error.hint})" if error.hint else error.message
    elif status > HTTPStatus.INTERNAL_SERVER_ERROR:
        message = "the box cannot serve requests now"
    else:
        message = error.message
    # A name taken from an address may hold bytes that are no text; an error must still be sent.
    return message.encode("utf-8", "replace").decode("utf-8")
