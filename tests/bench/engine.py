"""`make bench-engine`: every figure of the llama.cpp engine, against its rivals, in one table.

    python -m tests.bench.engine [--rounds 5] [--only NAME ...] [--without NAME ...]

One server runs at a time, the sides in turns. A rival that is not here is told as not measured.
"""

import argparse
import sys
from typing import Final

from tests.bench import (
    decoding,
    embeddings,
    kv_waste,
    long_prompt,
    prefixes,
    speculation,
    step_cost,
    stock_server,
    vllm_cpu,
)
from tests.bench.report import NUM_ROUNDS, Measure, Missing, NotMeasuredError, Result, show

BENCHES: Final[dict[str, Measure]] = {
    "decoding": decoding.measure,
    "long-prompt": long_prompt.measure,
    "prefixes": prefixes.measure,
    "speculation": speculation.measure,
    "step-cost": step_cost.measure,
    "kv-waste": kv_waste.measure,
    "embeddings": embeddings.measure,
    "stock-server": stock_server.measure,
    "vllm-cpu": vllm_cpu.measure,
}


def main() -> None:
    """Measure what was asked for, then tell it all."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.engine")
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS)
    parser.add_argument("--only", nargs="+", choices=BENCHES, default=list(BENCHES))
    parser.add_argument("--without", nargs="+", choices=BENCHES, default=[])
    options = parser.parse_args()
    chosen = [name for name in options.only if name not in options.without]
    found: list[Result | Missing] = []
    for name in chosen:
        sys.stderr.write(f"measuring {name}\n")
        found += measure(name, options.rounds)
    found += [Missing(what=name, reason="left out") for name in BENCHES if name not in chosen]
    show(found)


def measure(name: str, num_rounds: int) -> list[Result] | list[Missing]:
    """One benchmark's results, or why there are none."""
    try:
        return BENCHES[name](num_rounds)
    except NotMeasuredError as why:
        return [Missing(what=name, reason=str(why))]
    except Exception as error:  # noqa: BLE001 - the others took an hour: they are told all the same
        return [Missing(what=name, reason=f"{type(error).__name__}: {error}")]


if __name__ == "__main__":
    main()
