"""Which requests may run now, which wait, and which are turned away.

The box runs `max_in_flight` requests at once; up to `max_queued` more wait. The queue is first
come, first served among the requests of one key, and takes turns between keys, so that one busy key
cannot keep the others waiting. A key's own bound counts its waiting requests, too.

`Admission` is a plain state machine without clock or loop. `admit` is its asynchronous edge.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from enum import Enum
from typing import Final

from appliance.errors import RequestError

RETRY_AFTER_S: Final = 1.0


class Standing(Enum):
    """Where a place stands: WAITING, then ADMITTED or REJECTED; LEFT at any time."""

    WAITING = "waiting"
    ADMITTED = "admitted"
    REJECTED = "rejected"
    LEFT = "left"


class Place:
    """One request's place; `notify` is called once when its waiting is over."""

    def __init__(self, key: str, notify: Callable[[], None]) -> None:
        self.key = key
        self.notify = notify
        self.standing = Standing.WAITING


class Admission:
    """The places of one box."""

    def __init__(self, *, max_in_flight: int, max_queued: int) -> None:
        self._max_in_flight = max_in_flight
        self._max_queued = max_queued
        self._held: dict[str, int] = {}
        self._queues: OrderedDict[str, deque[Place]] = OrderedDict()
        self._closed = False
        self.num_in_flight = 0
        self.num_queued = 0

    def take(self, key: str, key_limit: int | None, notify: Callable[[], None]) -> Place:
        """A place that is admitted or waits; or RequestError (429, 503) with nothing changed."""
        self._check_open()
        if key_limit is not None and self._held.get(key, 0) >= key_limit:
            raise _refuse(
                "limits.requests_in_flight",
                f"this key may have {key_limit} requests in flight, and has them",
                status=429,
            )
        place = Place(key, notify)
        if self.num_in_flight < self._max_in_flight:
            self._start(place)
        elif self.num_queued < self._max_queued:
            self._queues.setdefault(key, deque()).append(place)
            self.num_queued += 1
        else:
            raise _refuse("limits.queue_full", "the box is busy and its queue is full")
        self._held[key] = self._held.get(key, 0) + 1
        return place

    def leave(self, place: Place) -> None:
        """Give a place back, waiting or admitted, and let the next in. Leaving twice is nothing."""
        if place.standing is Standing.ADMITTED:
            self.num_in_flight -= 1
        elif place.standing is Standing.WAITING:
            self._forget(place)
        else:
            return
        place.standing = Standing.LEFT
        self._release(place.key)
        self._let_in()

    def close(self) -> None:
        """Turn away whoever waits and whoever comes; those inside stay."""
        self._closed = True
        waiting = [place for queue in self._queues.values() for place in queue]
        self._queues.clear()
        self.num_queued = 0
        for place in waiting:
            place.standing = Standing.REJECTED
            self._release(place.key)
            place.notify()

    def _check_open(self) -> None:
        if self._closed:
            raise draining()

    def _start(self, place: Place) -> None:
        place.standing = Standing.ADMITTED
        self.num_in_flight += 1

    def _let_in(self) -> None:
        while self._queues and self.num_in_flight < self._max_in_flight:
            key, queue = self._queues.popitem(last=False)
            place = queue.popleft()
            if queue:
                self._queues[key] = queue
            self.num_queued -= 1
            self._start(place)
            place.notify()

    def _forget(self, place: Place) -> None:
        queue = self._queues[place.key]
        queue.remove(place)
        self.num_queued -= 1
        if not queue:
            del self._queues[place.key]

    def _release(self, key: str) -> None:
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]


async def wait_for_turn(place: Place, turn: asyncio.Event, timeout_s: float) -> None:
    """Return once the place is admitted. Raises RequestError 503 when that takes too long."""
    if place.standing is Standing.WAITING:
        try:
            async with asyncio.timeout(timeout_s):
                await turn.wait()
        except TimeoutError:
            raise _refuse(
                "limits.queue_timeout", f"the box was busy for {timeout_s:g} seconds"
            ) from None
    if place.standing is Standing.REJECTED:
        raise draining()


def draining() -> RequestError:
    """What is said to a request that comes while the box is going down."""
    return _refuse("gateway.draining", "the box is shutting down")


def _refuse(code: str, message: str, *, status: int = 503) -> RequestError:
    return RequestError(code, message, status=status, retry_after_s=RETRY_AFTER_S)
