"""Who may use which model. A model that a caller may not use looks as if it were not there."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from appliance.catalogue import Library, ModelSpec
from appliance.errors import CatalogueError, RequestError
from appliance.identity import Principal


class Offer(Struct, frozen=True, kw_only=True):
    """A model under one of the names it can be called by."""

    name: str
    spec: ModelSpec


class Access:
    """The models on the box and their aliases, through the eyes of a principal."""

    def __init__(self, library: Library, aliases: Mapping[str, str]) -> None:
        self._library = library
        self._aliases = aliases

    def find(self, principal: Principal, name: str) -> Offer:
        """The model behind a name or alias. Raises RequestError 404, the same for every reason."""
        target = self._aliases.get(name, name)
        if not _may_use(principal, name, target):
            raise not_found(name)
        try:
            return Offer(name=name, spec=self._library.get(target))
        except CatalogueError:
            raise not_found(name) from None

    def offers(self, principal: Principal) -> Iterator[Offer]:
        """Everything the principal may use, by name."""
        specs = {spec.name: spec for spec in self._library.list()}
        names = {**{name: name for name in specs}, **self._aliases}
        for name, target in sorted(names.items()):
            if target in specs and _may_use(principal, name, target):
                yield Offer(name=name, spec=specs[target])


def _may_use(principal: Principal, name: str, target: str) -> bool:
    return not principal.models or name in principal.models or target in principal.models


def not_found(name: str) -> RequestError:
    """The one answer to a model that is unknown and to one that is forbidden."""
    return RequestError(
        "model.not_found",
        f"the model {name!r} does not exist or you may not use it",
        status=404,
        param="model",
    )
