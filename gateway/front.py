"""What happens to every HTTP request before a route sees it, and after: plain ASGI, outermost.

A request is named, its Host is checked (a web page must not reach the box through a name that
points at it), cross-origin questions are refused, and one line is logged when it is over. Nothing
of a request but its method, route, status, duration and id is written down.
"""

import logging
import re
from typing import Final, cast

from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from appliance import logs
from appliance.clock import Monotonic
from appliance.errors import RequestError
from gateway.context import attach_context, context_of
from gateway.drain import Drain
from gateway.limits.admission import draining
from gateway.respond import send_error
from gateway.wire.envelopes import envelope_of

UNKNOWN_ROUTE: Final = "unknown"
_CLIENT_GONE: Final = 499  # nginx's word for it; nobody sees it but the log
# These speak of the box itself, so they answer while it goes down.
_ABOUT_THE_BOX: Final = ("/health/", "/metrics")
_PORT: Final = re.compile(r":\d*\Z")

_log: Final = logging.getLogger("gateway.access")


class Front:
    """Wraps the web application."""

    def __init__(
        self, app: ASGIApp, allowed_hosts: tuple[str, ...], drain: Drain, clock: Monotonic
    ) -> None:
        self._app = app
        self._allowed_hosts = frozenset(host.lower() for host in allowed_hosts)
        self._drain = drain
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; the server speaks nothing but HTTP."""
        scope = cast("HTTPScope", scope)
        context = attach_context(scope, self._clock())
        refusal = self._refusal(scope)
        id_headers = envelope_of(scope["path"]).id_headers
        headers = [(name.encode(), context.id.encode()) for name in id_headers]
        # With `expect`, nobody can tell whether a refused body is still on its way.
        if refusal is not None or self._drain.is_on or _has_header(scope, b"expect"):
            headers.append((b"connection", b"close"))
        statuses: list[int] = []

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                message["headers"] = [*map(_with_head, message["headers"]), *headers]
            await send(message)

        token = logs.request_id.set(context.id)
        asked = _as_get(scope)
        try:
            if refusal is None:
                await self._app(asked, receive, send_named)
            else:
                await send_error(refusal, scope, send_named)
        finally:
            self._log(asked, statuses)
            logs.request_id.reset(token)

    def _refusal(self, scope: HTTPScope) -> RequestError | None:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if not self._is_allowed(hosts, scope["http_version"]):
            return RequestError(
                "request.host_not_allowed",
                "this box is not called by that name",
                status=400,
                hint="the names it goes by are listed in `gateway.allowed_hosts`",
            )
        if scope["method"] == "OPTIONS" and _has_header(scope, b"origin"):
            return RequestError(
                "request.cross_origin",
                "web pages of other origins may not use this box",
                status=403,
            )
        if self._drain.is_on and not scope["path"].startswith(_ABOUT_THE_BOX):
            return draining()
        return None

    def _is_allowed(self, hosts: list[str], http_version: str) -> bool:
        if not hosts:
            return http_version == "1.0"
        return len(hosts) == 1 and _PORT.sub("", hosts[0]).lower() in self._allowed_hosts

    def _log(self, scope: HTTPScope, statuses: list[int]) -> None:
        route = scope.get("path_template") or UNKNOWN_ROUTE
        _log.info(
            "request",
            extra={
                "route": f"{scope['method']} {route}",
                "status": statuses[0] if statuses else _CLIENT_GONE,
                "duration_s": round(self._clock() - context_of(scope).arrived_at, 6),
            },
        )


def _has_header(scope: HTTPScope, wanted: bytes) -> bool:
    return any(name == wanted for name, _ in scope["headers"])


def _as_get(scope: HTTPScope) -> HTTPScope:
    """HEAD is GET whose body the server leaves out."""
    return {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope


def _with_head(header: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Where GET is allowed, so is HEAD."""
    name, value = header
    return (name, value.replace(b"GET", b"GET, HEAD")) if name.lower() == b"allow" else header
