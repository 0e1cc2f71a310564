"""Which format of a model is the best for a profile: the rule, and nothing else.

With a `max_loss` of 0.05, a copy may be chosen when its perplexity is at most 5 percent above the
original's and at most twice as many percent of the original's greedy tokens differ. Of those, and
the original, the fastest wins: `latency` looks at one sequence alone, `throughput` at the most
sequences that were measured, `balanced` at the geometric mean of all counts and of the prompt. The
original stays unless another is at least 5 percent faster: less is within the noise of a machine.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import geometric_mean
from typing import Final

from appliance.optimise_records import FormatResult, Profile

MAX_LOSS: Final = 0.05
MIN_GAIN: Final = 1.05
# Rounds on a quiet machine differ by about a tenth.
MAX_QUIET_SPREAD: Final = 1.3


def choose_format(
    results: Sequence[FormatResult], profile: Profile, max_loss: float = MAX_LOSS
) -> FormatResult:
    """The best of the results, exactly one of which is the original."""
    (original,) = (result for result in results if result.is_original)
    score = _SCORES[profile]
    copies = [
        result
        for result in results
        if not result.is_original and is_good_enough(result, original, max_loss)
    ]
    best = max(copies, key=score, default=original)
    return best if score(best) >= MIN_GAIN * score(original) else original


def is_good_enough(result: FormatResult, original: FormatResult, max_loss: float) -> bool:
    """Whether a format loses no more quality than it may."""
    return (
        result.perplexity <= (1 + max_loss) * original.perplexity
        and result.equal_tokens >= 1 - 2 * max_loss
    )


def widest_spread(results: Sequence[FormatResult]) -> float:
    """The fastest over the slowest round of the figure where they differ most."""
    speeds = [speed for one in results for speed in (*one.decode.values(), one.prompt)]
    return max(speed.highest / speed.lowest for speed in speeds)


def _alone(result: FormatResult) -> float:
    return result.decode[min(result.decode)].median


def _together(result: FormatResult) -> float:
    return result.decode[max(result.decode)].median


def _overall(result: FormatResult) -> float:
    return geometric_mean(speed.median for speed in (*result.decode.values(), result.prompt))


_SCORES: Final[Mapping[Profile, Callable[[FormatResult], float]]] = {
    "latency": _alone,
    "throughput": _together,
    "balanced": _overall,
}
