"""Which heads of requests are taken: small ones of HTTP/1, with a body whose end is beyond doubt.

What the parser refuses already (RFC 9112: folded or nameless fields, two lengths, a length beside a
coding, control characters) never comes here.
"""

from typing import Final

from appliance.errors import RequestError

Fields = list[tuple[bytes, bytes]]

MAX_HEAD_BYTES: Final = 32 * 1024
MAX_FIELDS: Final = 100
HEAD_TIMEOUT_S: Final = 10.0

_VERSIONS: Final = ("1.0", "1.1")


def check_head(version: str, target: bytes, fields: Fields) -> None:
    """Raise RequestError 400, 431 or 505 for a head that is not taken; names are in lower case."""
    check_version(version)
    if len(target) + sum(len(name) + len(value) for name, value in fields) > MAX_HEAD_BYTES:
        raise head_too_large()
    if len(fields) > MAX_FIELDS:
        raise RequestError(
            "request.head_too_large", f"there may be {MAX_FIELDS} headers", status=431
        )
    codings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
    if codings not in ([], [b"chunked"]):
        raise malformed("a body may be `chunked`, and encoded in no other way")


def check_version(version: str) -> None:
    """Raise RequestError 505 for what is no HTTP/1."""
    if version not in _VERSIONS:
        raise RequestError(
            "request.version_not_supported", "this box speaks HTTP/1.1 and HTTP/1.0", status=505
        )


def to_origin_form(target: bytes, fields: Fields) -> tuple[bytes, Fields]:
    """What a client means that names the whole address, as it would to a proxy.

    The address counts then, and not what `host` says beside it (RFC 9112, section 3.2.2).
    """
    _, has_authority, rest = target.partition(b"://")
    if target.startswith(b"/") or not has_authority:
        return target, fields
    authority, _, path = rest.partition(b"/")
    named = [(name, authority if name == b"host" else value) for name, value in fields]
    return b"/" + path, named


def malformed(message: str = "this is not an HTTP/1 request") -> RequestError:
    """No request."""
    return RequestError("request.malformed", message, status=400)


def broken_body() -> RequestError:
    """A request that cannot be read to its end."""
    return malformed("the chunks of the body cannot be read")


def head_too_large() -> RequestError:
    """A head that goes on and on."""
    return RequestError(
        "request.head_too_large", f"headers may have {MAX_HEAD_BYTES} bytes", status=431
    )


def head_too_slow() -> RequestError:
    """A head that does not end."""
    return RequestError(
        "request.head_timeout",
        f"the headers did not arrive within {HEAD_TIMEOUT_S:g} seconds",
        status=408,
    )


def no_proxy() -> RequestError:
    """CONNECT asks for a way to somewhere else."""
    return RequestError("request.method_not_allowed", "this box is no proxy", status=501)
