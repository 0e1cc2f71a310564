"""What is known of a request before a route sees it, and how it travels in an ASGI scope."""

from uuid import uuid4

from litestar.types import Scope
from msgspec import Struct


class RequestContext(Struct, frozen=True, kw_only=True):
    """One HTTP request. `id` is our own; `arrived_at` is a monotonic time in seconds."""

    id: str
    arrived_at: float


def attach_context(scope: Scope, arrived_at: float) -> RequestContext:
    """Name the request."""
    context = RequestContext(id=uuid4().hex, arrived_at=arrived_at)
    scope["state"]["context"] = context
    return context


def context_of(scope: Scope) -> RequestContext:
    """What `attach_context` attached."""
    context: RequestContext = scope["state"]["context"]
    return context
