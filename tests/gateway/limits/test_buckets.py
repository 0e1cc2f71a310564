"""Tokens a minute: never granted beyond the limit, none lost, settled once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from appliance.errors import RequestError
from gateway.limits.buckets import Buckets, Demand, Reservation

KEY = (Demand(bucket="key", tokens_per_minute=100),)
BOTH = (*KEY, Demand(bucket="team", tokens_per_minute=60))


def test_parallel_requests_are_granted_no_more_than_the_limit() -> None:
    """BerriAI/litellm#18730: five at once of 130 tokens in a limit of 100 all passed."""
    buckets = Buckets()
    granted = 0
    for _ in range(5):
        try:
            granted += buckets.reserve(KEY, 40, 0.0).tokens
        except RequestError as refused:
            assert refused.status == 429
            assert refused.retry_after_s is not None
    assert granted == 80


def test_a_refusal_tells_when_enough_will_be_left() -> None:
    buckets = Buckets()
    buckets.reserve(KEY, 100, 0.0)
    with pytest.raises(RequestError) as refused:
        buckets.reserve(KEY, 50, 0.0)
    assert refused.value.code == "limits.tokens_per_minute"
    assert refused.value.retry_after_s == pytest.approx(30.0)
    assert buckets.reserve(KEY, 50, 30.0).tokens == 50


def test_a_request_larger_than_the_bucket_is_told_so_and_not_to_retry() -> None:
    with pytest.raises(RequestError) as refused:
        Buckets().reserve(KEY, 101, 0.0)
    assert refused.value.code == "limits.request_too_large"
    assert refused.value.should_retry is False
    assert "101" in refused.value.message
    assert "100" in refused.value.message


def test_all_buckets_give_or_none_does() -> None:
    buckets = Buckets()
    with pytest.raises(RequestError):
        buckets.reserve(BOTH, 80, 0.0)
    assert buckets.reserve(KEY, 100, 0.0).tokens == 100


def test_what_is_left_is_told_after_the_reservation() -> None:
    buckets = Buckets()
    buckets.reserve(BOTH, 30, 0.0)
    quota = buckets.quota(BOTH, 0.0)
    assert quota is not None
    assert (quota.limit_tokens, quota.remaining_tokens) == (60, 30)
    assert quota.reset_s == pytest.approx(30.0)


def test_settling_leaves_exactly_what_was_used_charged() -> None:
    """envoyproxy/ai-gateway#2248: a use of thousands moved the counter by one."""
    buckets = Buckets()
    buckets.settle(buckets.reserve(KEY, 90, 0.0), 7, 0.0)
    quota = buckets.quota(KEY, 0.0)
    assert quota is not None
    assert quota.remaining_tokens == 93


def test_settling_twice_gives_back_once() -> None:
    buckets = Buckets()
    reservation = buckets.reserve(KEY, 90, 0.0)
    buckets.settle(reservation, 50, 0.0)
    buckets.settle(reservation, 0, 0.0)
    with pytest.raises(RequestError):
        buckets.reserve(KEY, 51, 0.0)


def test_a_use_beyond_the_reservation_is_taken_from_what_comes_next() -> None:
    buckets = Buckets()
    buckets.settle(buckets.reserve(KEY, 50, 0.0), 150, 0.0)
    with pytest.raises(RequestError) as refused:
        buckets.reserve(KEY, 50, 0.0)
    assert refused.value.retry_after_s == pytest.approx(60.0)


def test_a_late_refund_does_not_fill_over_the_brim() -> None:
    buckets = Buckets()
    reservation = buckets.reserve(KEY, 100, 0.0)
    buckets.settle(reservation, 0, 60.0)
    buckets.reserve(KEY, 100, 60.0)
    with pytest.raises(RequestError):
        buckets.reserve(KEY, 1, 60.0)


def test_no_limit_takes_from_no_bucket() -> None:
    buckets = Buckets()
    buckets.reserve((), 10**9, 0.0)
    assert buckets.quota((), 0.0) is None


@given(st.lists(st.tuples(st.integers(0, 120), st.floats(0, 20)), max_size=40))
def test_no_minute_is_granted_more_than_bucket_and_refill(asks: list[tuple[int, float]]) -> None:
    buckets, now, granted = Buckets(), 0.0, 0
    for tokens, pause in asks:
        now += pause
        try:
            granted += buckets.reserve(KEY, tokens, now).tokens
        except RequestError:
            continue
    assert granted <= 100 + now * 100 / 60 + 1e-6


class BucketMachine(RuleBasedStateMachine):
    """Any mix of reserving, settling and waiting, with no more used than was reserved."""

    reservations = Bundle("reservations")

    def __init__(self) -> None:
        super().__init__()
        self.buckets, self.now, self.open_tokens = Buckets(), 0.0, 0

    @rule(target=reservations, tokens=st.integers(0, 110), demands=st.sampled_from([KEY, BOTH]))
    def reserve(self, tokens: int, demands: tuple[Demand, ...]) -> Reservation:
        try:
            reservation = self.buckets.reserve(demands, tokens, self.now)
        except RequestError:
            return Reservation(demands=(), tokens=0)
        self.open_tokens += tokens
        return reservation

    @rule(reservation=consumes(reservations), share=st.floats(0, 1))
    def settle(self, reservation: Reservation, share: float) -> None:
        self.buckets.settle(reservation, int(reservation.tokens * share), self.now)
        self.open_tokens -= reservation.tokens

    @rule(seconds=st.floats(0, 90))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def levels_stay_between_nothing_and_the_brim(self) -> None:
        for bucket in self.buckets._buckets.values():
            assert -1e-6 <= bucket.level <= bucket.capacity

    def teardown(self) -> None:
        for bucket, demand in (("key", KEY[0]), ("team", BOTH[1])):
            if bucket in self.buckets._buckets:
                full = self.buckets.quota((demand,), self.now + 60.0)
                assert full is not None
                assert full.remaining_tokens == demand.tokens_per_minute


TestBucketMachine = BucketMachine.TestCase
TestBucketMachine.settings = settings(max_examples=60, deadline=None)
