"""How a response is handed to the ASGI server: a start, and for errors also their whole body."""

from collections.abc import Mapping

from litestar.types import Scope, Send

from gateway.context import context_of
from gateway.wire.envelopes import envelope_of


async def start_response(status: int, headers: Mapping[str, str], send: Send) -> None:
    """Send status and headers; header values are Latin-1 by the time they come here."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (name.encode(), value.encode("latin-1")) for name, value in headers.items()
            ],
        }
    )


async def send_error(
    error: Exception, scope: Scope, send: Send, more_headers: Mapping[str, str] | None = None
) -> None:
    """Send an error's whole response, in the envelope of the address that was asked."""
    answer = envelope_of(scope["path"]).to_answer(error, context_of(scope).id)
    length = {"content-length": str(len(answer.body))}
    await start_response(answer.status, {**answer.headers, **length, **(more_headers or {})}, send)
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})
