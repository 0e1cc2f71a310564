"""Admitting a request and settling it: tokens reserved at once, then a place among those who run.

Tokens come first, so that a key without tokens left is told so at once and not after queueing.
"""

import asyncio
from typing import Final

from msgspec import Struct

from appliance.clock import Monotonic
from appliance.config import LimitsConfig
from appliance.identity import Principal
from gateway.limits.admission import Admission, Place, wait_for_turn
from gateway.limits.buckets import Buckets, Demand, Quota, Reservation
from gateway.limits.cost import worst_case_tokens
from gateway.wire.call import Asked

# What an answer is taken to need at most where neither the client nor the engine sets a bound.
UNKNOWN_CONTEXT_TOKENS: Final = 4096


class Grant(Struct, kw_only=True):
    """What one request holds of the box, empty until it is admitted.

    `quota` is what its key has left, also when that was not enough.
    """

    reservation: Reservation | None = None
    quota: Quota | None = None
    place: Place | None = None


class Limiter:
    """The limits of one box."""

    def __init__(self, config: LimitsConfig, clock: Monotonic) -> None:
        self._clock = clock
        self._queue_timeout_s = config.queue_timeout_s
        self._buckets = Buckets()
        self.admission = Admission(max_in_flight=config.max_in_flight, max_queued=config.max_queued)

    async def admit(
        self, principal: Principal, asked: Asked, context_tokens: int | None, grant: Grant
    ) -> None:
        """Fill `grant`, waiting for a place if need be. Raises RequestError 429 or 503.

        What was taken stands in `grant` before anything is awaited, so it is never lost.
        """
        self._reserve(principal, asked, context_tokens or UNKNOWN_CONTEXT_TOKENS, grant)
        turn = asyncio.Event()
        grant.place = self.admission.take(
            principal.id, principal.limits.requests_in_flight, turn.set
        )
        await wait_for_turn(grant.place, turn, self._queue_timeout_s)

    def _reserve(
        self, principal: Principal, asked: Asked, context_tokens: int, grant: Grant
    ) -> None:
        limit = principal.limits.tokens_per_minute
        if limit is None:
            return
        now = self._clock()
        demands = (Demand(bucket=principal.id, tokens_per_minute=limit),)
        tokens = worst_case_tokens(asked, context_tokens, limit)
        try:
            grant.reservation = self._buckets.reserve(demands, tokens, now)
        finally:
            grant.quota = self._buckets.quota(demands, now)

    def release(self, grant: Grant, used_tokens: int) -> None:
        """Give the place back and charge what was used. A second time is nothing."""
        if grant.place is not None:
            self.admission.leave(grant.place)
        if grant.reservation is not None:
            self._buckets.settle(grant.reservation, used_tokens, self._clock())
