"""Whether deterministic answers are the same in every situation, and what the mode costs.

`python -m tests.bench.deterministic [--prompts 200] [--rounds 4]`: each prompt alone, in a batch of
eight, from the cache and after pre-emption. Ends with 1 where an answer is not the one given alone.
"""

import argparse
import sys
from typing import Final

from tests.bench import deterministic_price
from tests.bench.deterministic_answers import Situation, compare
from tests.bench.report import Result, at_least, show

NUM_PROMPTS: Final = 200
NUM_ROUNDS: Final = 4


def main() -> None:
    """Compare, then measure, then tell it all."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.deterministic")
    parser.add_argument("--prompts", type=int, default=NUM_PROMPTS)
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS)
    options = parser.parse_args()
    found = compare(options.prompts)
    results = [_result(situation, options.prompts) for situation in found]
    show([*results, *deterministic_price.measure(options.rounds)])
    sys.exit(any(situation.num_equal < options.prompts for situation in found))


def _result(situation: Situation, num_prompts: int) -> Result:
    return Result(
        what=f"{situation.name}: answers equal to those alone ({situation.num_unique} unique)",
        unit=f"of {num_prompts}",
        ours=[situation.num_equal],
        goal=at_least(num_prompts),
    )


if __name__ == "__main__":
    main()
