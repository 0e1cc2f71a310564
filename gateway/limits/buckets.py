"""How many tokens a key may use a minute: reserved before a request runs, settled when it is over.

A bucket holds at most a minute's tokens and refills evenly. A request reserves the most it can use,
from all its buckets or from none. Settling gives back what was not used, or takes what was used
beyond; then the level can fall below zero and the next request waits for the refill. A refund never
fills a bucket above its brim.

`now` is a monotonic time in seconds and comes from the caller; it never goes back.
"""

from typing import Final

from msgspec import Struct

from appliance.errors import RequestError

MINUTE_S: Final = 60.0


class Bucket(Struct, kw_only=True):
    """`level` tokens at the time `at`, of at most `capacity`."""

    capacity: int
    level: float
    at: float


class Demand(Struct, frozen=True, kw_only=True):
    """A bucket to take from: its name, and the tokens it grants a minute."""

    bucket: str
    tokens_per_minute: int


class Quota(Struct, frozen=True, kw_only=True):
    """What is left in the tightest of some buckets, and in how many seconds that is full."""

    limit_tokens: int
    remaining_tokens: int
    reset_s: float


class Reservation(Struct, kw_only=True, eq=False):
    """Tokens taken out of some buckets, to be settled once."""

    demands: tuple[Demand, ...]
    tokens: int
    is_settled: bool = False


class Buckets:
    """The buckets of one process, made when first asked of."""

    def __init__(self) -> None:
        self._buckets: dict[str, Bucket] = {}

    def reserve(self, demands: tuple[Demand, ...], tokens: int, now: float) -> Reservation:
        """Take `tokens` from every bucket. Raises RequestError 429 and takes nothing."""
        buckets = [self._refilled(demand, now) for demand in demands]
        for bucket in buckets:
            _check(bucket, tokens)
        for bucket in buckets:
            bucket.level -= tokens
        return Reservation(demands=demands, tokens=tokens)

    def quota(self, demands: tuple[Demand, ...], now: float) -> Quota | None:
        """What is left for these demands; None where there are none."""
        return _tightest([self._refilled(demand, now) for demand in demands])

    def settle(self, reservation: Reservation, used_tokens: int, now: float) -> None:
        """Replace what was reserved by what was used. A second time is nothing."""
        if reservation.is_settled:
            return
        reservation.is_settled = True
        for demand in reservation.demands:
            bucket = self._refilled(demand, now)
            refund = reservation.tokens - used_tokens
            bucket.level = min(bucket.level + refund, float(bucket.capacity))

    def _refilled(self, demand: Demand, now: float) -> Bucket:
        capacity = demand.tokens_per_minute
        bucket = self._buckets.get(demand.bucket)
        if bucket is None:
            bucket = Bucket(capacity=capacity, level=float(capacity), at=now)
            self._buckets[demand.bucket] = bucket
        elapsed_s = now - bucket.at
        bucket.level = min(bucket.level + elapsed_s * bucket.capacity / MINUTE_S, float(capacity))
        bucket.capacity = capacity
        bucket.at = now
        return bucket


def _check(bucket: Bucket, tokens: int) -> None:
    if tokens > bucket.capacity:
        raise RequestError(
            "limits.request_too_large",
            f"the request may use {tokens} tokens; the key is granted {bucket.capacity} a minute",
            status=429,
            hint="shorten the prompt or lower max_tokens",
            should_retry=False,
        )
    if tokens > bucket.level:
        wait_s = (tokens - bucket.level) * MINUTE_S / bucket.capacity
        raise RequestError(
            "limits.tokens_per_minute",
            f"the key is granted {bucket.capacity} tokens a minute; "
            f"this request may use {tokens} and {max(0, int(bucket.level))} are left",
            status=429,
            retry_after_s=wait_s,
        )


def _tightest(buckets: list[Bucket]) -> Quota | None:
    if not buckets:
        return None
    bucket = min(buckets, key=lambda bucket: bucket.level)
    return Quota(
        limit_tokens=bucket.capacity,
        remaining_tokens=max(0, int(bucket.level)),
        reset_s=(bucket.capacity - bucket.level) * MINUTE_S / bucket.capacity,
    )
