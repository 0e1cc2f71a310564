"""GET /health/live, GET /health/ready: the only routes that ask for no key, and tell no secrets."""

from http import HTTPStatus

from litestar import Response, get

from gateway.box import Box
from gateway.readiness import Readiness, find_obstacles


@get("/health/live")
async def live() -> dict[str, str]:
    """The process answers."""
    return {"status": "live"}


@get("/health/ready")
async def ready(box: Box) -> Response[Readiness]:
    """Whether a request sent now would be served; 503 with the reasons where not."""
    obstacles = await find_obstacles(box)
    return Response(
        Readiness(status="unavailable" if obstacles else "ready", reasons=obstacles),
        status_code=HTTPStatus.SERVICE_UNAVAILABLE if obstacles else HTTPStatus.OK,
    )
