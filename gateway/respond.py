"""How a response is handed to the ASGI server: a start, and for errors also their whole body."""

from collections.abc import Mapping

from litestar.types import Send

from appliance.errors import HisarError
from gateway.wire.errors import to_answer


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
    error: HisarError, send: Send, more_headers: Mapping[str, str] | None = None
) -> None:
    """Send an error's whole response."""
    answer = to_answer(error)
    length = {"content-length": str(len(answer.body))}
    await start_response(answer.status, {**answer.headers, **length, **(more_headers or {})}, send)
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})
