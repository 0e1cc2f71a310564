"""The last step of every call: what it held goes back, what it used is charged, counted, recorded.

Calls are counted as they open and close, so that a box going down knows when the last is over.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from appliance.audit.record import AuditLog, Completed
from appliance.clock import Monotonic, Now
from appliance.errors import HisarError
from appliance.metrics import EndedRequest, Metrics
from gateway.context import RequestContext
from gateway.exchange import Exchange
from gateway.lease import Lease
from gateway.limits.limiter import Limiter


class Settlement:
    """Opens leases and settles them, each exactly once."""

    def __init__(
        self, limiter: Limiter, audit: AuditLog, metrics: Metrics, *, clock: Monotonic, now: Now
    ) -> None:
        self._limiter = limiter
        self._audit = audit
        self._metrics = metrics
        self._clock = clock
        self._now = now
        self._open: dict[Lease, Exchange] = {}
        self._none_open = asyncio.Event()
        self._none_open.set()

    @contextmanager
    def lease(self, context: RequestContext, route: str, exchange: Exchange) -> Iterator[Lease]:
        """A lease for one call, settled when the block is left, in whatever way."""
        lease = Lease(context, route, self._metrics, self._clock)
        self._open[lease] = exchange
        self._none_open.clear()
        self._metrics.in_flight.inc()
        try:
            yield lease
        finally:
            self._settle(lease)

    async def wait_until_none_open(self) -> None:
        """Return once every call is settled."""
        await self._none_open.wait()

    def stop_all(self, reason: HisarError) -> None:
        """End every open call with an error."""
        for exchange in tuple(self._open.values()):
            exchange.stop(reason)

    def _settle(self, lease: Lease) -> None:
        used = lease.usage.prompt_tokens + lease.usage.completion_tokens
        self._limiter.release(lease.grant, used)
        if lease.is_recorded:
            self._audit.append_soon(self._record(lease))
        self._count(lease)
        del self._open[lease]
        if not self._open:
            self._none_open.set()

    def _record(self, lease: Lease) -> Completed:
        return Completed(
            request_id=lease.context.id,
            at=self._now(),
            outcome=lease.outcome,
            code=lease.code,
            finish_reasons=tuple(lease.finish_reasons),
            usage=lease.usage,
            timings=lease.timings,
        )

    def _count(self, lease: Lease) -> None:
        arrived_at, first_at = lease.context.arrived_at, lease.first_delta_at
        self._metrics.in_flight.dec()
        self._metrics.count_ended(
            EndedRequest(
                route=lease.route,
                model=lease.model,
                outcome=lease.outcome,
                duration_s=self._clock() - arrived_at,
                first_token_s=first_at - arrived_at if first_at is not None else None,
                finish_reasons=tuple(lease.finish_reasons),
                usage=lease.usage,
                timings=lease.timings,
            )
        )
