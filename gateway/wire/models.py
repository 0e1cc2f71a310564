"""The models a key may use, as OpenAI's model objects."""

from msgspec import Struct


class WireModel(Struct, frozen=True, kw_only=True):
    """One model; `created` is when it came into the library, in Unix seconds."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "hisar"


class WireModelList(Struct, frozen=True, kw_only=True):
    """A list of models, all on one page."""

    object: str = "list"
    data: list[WireModel]
