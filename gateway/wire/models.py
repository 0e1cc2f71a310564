"""The models a key may use, as OpenAI's model objects."""

from collections.abc import Iterable

from msgspec import Struct

from appliance.catalogue import ModelSpec


class WireModel(Struct, frozen=True, kw_only=True):
    """One model."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "hisar"


class WireModelList(Struct, frozen=True, kw_only=True):
    """A list of models, all on one page."""

    object: str = "list"
    data: list[WireModel]


def from_spec(spec: ModelSpec) -> WireModel:
    """A model of the library; `created` is when it came there, in Unix seconds."""
    return WireModel(id=spec.name, created=spec.created_at)


def from_specs(specs: Iterable[ModelSpec]) -> WireModelList:
    """Models of the library, by name."""
    return WireModelList(data=[from_spec(spec) for spec in sorted(specs, key=lambda it: it.name)])
