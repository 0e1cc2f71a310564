"""GET /metrics, for a Prometheus that holds a key with the scope `admin`."""

from typing import Any

from litestar import Request, Response, get
from prometheus_client import CONTENT_TYPE_LATEST

from appliance.identity import Scope
from gateway.box import Box


@get("/metrics")
async def show_metrics(request: Request[Any, Any, Any], box: Box) -> Response[bytes]:
    """What was counted and timed since the start, and how the engines stand now."""
    await box.callers.authenticate(request.headers, Scope.ADMIN)
    await box.fleet.refresh()
    return Response(box.metrics.render(), headers={"content-type": CONTENT_TYPE_LATEST})
