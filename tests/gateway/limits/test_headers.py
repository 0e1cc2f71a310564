"""How what is left is told."""

import pytest

from gateway.limits.buckets import Quota
from gateway.limits.headers import to_headers, write_duration
from gateway.limits.limiter import Grant


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.009, "9ms"),
        (1.5, "1.5s"),
        (60, "1m0s"),
        (360, "6m0s"),
        (3661.25, "1h1m1.25s"),
    ],
)
def test_durations_are_written_as_go_does(seconds: float, text: str) -> None:
    assert write_duration(seconds) == text


def test_a_key_without_a_limit_has_no_headers() -> None:
    assert to_headers(Grant()) == {}


def test_limit_remaining_and_reset_are_told() -> None:
    quota = Quota(limit_tokens=100, remaining_tokens=40, reset_s=36.0)
    assert to_headers(Grant(quota=quota)) == {
        "x-ratelimit-limit-tokens": "100",
        "x-ratelimit-remaining-tokens": "40",
        "x-ratelimit-reset-tokens": "36s",
    }
