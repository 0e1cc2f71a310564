"""Model objects as the official client reads them."""

import msgspec
from openai.pagination import SyncPage
from openai.types import Model

from gateway.wire.models import WireModel, WireModelList


def test_a_model_is_what_the_official_client_expects() -> None:
    model = Model.model_validate_json(msgspec.json.encode(WireModel(id="名前:7b", created=2)))
    assert (model.id, model.object, model.created) == ("名前:7b", "model", 2)
    assert model.owned_by == "hisar"


def test_a_list_of_models_is_what_the_official_client_expects() -> None:
    models = WireModelList(data=[WireModel(id="a", created=1), WireModel(id="b", created=2)])
    page = SyncPage[Model].model_validate_json(msgspec.json.encode(models))
    assert page.object == "list"
    assert [model.id for model in page.data] == ["a", "b"]
