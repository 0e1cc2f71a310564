"""The best format is the fastest one that loses little, and only where it is clearly faster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from appliance.optimise_choice import MAX_LOSS, choose_format, is_good_enough, widest_spread
from appliance.optimise_records import FormatResult, Profile, Speed


def speed(tokens_per_s: float) -> Speed:
    return Speed(median=tokens_per_s, lowest=tokens_per_s, highest=tokens_per_s)


def result(
    name: str,
    speeds: tuple[float, float, float] = (100, 100, 100),
    *,
    perplexity: float = 20.0,
    equal_tokens: float = 1.0,
) -> FormatResult:
    alone, together, prompt = speeds
    return FormatResult(
        format=name,
        file=f"{name}.gguf",
        size_bytes=1,
        is_original=name == "original",
        decode={1: speed(alone), 32: speed(together)},
        prompt=speed(prompt),
        perplexity=perplexity,
        equal_tokens=equal_tokens,
    )


ORIGINAL = result("original")


@pytest.mark.parametrize(
    ("profile", "best"), [("latency", "quick"), ("throughput", "wide"), ("balanced", "even")]
)
def test_a_profile_looks_at_what_it_is_for(profile: Profile, best: str) -> None:
    formats = [
        ORIGINAL,
        result("quick", (200, 90, 100)),
        result("wide", (90, 200, 100)),
        result("even", (160, 160, 100)),
    ]
    assert choose_format(formats, profile).format == best


@pytest.mark.parametrize("lossy", [{"perplexity": 21.1}, {"equal_tokens": 0.89}])
def test_a_fast_format_that_loses_too_much_is_not_chosen(lossy: dict[str, float]) -> None:
    fast = result("fast", (500, 500, 500), **lossy)
    assert choose_format([ORIGINAL, fast], "balanced") == ORIGINAL
    assert choose_format([ORIGINAL, fast], "balanced", max_loss=0.1) == fast


def test_a_gain_within_the_noise_is_none() -> None:
    assert choose_format([result("a", (104, 104, 104)), ORIGINAL], "latency") == ORIGINAL


def test_the_prompt_counts_for_balanced_alone() -> None:
    reader = result("reader", (100, 100, 300))
    assert choose_format([ORIGINAL, reader], "balanced") == reader
    assert choose_format([ORIGINAL, reader], "throughput") == ORIGINAL


def test_the_widest_spread_tells_a_busy_machine() -> None:
    uneven = structs.replace(ORIGINAL, prompt=Speed(median=100, lowest=50, highest=150))
    assert widest_spread([ORIGINAL]) == 1
    assert widest_spread([ORIGINAL, uneven]) == 3


_SPEED = st.floats(0.1, 1e5)
_COPIES = st.lists(
    st.builds(
        result,
        st.sampled_from(("Q4_0", "Q8_0", "BF16")),
        st.tuples(_SPEED, _SPEED, _SPEED),
        perplexity=st.floats(1, 100),
        equal_tokens=st.floats(0, 1),
    )
)


@given(_COPIES, st.sampled_from(("latency", "throughput", "balanced")))
def test_whatever_was_measured_the_choice_is_within_the_bound(
    copies: list[FormatResult], profile: Profile
) -> None:
    best = choose_format([*copies, ORIGINAL], profile)
    assert best == ORIGINAL or is_good_enough(best, ORIGINAL, MAX_LOSS)
