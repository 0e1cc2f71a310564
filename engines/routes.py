"""Whose request is whose: which gateway connection a worker's events belong to.

A pure table. A route ends with the first Finished or Failed that passes; what a worker says of a
request after that, or of one nobody asked for, is dropped.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeAlias

from msgspec import Struct

from appliance.generation import EngineEvent, Failed, Finished

Batch: TypeAlias = list[tuple[str, EngineEvent]]


class Receiver(Protocol):
    """Who a request came from."""

    def deliver(self, batch: Batch) -> None:
        """Take events of this receiver's requests, named by its own ids."""


class Route(Struct, frozen=True, kw_only=True):
    """Where the events of one request go."""

    receiver: Receiver
    request_id: str


class Routes:
    """The requests one replica has been given, by the key the worker knows them by."""

    def __init__(self) -> None:
        self._routes: dict[str, Route] = {}

    def __len__(self) -> int:
        return len(self._routes)

    def __contains__(self, key: str) -> bool:
        return key in self._routes

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._routes))

    def add(self, key: str, route: Route) -> None:
        """Remember where the events of `key` go."""
        self._routes[key] = route

    def keys_of(self, receiver: Receiver) -> list[str]:
        """The open requests of one receiver."""
        return [key for key, route in self._routes.items() if route.receiver is receiver]

    def deliver(self, batch: Iterable[tuple[str, EngineEvent]]) -> None:
        """Hand events on, in order, each receiver's together."""
        shares: dict[int, tuple[Receiver, Batch]] = {}
        for key, event in batch:
            route = self._routes.get(key)
            if route is None:
                continue
            if isinstance(event, (Finished, Failed)):
                del self._routes[key]
            receiver = route.receiver
            _, share = shares.setdefault(id(receiver), (receiver, []))
            share.append((route.request_id, event))
        for receiver, share in shares.values():
            receiver.deliver(share)
