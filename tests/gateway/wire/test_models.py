"""Model objects as the official client reads them."""

import msgspec
from openai.pagination import SyncPage
from openai.types import Model

from appliance.catalogue import ModelSpec
from gateway.wire.models import from_spec, from_specs

SPECS = (
    ModelSpec(name="名前:7b", runner="echo", created_at=2),
    ModelSpec(name="smollm2:135m", runner="llamacpp", created_at=1),
)


def test_a_model_is_what_the_official_client_expects() -> None:
    model = Model.model_validate_json(msgspec.json.encode(from_spec(SPECS[0])))
    assert (model.id, model.object, model.created, model.owned_by) == (
        "名前:7b",
        "model",
        2,
        "hisar",
    )


def test_models_are_listed_by_name() -> None:
    page = SyncPage[Model].model_validate_json(msgspec.json.encode(from_specs(SPECS)))
    assert page.object == "list"
    assert [model.id for model in page.data] == ["smollm2:135m", "名前:7b"]
    assert msgspec.json.encode(from_specs(())) == b'{"object":"list","data":[]}'
