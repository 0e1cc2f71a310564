"""GET /v1/models, GET /v1/models/{name}"""

from typing import Any

from litestar import Request, get

from appliance.identity import Scope
from gateway.auth.access import Offer
from gateway.box import Box
from gateway.wire.models import WireModel, WireModelList

_PATH = "/v1/models"


@get(_PATH)
async def list_models(request: Request[Any, Any, Any], box: Box) -> WireModelList:
    """The models that the caller may use, under every name they go by."""
    principal = await box.callers.authenticate(request.headers, Scope.GENERATE)
    return WireModelList(data=[_to_wire(offer) for offer in box.access.offers(principal)])


@get(_PATH + "/{name:path}")
async def show_model(request: Request[Any, Any, Any], box: Box) -> WireModel:
    """One of them. A name may hold slashes, so it is all that follows in the path."""
    principal = await box.callers.authenticate(request.headers, Scope.GENERATE)
    name = request.scope["path"].removeprefix(f"{_PATH}/")
    return _to_wire(box.access.find(principal, name))


def _to_wire(offer: Offer) -> WireModel:
    return WireModel(id=offer.name, created=offer.spec.created_at)
